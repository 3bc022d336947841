//! What can go wrong between us and the kernel, told apart by what the caller must do next.

use std::io;

use crate::nft::OpId;

/// Why a batch or a read failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused the request: nothing of it landed.
    #[error("kernel refused {}: errno {errno}{}", at(.op), text(.message))]
    Refused {
        /// The operation of the batch at fault, where the kernel named one.
        op: Option<OpId>,
        /// The kernel's error number, positive.
        errno: i32,
        /// The kernel's own words, where it gave any.
        message: Option<String>,
    },
    /// The ruleset changed since the generation the batch expected: nothing landed.
    #[error("ruleset generation is not the expected one")]
    StaleGeneration,
    /// The ruleset changed during a dump, or the kernel resized the set dumped, so what was read
    /// may be torn. To be read again.
    #[error("dump interrupted by a change of the ruleset")]
    Interrupted,
    /// Notifications came faster than they were read and some are lost. What there is now is to be
    /// read from the kernel.
    #[error("notifications lost")]
    Overrun,
    /// A system call failed or a reply got lost: whether the request landed is unknown.
    #[error("netlink socket: cannot {action}")]
    Socket {
        /// What was attempted.
        action: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A reply does not follow the format.
    #[error("malformed netlink reply: {what}")]
    Malformed {
        /// The part that does not.
        what: &'static str,
    },
}

fn at(op: &Option<OpId>) -> String {
    op.map_or_else(|| "the request".to_owned(), |op| format!("operation {}", op.0))
}

fn text(message: &Option<String>) -> String {
    message.as_ref().map_or_else(String::new, |m| format!(" ({m})"))
}
