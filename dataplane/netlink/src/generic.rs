//! Generic netlink: families have names, and a number that the kernel gives out when they load.
//!
//! Owns the second header of its messages and how a family's number is asked for.

use crate::Error;
use crate::attr::{self, Attrs, malformed};
use crate::exchange::Exchange;
use crate::message::Message;

/// `genlmsghdr`: command, version, reserved.
const HEADER: usize = 4;

/// The one family with a number of its own, which knows the others'.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_VERSION: u8 = 2;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// `genlmsghdr` of one command.
pub(crate) fn header(command: u8, version: u8) -> [u8; HEADER] {
    [command, version, 0, 0]
}

/// The command of a message, and the attributes after it.
pub(crate) fn body<'a>(message: &Message<'a>) -> Result<(u8, Attrs<'a>), Error> {
    let ([command, ..], attrs) = message
        .payload
        .split_first_chunk::<HEADER>()
        .ok_or_else(|| malformed("genlmsghdr cut short"))?;
    Ok((*command, Attrs(attrs)))
}

/// The number of the family with this name; `None` if the kernel has none, or has not loaded its module
/// and cannot.
pub(crate) fn resolve(exchange: &mut Exchange, name: &str) -> Result<Option<u16>, Error> {
    let header = header(CTRL_CMD_GETFAMILY, CTRL_VERSION);
    let seq = exchange.request_with(GENL_ID_CTRL, 0, &header, |buf| {
        attr::put_str(buf, CTRL_ATTR_FAMILY_NAME, name);
    })?;
    match exchange.read_reply(seq, GENL_ID_CTRL, parse_family) {
        Ok(id) => Ok(Some(id)),
        Err(Error::Refused { errno: libc::ENOENT, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn parse_family(message: &Message<'_>) -> Result<u16, Error> {
    for attr in body(message)?.1 {
        let attr = attr?;
        if attr.kind == CTRL_ATTR_FAMILY_ID {
            return attr.host_u16();
        }
    }
    Err(malformed("a family without a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(attributes: &[u8]) -> Vec<u8> {
        [&header(1, CTRL_VERSION)[..], attributes].concat()
    }

    fn parse(payload: &[u8]) -> Result<u16, Error> {
        parse_family(&Message { kind: GENL_ID_CTRL, flags: 0, seq: 0, port: 0, payload })
    }

    #[test]
    fn a_familys_number_is_found_among_its_other_attributes() {
        let mut attributes = Vec::new();
        attr::put_str(&mut attributes, CTRL_ATTR_FAMILY_NAME, "IPVS");
        attr::put_host_u16(&mut attributes, CTRL_ATTR_FAMILY_ID, 0x1c);
        assert_eq!(parse(&answer(&attributes)).expect("well formed"), 0x1c);
    }

    #[test]
    fn an_answer_without_a_number_is_malformed() {
        let mut named = Vec::new();
        attr::put_str(&mut named, CTRL_ATTR_FAMILY_NAME, "IPVS");
        for payload in [answer(&named), answer(&[]), vec![1, 2], answer(&[6, 0, 1, 0, 9])] {
            assert!(matches!(parse(&payload), Err(Error::Malformed { .. })), "{payload:?}");
        }
    }
}
