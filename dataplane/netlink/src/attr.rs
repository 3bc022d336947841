//! Netlink attributes: length, type, payload, padded to four bytes, possibly nested.
//!
//! Owns this layout in both directions and no meaning of any attribute. The writer appends to the
//! caller's buffer; the reader borrows from it, checks every bound and never panics.

use crate::Error;

/// Bytes of an attribute's header.
pub(crate) const HEADER: usize = 4;
/// The largest length an attribute's u16 can say, header included.
pub(crate) const MAX_LEN: usize = u16::MAX as usize;

const NLA_F_NESTED: u16 = 0x8000;
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Appends one attribute.
///
/// A payload no u16 can describe is cut there: it keeps the message well formed, and the kernel
/// refuses every attribute of ours long before that length (256 for names, 64 for values).
pub(crate) fn put(buf: &mut Vec<u8>, kind: u16, payload: &[u8]) {
    let payload = &payload[..payload.len().min(MAX_LEN - HEADER)];
    let len = (payload.len() + HEADER) as u16;
    buf.extend_from_slice(&len.to_ne_bytes());
    buf.extend_from_slice(&kind.to_ne_bytes());
    buf.extend_from_slice(payload);
    pad(buf);
}

/// Appends a NUL-terminated string, the form libnftnl sends.
pub(crate) fn put_str(buf: &mut Vec<u8>, kind: u16, text: &str) {
    let text = &text.as_bytes()[..text.len().min(MAX_LEN - HEADER - 1)];
    let len = (text.len() + 1 + HEADER) as u16;
    buf.extend_from_slice(&len.to_ne_bytes());
    buf.extend_from_slice(&kind.to_ne_bytes());
    buf.extend_from_slice(text);
    buf.push(0);
    pad(buf);
}

/// Appends a big-endian u32, which is how nf_tables takes every number.
pub(crate) fn put_u32(buf: &mut Vec<u8>, kind: u16, value: u32) {
    put(buf, kind, &value.to_be_bytes());
}

/// Appends a big-endian u64.
pub(crate) fn put_u64(buf: &mut Vec<u8>, kind: u16, value: u64) {
    put(buf, kind, &value.to_be_bytes());
}

/// Appends a u32 in host order, as generic and route netlink take it.
pub(crate) fn put_host_u32(buf: &mut Vec<u8>, kind: u16, value: u32) {
    put(buf, kind, &value.to_ne_bytes());
}

/// Appends a u16 in host order.
pub(crate) fn put_host_u16(buf: &mut Vec<u8>, kind: u16, value: u16) {
    put(buf, kind, &value.to_ne_bytes());
}

/// Opens a nest and returns where, for [`end_nest`].
pub(crate) fn nest(buf: &mut Vec<u8>, kind: u16) -> usize {
    let at = buf.len();
    buf.extend_from_slice(&[0, 0]);
    buf.extend_from_slice(&(kind | NLA_F_NESTED).to_ne_bytes());
    at
}

/// Writes the length of the nest opened at `at`, which reaches to the end of the buffer.
///
/// A nest too long for its length says 65,535 and so overruns what follows: the kernel refuses the
/// message instead of reading a wrapped length as something else.
pub(crate) fn end_nest(buf: &mut [u8], at: usize) {
    let len = u16::try_from(buf.len() - at).unwrap_or(u16::MAX);
    buf[at..at + 2].copy_from_slice(&len.to_ne_bytes());
}

fn pad(buf: &mut Vec<u8>) {
    buf.resize(buf.len().next_multiple_of(4), 0);
}

/// One attribute as read: its type without flags, and its payload.
#[derive(Clone, Copy)]
pub(crate) struct Attr<'a> {
    pub(crate) kind: u16,
    pub(crate) payload: &'a [u8],
}

impl<'a> Attr<'a> {
    pub(crate) fn u32(&self) -> Result<u32, Error> {
        let bytes = self.payload.try_into().map_err(|_| malformed("u32 of another length"))?;
        Ok(u32::from_be_bytes(bytes))
    }

    pub(crate) fn u64(&self) -> Result<u64, Error> {
        let bytes = self.payload.try_into().map_err(|_| malformed("u64 of another length"))?;
        Ok(u64::from_be_bytes(bytes))
    }

    pub(crate) fn host_u32(&self) -> Result<u32, Error> {
        let bytes = self.payload.try_into().map_err(|_| malformed("u32 of another length"))?;
        Ok(u32::from_ne_bytes(bytes))
    }

    pub(crate) fn host_u16(&self) -> Result<u16, Error> {
        let bytes = self.payload.try_into().map_err(|_| malformed("u16 of another length"))?;
        Ok(u16::from_ne_bytes(bytes))
    }

    pub(crate) fn u16(&self) -> Result<u16, Error> {
        let bytes = self.payload.try_into().map_err(|_| malformed("u16 of another length"))?;
        Ok(u16::from_be_bytes(bytes))
    }

    /// A string up to its NUL. Names of other people's objects need not be UTF-8, and one of those
    /// must not end our dump.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(until_nul(self.payload)).into_owned()
    }

    pub(crate) fn nested(&self) -> Attrs<'a> {
        Attrs(self.payload)
    }
}

/// Iterates over the attributes in a slice; ends after the first malformed one.
pub(crate) struct Attrs<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let all = std::mem::take(&mut self.0);
        let Some(([l0, l1, k0, k1], _)) = all.split_first_chunk::<HEADER>() else {
            return Some(Err(malformed("attribute header cut short")));
        };
        let len = usize::from(u16::from_ne_bytes([*l0, *l1]));
        let Some(payload) = all.get(HEADER..len) else {
            return Some(Err(malformed("attribute length")));
        };
        self.0 = all.get(len.next_multiple_of(4)..).unwrap_or_default();
        let kind = u16::from_ne_bytes([*k0, *k1]) & NLA_TYPE_MASK;
        Some(Ok(Attr { kind, payload }))
    }
}

/// The bytes before the first NUL, or all.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or_default()
}

pub(crate) fn malformed(what: &'static str) -> Error {
    Error::Malformed { what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut buf = Vec::new();
        put_str(&mut buf, 1, "abc");
        let at = nest(&mut buf, 2);
        put_u32(&mut buf, 3, 0x0102_0304);
        put(&mut buf, 4, &[9]);
        end_nest(&mut buf, at);
        put_u64(&mut buf, 5, 7);

        let read: Vec<_> = Attrs(&buf).map(|a| a.expect("well formed")).collect();
        assert_eq!(read.iter().map(|a| a.kind).collect::<Vec<_>>(), [1, 2, 5]);
        assert_eq!(read[0].text(), "abc");
        assert_eq!(read[2].u64().expect("eight bytes"), 7);
        let inner: Vec<_> = read[1].nested().map(|a| a.expect("well formed")).collect();
        assert_eq!(inner[0].u32().expect("four bytes"), 0x0102_0304);
        assert_eq!((inner[1].kind, inner[1].payload), (4, &[9][..]));
    }

    #[test]
    fn lengths_that_lie_are_malformed() {
        for bytes in [&[1u8, 0][..], &[3, 0, 1, 0], &[0, 0, 1, 0], &[9, 0, 1, 0, 1, 2, 3, 4]] {
            assert!(matches!(Attrs(bytes).next(), Some(Err(Error::Malformed { .. }))), "{bytes:?}");
            assert_eq!(Attrs(bytes).count(), 1, "the iterator ends after {bytes:?}");
        }
    }
}
