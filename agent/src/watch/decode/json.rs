//! Answers in JSON: a list is one object, a watch is a line for each event.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Decoder, LONGEST, ListMeta, ListPart, Refusal, Unreadable, WatchPart, event};
use crate::convert::{self, Decoded, Kind, decode};

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// A list is read once all of it is there.
#[derive(Debug)]
pub(crate) struct List {
    kind: Kind,
    parts: VecDeque<ListPart>,
    read: bool,
}

impl List {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, parts: VecDeque::new(), read: false }
    }
}

#[derive(Deserialize)]
struct RawList<'a> {
    #[serde(default)]
    metadata: RawListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawListMeta {
    resource_version: Option<String>,
    r#continue: Option<String>,
}

impl Decoder for List {
    type Part = ListPart;

    fn decode(
        &mut self,
        buffer: &mut BytesMut,
        ended: bool,
    ) -> Result<Option<ListPart>, Unreadable> {
        if ended && !self.read {
            let list: RawList<'_> = serde_json::from_slice(buffer)?;
            let RawListMeta { resource_version, r#continue } = list.metadata;
            let about = ListMeta {
                version: resource_version.unwrap_or_default(),
                next: r#continue.unwrap_or_default(),
            };
            self.parts.push_back(ListPart::About(about));
            let items = list.items.unwrap_or_default().into_iter();
            self.parts.extend(items.map(|item| ListPart::Object(object(self.kind, item))));
            buffer.clear();
            self.read = true;
        }
        Ok(self.parts.pop_front())
    }
}

/// A watch.
#[derive(Debug)]
pub(crate) struct Watch {
    kind: Kind,
    /// No line ends before this.
    looked_at: usize,
}

impl Watch {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, looked_at: 0 }
    }
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

impl Decoder for Watch {
    type Part = WatchPart;

    fn decode(&mut self, buffer: &mut BytesMut, _: bool) -> Result<Option<WatchPart>, Unreadable> {
        loop {
            let new = buffer.get(self.looked_at..).unwrap_or_default();
            let Some(end) = new.iter().position(|byte| *byte == b'\n') else {
                self.looked_at = buffer.len();
                if buffer.len() > LONGEST {
                    return Err(Unreadable("a line does not end".into()));
                }
                return Ok(None);
            };
            let end = self.looked_at + end;
            let line = &buffer[..end];
            let part = if line.trim_ascii().is_empty() { None } else { read(self.kind, line)? };
            buffer.advance(end + 1);
            self.looked_at = 0;
            if part.is_some() {
                return Ok(part);
            }
        }
    }
}

fn read(kind: Kind, line: &[u8]) -> Result<Option<WatchPart>, Unreadable> {
    let RawEvent { r#type, object: json } = serde_json::from_slice(line)?;
    if r#type == "ERROR" {
        let refusal = refusal(json.get().as_bytes());
        let refusal = refusal.unwrap_or_else(|| Refusal { code: 0, message: json.to_string() });
        return Ok(Some(WatchPart::Error(refusal)));
    }
    Ok(event(&r#type, || object(kind, json)))
}

fn object(kind: Kind, json: &RawValue) -> Decoded {
    decode(kind, convert::Form::Json(json.get()))
}

#[derive(Deserialize)]
struct RawStatus {
    message: String,
    #[serde(default)]
    code: u16,
}

pub(super) fn refusal(json: &[u8]) -> Option<Refusal> {
    let RawStatus { message, code } = serde_json::from_slice(json).ok()?;
    Some(Refusal { code, message })
}
