//! Answers in protocol buffers: whatever stands alone is `k8s\0` and a `runtime.Unknown` around the
//! message itself. A list is one of these, a watch is a length and a `meta.v1.WatchEvent` for each event,
//! around another one of these.
//!
//! A list is read object by object as it comes in, so that a page takes no more room than its largest
//! object.

use bytes::{Buf, BytesMut};

use super::{Decoder, LONGEST, ListMeta, ListPart, Refusal, Unreadable, WatchPart, event};
use crate::convert::{self, Content, Decoded, Kind, Problem, decode};
use crate::protobuf::{self, Fields, Head, Malformed, Value, head};

const MAGIC: &[u8] = b"k8s\0";
/// The field of `runtime.Unknown` that has the message.
const RAW: u32 = 2;

impl From<Malformed> for Unreadable {
    fn from(malformed: Malformed) -> Self {
        Self(malformed.to_string())
    }
}

/// The message in an envelope.
fn open(envelope: &[u8]) -> Result<&[u8], Unreadable> {
    let unknown = envelope.strip_prefix(MAGIC);
    let unknown = unknown.ok_or_else(|| Unreadable("it does not begin with k8s".into()))?;
    Ok(Fields::of(unknown).bytes(RAW)?)
}

/// A list.
#[derive(Debug)]
pub(crate) struct List {
    kind: Kind,
    at: At,
}

/// Where in a list the buffer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Magic,
    /// A field of the envelope.
    Envelope,
    /// A field of the list, of which so many bytes are to come.
    Inside(usize),
    /// The list has been read; of its envelope nothing matters any more.
    After,
}

impl List {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, at: At::Magic }
    }

    /// One step on; `None` if it takes more bytes.
    fn step(&mut self, buffer: &mut BytesMut) -> Result<Option<Step>, Unreadable> {
        match self.at {
            At::Magic => {
                if buffer.len() < MAGIC.len() {
                    return Ok(None);
                }
                if !buffer.starts_with(MAGIC) {
                    return Err(Unreadable("it does not begin with k8s".into()));
                }
                buffer.advance(MAGIC.len());
                self.at = At::Envelope;
            }
            At::Envelope => {
                let Some(Head { number, kind, size }) = head(buffer)? else { return Ok(None) };
                if let protobuf::Kind::Bytes(len) = kind
                    && number == RAW
                {
                    buffer.advance(size);
                    self.at = At::Inside(len);
                } else {
                    let Some(end) = end_of(buffer, size, kind)? else { return Ok(None) };
                    buffer.advance(end);
                }
            }
            At::Inside(0) => self.at = At::After,
            At::Inside(left) => {
                let inside = &buffer[..left.min(buffer.len())];
                let complete = inside.len() == left;
                let end = match head(inside)? {
                    Some(Head { kind, size, .. }) => end_of(inside, size, kind)?,
                    None => None,
                };
                let Some(end) = end else {
                    return if complete { Err(Malformed::Truncated.into()) } else { Ok(None) };
                };
                let field = Fields::of(&inside[..end]).next()?;
                let part = match field {
                    Some((1, Value::Bytes(bytes))) => Some(ListPart::About(list_meta(bytes)?)),
                    Some((2, Value::Bytes(bytes))) => {
                        Some(ListPart::Object(decode(self.kind, convert::Form::Protobuf(bytes))))
                    }
                    _ => None,
                };
                buffer.advance(end);
                self.at = At::Inside(left - end);
                if let Some(part) = part {
                    return Ok(Some(Step::Part(part)));
                }
            }
            At::After => {
                buffer.clear();
                return Ok(None);
            }
        }
        Ok(Some(Step::On))
    }
}

#[expect(clippy::large_enum_variant, reason = "taken apart at once")]
enum Step {
    Part(ListPart),
    On,
}

/// Where a field ends; `None` if that is not there yet.
fn end_of(bytes: &[u8], size: usize, kind: protobuf::Kind) -> Result<Option<usize>, Unreadable> {
    let len = match kind {
        protobuf::Kind::Number(_) => 0,
        protobuf::Kind::Bytes(len) | protobuf::Kind::Fixed(len) => len,
    };
    if len > LONGEST {
        return Err(Malformed::TooLong(len as u64).into());
    }
    Ok(Some(size + len).filter(|end| *end <= bytes.len()))
}

impl Decoder for List {
    type Part = ListPart;

    fn decode(
        &mut self,
        buffer: &mut BytesMut,
        ended: bool,
    ) -> Result<Option<ListPart>, Unreadable> {
        while let Some(step) = self.step(buffer)? {
            if let Step::Part(part) = step {
                return Ok(Some(part));
            }
        }
        if ended && self.at != At::After {
            return Err(Malformed::Truncated.into());
        }
        Ok(None)
    }
}

fn list_meta(bytes: &[u8]) -> Result<ListMeta, Unreadable> {
    let mut meta = ListMeta::default();
    let mut fields = Fields::of(bytes);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (2, Value::Bytes(bytes)) => meta.version = text(bytes)?.to_owned(),
            (3, Value::Bytes(bytes)) => meta.next = text(bytes)?.to_owned(),
            _ => {}
        }
    }
    Ok(meta)
}

fn text(bytes: &[u8]) -> Result<&str, Unreadable> {
    std::str::from_utf8(bytes).map_err(|error| Unreadable(error.to_string()))
}

/// A watch.
#[derive(Debug)]
pub(crate) struct Watch {
    kind: Kind,
}

impl Watch {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind }
    }
}

impl Decoder for Watch {
    type Part = WatchPart;

    fn decode(&mut self, buffer: &mut BytesMut, _: bool) -> Result<Option<WatchPart>, Unreadable> {
        loop {
            let Some((length, rest)) = buffer.split_first_chunk::<4>() else { return Ok(None) };
            let length = u32::from_be_bytes(*length) as usize;
            if length > LONGEST {
                return Err(Malformed::TooLong(length as u64).into());
            }
            let Some(frame) = rest.get(..length) else {
                buffer.reserve(4 + length - buffer.len());
                return Ok(None);
            };
            let part = read(self.kind, frame)?;
            buffer.advance(4 + length);
            if part.is_some() {
                return Ok(part);
            }
        }
    }
}

fn read(kind: Kind, frame: &[u8]) -> Result<Option<WatchPart>, Unreadable> {
    let fields = Fields::of(frame);
    let name = text(fields.bytes(1)?)?;
    let envelope = Fields::of(fields.bytes(2)?).bytes(1)?;
    if name == "ERROR" {
        let unknown = || Refusal { code: 0, message: envelope.escape_ascii().to_string() };
        return Ok(Some(WatchPart::Error(refusal(envelope).unwrap_or_else(unknown))));
    }
    Ok(event(name, || match open(envelope) {
        Ok(message) => decode(kind, convert::Form::Protobuf(message)),
        Err(Unreadable(message)) => {
            let problem = Problem { field: ".".into(), message };
            Decoded { version: None, content: Content::Bad(None, problem) }
        }
    }))
}

/// A `meta.v1.Status`.
pub(super) fn refusal(envelope: &[u8]) -> Option<Refusal> {
    let mut fields = Fields::of(open(envelope).ok()?);
    let mut refusal = Refusal { code: 0, message: String::new() };
    while let Some((number, value)) = fields.next().ok()? {
        match (number, value) {
            (3, Value::Bytes(bytes)) => refusal.message = text(bytes).ok()?.to_owned(),
            (6, Value::Number(code)) => refusal.code = u16::try_from(code).unwrap_or_default(),
            _ => {}
        }
    }
    Some(refusal)
}
