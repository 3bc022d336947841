//! Protocol buffers, read by hand: the fields of a message one after the other, borrowed from where they
//! stand. Knows no message; whatever the bytes are, the worst that comes of them is [`Malformed`].

#[cfg(test)]
pub(crate) mod write;

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("it ends in the middle of a field")]
    Truncated,
    #[error("a number has more than ten bytes")]
    LongNumber,
    #[error("a field has the number {0}")]
    FieldNumber(u64),
    #[error("a field is of the unknown wire type {0}")]
    WireType(u8),
    #[error("a field says that it has {0} bytes")]
    TooLong(u64),
}

/// What a field says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    /// A text, a message, or just bytes.
    Bytes(&'a [u8]),
    /// Four or eight bytes, which nothing that is read here has.
    Fixed,
}

/// How a field begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    /// How long this beginning is.
    pub(crate) size: usize,
}

/// What follows a field's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing: this was it.
    Number(u64),
    /// As many bytes.
    Bytes(usize),
    Fixed(usize),
}

/// Reads how a field begins; `None` if that takes more bytes than there are.
pub(crate) fn head(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let Some((tag, rest)) = varint(bytes)? else { return Ok(None) };
    let number = tag >> 3;
    let number = u32::try_from(number).ok().filter(|number| *number > 0);
    let number = number.ok_or(Malformed::FieldNumber(tag >> 3))?;
    let (kind, rest) = match tag & 7 {
        0 => match varint(rest)? {
            Some((value, rest)) => (Kind::Number(value), rest),
            None => return Ok(None),
        },
        1 => (Kind::Fixed(8), rest),
        2 => match varint(rest)? {
            Some((len, rest)) => {
                // No API server sends anything near this, and lengths may be added up from here on.
                let len = u32::try_from(len).map_err(|_| Malformed::TooLong(len))?;
                (Kind::Bytes(len as usize), rest)
            }
            None => return Ok(None),
        },
        5 => (Kind::Fixed(4), rest),
        other => return Err(Malformed::WireType(other as u8)),
    };
    Ok(Some(Head { number, kind, size: bytes.len() - rest.len() }))
}

/// Reads a number, and gives what comes after it; `None` if it goes on after these bytes.
fn varint(bytes: &[u8]) -> Result<Option<(u64, &[u8])>, Malformed> {
    const LONGEST: usize = 10;
    // As nearly all are.
    if let [byte @ ..0x80, rest @ ..] = bytes {
        return Ok(Some((u64::from(*byte), rest)));
    }
    let mut number = 0;
    for (i, byte) in bytes.iter().take(LONGEST).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * i);
        if *byte < 0x80 {
            return Ok(Some((number, &bytes[i + 1..])));
        }
    }
    if bytes.len() < LONGEST { Ok(None) } else { Err(Malformed::LongNumber) }
}

/// The fields of a whole message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field; `None` after the last one.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let Head { number, kind, size } = head(self.rest)?.ok_or(Malformed::Truncated)?;
        let len = match kind {
            Kind::Number(_) => 0,
            Kind::Bytes(len) | Kind::Fixed(len) => len,
        };
        let body = &self.rest[size..];
        let (body, rest) = body.split_at_checked(len).ok_or(Malformed::Truncated)?;
        self.rest = rest;
        let value = match kind {
            Kind::Number(number) => Value::Number(number),
            Kind::Bytes(_) => Value::Bytes(body),
            Kind::Fixed(_) => Value::Fixed,
        };
        Ok(Some((number, value)))
    }

    /// The bytes of a field, the last one of that number; empty if there is none.
    pub(crate) fn bytes(mut self, wanted: u32) -> Result<&'a [u8], Malformed> {
        let mut found: &[u8] = &[];
        while let Some((number, value)) = self.next()? {
            if let Value::Bytes(bytes) = value
                && number == wanted
            {
                found = bytes;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(message: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Malformed> {
        let mut fields = Fields::of(message);
        let mut all = Vec::new();
        while let Some(field) = fields.next()? {
            all.push(field);
        }
        Ok(all)
    }

    #[test]
    fn a_message_is_its_fields_in_order() {
        // The examples of the encoding's own description, and one of each other kind.
        let message = [
            &[0x08, 0x96, 0x01][..],
            &[0x12, 0x07, b't', b'e', b's', b't', b'i', b'n', b'g'],
            &[0x1d, 1, 2, 3, 4],
            &[0x21, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x28, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        ]
        .concat();
        let want = [
            (1, Value::Number(150)),
            (2, Value::Bytes(b"testing")),
            (3, Value::Fixed),
            (4, Value::Fixed),
            (5, Value::Number(-2i64 as u64)),
        ];
        assert_eq!(all(&message).unwrap(), want);
        assert_eq!(Fields::of(&message).bytes(2), Ok(&b"testing"[..]));
        assert_eq!(Fields::of(&message).bytes(9), Ok(&[][..]));
    }

    #[test]
    fn what_is_wrong_with_a_message_is_told() {
        for (bytes, want) in [
            (&[0x08][..], Malformed::Truncated),
            (&[0x80], Malformed::Truncated),
            (&[0x12, 5, b'a'], Malformed::Truncated),
            (&[0x1d, 1], Malformed::Truncated),
            (&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], Malformed::LongNumber),
            (&[0x00, 1], Malformed::FieldNumber(0)),
            (&[0x0b], Malformed::WireType(3)),
            (&[0x12, 0x80, 0x80, 0x80, 0x80, 0x10], Malformed::TooLong(1 << 32)),
        ] {
            assert_eq!(all(bytes), Err(want), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let _ = all(&bytes);
            let _ = head(&bytes);
        }
    }
}
