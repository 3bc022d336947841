//! The bytes of an answer to what it tells, as they come in. Two kinds of answer, lists and watches, each
//! in two forms, [`json`] and [`protobuf`]; the answer's own content type says which.
//!
//! No IO: whoever reads the bytes hands them over. An odd object costs itself and not the answer; an
//! answer that makes no sense as a whole is [`Unreadable`].

mod json;
mod protobuf;

use bytes::BytesMut;

use crate::convert::{Decoded, Kind};

/// What is asked for, in this order.
pub(crate) const ANY_FORM: &str = "application/vnd.kubernetes.protobuf,application/json";
pub(crate) const JSON_ONLY: &str = "application/json";

/// The longest event or object that is waited for. etcd takes no object larger than a few megabytes.
const LONGEST: usize = 64 << 20;

/// A part of a list.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and nearly all are the large one")]
pub(crate) enum ListPart {
    Object(Decoded),
    About(ListMeta),
}

/// What a list says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListMeta {
    /// The version to watch from, empty if there is none.
    pub(crate) version: String,
    /// What to ask for the next page with, empty on the last one.
    pub(crate) next: String,
}

/// An event of a watch.
#[derive(Debug)]
pub(crate) enum WatchPart {
    Apply(Decoded),
    Delete(Decoded),
    /// Nothing changed up to this version.
    Bookmark(Option<String>),
    /// The watch is over.
    Error(Refusal),
}

/// The server's own words on why it does not do something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) message: String,
}

/// Bytes that are no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read the answer: {0}")]
pub(crate) struct Unreadable(String);

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Protobuf,
}

impl Form {
    /// What a content type such as `application/json;charset=utf-8` means; unknown ones are taken for
    /// JSON, and fail as that.
    pub(crate) fn of(content_type: &str) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("application/vnd.kubernetes.protobuf") {
            Self::Protobuf
        } else {
            Self::Json
        }
    }

    /// A refusal that came instead of an answer. Not everybody on the way to the server speaks its
    /// language: whatever it says is better than nothing.
    pub(crate) fn refusal(self, code: u16, body: &[u8]) -> Refusal {
        const ENOUGH: usize = 300;
        let read = match self {
            Self::Json => json::refusal(body),
            Self::Protobuf => protobuf::refusal(body),
        };
        let message = read.map(|refusal| refusal.message).unwrap_or_else(|| {
            let text = String::from_utf8_lossy(body);
            let text = text.trim();
            text[..text.floor_char_boundary(ENOUGH)].to_owned()
        });
        Refusal { code, message }
    }
}

/// Makes parts of bytes.
pub(crate) trait Decoder {
    type Part;

    /// Takes the next part out of `buffer`; `None` if it takes more bytes. `ended`: there are none.
    fn decode(
        &mut self,
        buffer: &mut BytesMut,
        ended: bool,
    ) -> Result<Option<Self::Part>, Unreadable>;
}

/// A list in either form.
#[derive(Debug)]
pub(crate) enum ListDecoder {
    Json(json::List),
    Protobuf(protobuf::List),
}

impl ListDecoder {
    pub(crate) fn new(form: Form, kind: Kind) -> Self {
        match form {
            Form::Json => Self::Json(json::List::new(kind)),
            Form::Protobuf => Self::Protobuf(protobuf::List::new(kind)),
        }
    }
}

impl Decoder for ListDecoder {
    type Part = ListPart;

    fn decode(
        &mut self,
        buffer: &mut BytesMut,
        ended: bool,
    ) -> Result<Option<ListPart>, Unreadable> {
        match self {
            Self::Json(list) => list.decode(buffer, ended),
            Self::Protobuf(list) => list.decode(buffer, ended),
        }
    }
}

/// A watch in either form.
#[derive(Debug)]
pub(crate) enum WatchDecoder {
    Json(json::Watch),
    Protobuf(protobuf::Watch),
}

impl WatchDecoder {
    pub(crate) fn new(form: Form, kind: Kind) -> Self {
        match form {
            Form::Json => Self::Json(json::Watch::new(kind)),
            Form::Protobuf => Self::Protobuf(protobuf::Watch::new(kind)),
        }
    }
}

impl Decoder for WatchDecoder {
    type Part = WatchPart;

    fn decode(
        &mut self,
        buffer: &mut BytesMut,
        ended: bool,
    ) -> Result<Option<WatchPart>, Unreadable> {
        match self {
            Self::Json(watch) => watch.decode(buffer, ended),
            Self::Protobuf(watch) => watch.decode(buffer, ended),
        }
    }
}

/// An event by the name of its type. Unknown ones may come with later versions of the API, and say
/// nothing here.
fn event(name: &str, object: impl FnOnce() -> Decoded) -> Option<WatchPart> {
    match name {
        "ADDED" | "MODIFIED" => Some(WatchPart::Apply(object())),
        "DELETED" => Some(WatchPart::Delete(object())),
        // Of its object there is nothing but the version.
        "BOOKMARK" => Some(WatchPart::Bookmark(object().version)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
