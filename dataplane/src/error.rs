//! What went wrong with the kernel, and what to do next.

use std::io;

use zw_plan::Part;

/// A failed read or write of the kernel's tables.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The kernel refused the transaction; nothing landed.
    #[error("the kernel refused {object}{}", detail(.message))]
    Refused {
        /// What it refused, with the Service it belongs to where there is one.
        object: String,
        /// The same for the planner, where it is a part of the table.
        part: Option<Part>,
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
    /// Nothing landed, for want of memory or time: the same again, later.
    Retry,
    /// The table is not what we thought, or it is unknown what landed: look, then decide.
    Resync,
    /// Nothing landed, because the kernel does not take one part: again without what needs it.
    SetAside,
    /// Trying again cannot help.
    Fatal,
}

impl WriteError {
    /// What the sync loop does next.
    pub fn reaction(&self) -> Reaction {
        use errno::{EACCES, EAGAIN, EBUSY, EEXIST, EINTR, ENOBUFS, ENOENT, ENOMEM, EPERM};
        match self {
            Self::Refused { source, part, .. } => match source.raw_os_error() {
                // The message says which capability is missing.
                Some(EPERM | EACCES) => Reaction::Fatal,
                Some(ENOMEM | ENOBUFS | EINTR | EAGAIN) => Reaction::Retry,
                // Something is gone, there already, or leads elsewhere than we thought.
                Some(ENOENT | EEXIST | EBUSY) => Reaction::Resync,
                _ if part.is_some() => Reaction::SetAside,
                _ => Reaction::Resync,
            },
            Self::Overtaken | Self::Socket(_) => Reaction::Resync,
            Self::WriterGone | Self::NoNfTables | Self::NoIpvs { .. } => Reaction::Fatal,
        }
    }

    /// The part of the table that the kernel refused.
    pub fn part(&self) -> Option<&Part> {
        match self {
            Self::Refused { part, .. } => part.as_ref(),
            _ => None,
        }
    }

    /// Missing rights, rather than a table or a kernel that is not as expected.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// The error numbers that are told apart, the same on every Linux architecture.
mod errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const ENOENT: i32 = 2;
    pub(super) const EINTR: i32 = 4;
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const ENOMEM: i32 = 12;
    pub(super) const EACCES: i32 = 13;
    pub(super) const EBUSY: i32 = 16;
    pub(super) const EEXIST: i32 = 17;
    pub(super) const ENOBUFS: i32 = 105;
}

#[cfg(test)]
mod tests {
    use zw_model::Family;

    use super::*;

    #[test]
    fn each_error_number_has_its_reaction() {
        let reaction = |errno: i32, part: bool| {
            let part = part.then(|| Part::Chain(Family::V4, "cluster-1".into()));
            let source = io::Error::from_raw_os_error(errno);
            WriteError::Refused { object: "x".into(), part, message: None, source }.reaction()
        };
        for (numbers, want) in [
            (&[1, 13][..], Reaction::Fatal),
            (&[4, 11, 12, 105], Reaction::Retry),
            (&[2, 16, 17], Reaction::Resync),
        ] {
            for errno in numbers {
                assert_eq!(
                    (reaction(*errno, true), reaction(*errno, false)),
                    (want, want),
                    "{errno}"
                );
            }
        }
        // EINVAL, ENOSPC, EOPNOTSUPP, ENFILE, ELOOP
        for errno in [22, 28, 95, 23, 40] {
            assert_eq!(reaction(errno, true), Reaction::SetAside);
            assert_eq!(reaction(errno, false), Reaction::Resync);
        }
        assert_eq!(WriteError::Overtaken.reaction(), Reaction::Resync);
        assert_eq!(WriteError::WriterGone.reaction(), Reaction::Fatal);
    }
}
