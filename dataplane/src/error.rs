//! What went wrong with the kernel, and what to do next.

use std::io;

/// A failed read or write of the kernel's tables.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The kernel refused the transaction; nothing landed.
    #[error("the kernel refused {object}{}", detail(.message))]
    Refused {
        /// What it refused, with the Service it belongs to where there is one.
        object: String,
        /// The kernel's own words, if it had any.
        message: Option<String>,
        /// Its errno.
        #[source]
        source: io::Error,
    },
    /// There is nothing to talk to.
    #[error(
        "this kernel has no nf_tables: it needs CONFIG_NF_TABLES, or the module nf_tables loaded \
         (`zoneward check` tells more)"
    )]
    NoNfTables,
    /// The ipvs mode cannot work here.
    #[error(
        "the ipvs mode needs {what}, and this kernel does not have it loaded: run `modprobe {module}` \
         on the node, and name the module in /etc/modules-load.d for the next start, or use the mode \
         nftables"
    )]
    NoIpvs {
        /// What is missing.
        what: String,
        /// The module that brings it.
        module: String,
    },
    /// Somebody changed the ruleset between reading and writing; nothing landed.
    #[error("the ruleset changed while it was compared")]
    Overtaken,
    /// The transaction may have landed or not.
    #[error("cannot talk to the kernel")]
    Socket(#[source] zw_netlink::Error),
    /// The thread that talks to the kernel is gone.
    #[error("the kernel writer has ended")]
    WriterGone,
}

fn detail(message: &Option<String>) -> String {
    message.as_ref().map(|message| format!(" ({message})")).unwrap_or_default()
}

/// What the sync loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing landed, for want of memory: try again, later.
    Retry,
    /// The table is not what we thought: read it back, then decide.
    Resync,
    /// Trying again cannot help.
    Fatal,
}

impl WriteError {
    /// What the sync loop does next.
    pub fn reaction(&self) -> Reaction {
        match self {
            Self::Refused { source, .. } => match source.raw_os_error() {
                // The message says which capability is missing.
                Some(libc_errno::EPERM) => Reaction::Fatal,
                Some(libc_errno::ENOMEM | libc_errno::ENOBUFS) => Reaction::Retry,
                _ => Reaction::Resync,
            },
            Self::Overtaken | Self::Socket(_) => Reaction::Resync,
            Self::WriterGone | Self::NoNfTables | Self::NoIpvs { .. } => Reaction::Fatal,
        }
    }

    /// Missing rights, rather than a table or a kernel that is not as expected.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// The three error numbers that are told apart, the same on every Linux architecture.
mod libc_errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const ENOMEM: i32 = 12;
    pub(super) const ENOBUFS: i32 = 105;
}
