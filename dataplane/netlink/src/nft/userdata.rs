//! Userdata: the type, length, value bytes in which nft keeps comments and `typeof`.
//!
//! The kernel stores them unread; nft 1.0.6 prints them, and aborts on a concatenation whose
//! `typeof` is missing (`concat_expr_msort_value`). Lengths are one byte, nothing is padded, and
//! numbers are in host order because nft never meant them to leave the machine.

use super::constants::*;

/// Appends one entry. One too long for its length byte is left out: cut, it would be misread.
pub(crate) fn put(buf: &mut Vec<u8>, kind: u8, value: &[u8]) {
    if let Ok(len) = u8::try_from(value.len()) {
        buf.extend_from_slice(&[kind, len]);
        buf.extend_from_slice(value);
    }
}

pub(crate) fn put_u32(buf: &mut Vec<u8>, kind: u8, value: u32) {
    put(buf, kind, &value.to_ne_bytes());
}

/// Userdata that is only a comment, cut to what nft accepts.
pub(crate) fn comment(kind: u8, text: &str) -> Vec<u8> {
    let mut buf = Vec::new();
    put_comment(&mut buf, kind, text);
    buf
}

/// Appends a comment, NUL-terminated and cut on a character boundary to what nft accepts and to
/// what the kernel's 256 bytes leave. Left out where not one byte of it would fit.
pub(crate) fn put_comment(buf: &mut Vec<u8>, kind: u8, text: &str) {
    let left = NFT_USERDATA_MAXLEN.saturating_sub(buf.len() + 3);
    let cut = text.floor_char_boundary(left.min(NFTNL_UDATA_COMMENT_MAXLEN - 1));
    if cut == 0 {
        return;
    }
    buf.extend_from_slice(&[kind, (cut + 1) as u8]);
    buf.extend_from_slice(&text.as_bytes()[..cut]);
    buf.push(0);
}

/// The value of the first entry of `kind`.
pub(crate) fn find(mut bytes: &[u8], kind: u8) -> Option<&[u8]> {
    while let [k, len, rest @ ..] = bytes {
        let (value, tail) = rest.split_at_checked(usize::from(*len))?;
        if *k == kind {
            return Some(value);
        }
        bytes = tail;
    }
    None
}

/// The comment in an entry of `kind`; none where it is absent or no UTF-8.
pub(crate) fn find_comment(bytes: &[u8], kind: u8) -> Option<&str> {
    std::str::from_utf8(crate::attr::until_nul(find(bytes, kind)?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_cut_on_a_character_boundary() {
        let long = "é".repeat(100);
        let bytes = comment(0, &long);
        assert_eq!(bytes.len(), 2 + 126 + 1);
        assert_eq!(find_comment(&bytes, 0), Some("é".repeat(63).as_str()));
        assert_eq!(comment(0, "hello"), b"\x00\x06hello\x00");
    }

    #[test]
    fn a_comment_never_exceeds_the_kernels_userdata() {
        let mut bytes = vec![0; 200];
        put_comment(&mut bytes, 7, &"x".repeat(127));
        assert_eq!(bytes.len(), NFT_USERDATA_MAXLEN);
    }

    #[test]
    fn a_lying_length_finds_nothing() {
        assert_eq!(find(&[0, 9, 1, 2], 0), None);
        assert_eq!(find(&[0, 1, 5, 3], 3), None);
    }
}
