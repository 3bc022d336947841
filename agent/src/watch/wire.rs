//! Objects as they come over the wire: decoded where they stand in a list or an event, and only what is
//! used of them lives on.

use crate::convert::{Content, Decoded, ObjectId};

/// An object of any kind.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    pub(crate) content: Content,
    /// The server's version of it. They grow with time, and are compared as numbers.
    pub(crate) version: u64,
}

impl From<Decoded> for Wire {
    fn from(Decoded { version, content }: Decoded) -> Self {
        Self { content, version: number(version.as_deref()) }
    }
}

impl Wire {
    /// Who it is.
    pub(crate) fn into_id(self) -> Option<ObjectId> {
        match self.content {
            Content::Good(object, _) => Some(object.id),
            Content::Bad(id, _) => id,
        }
    }
}

/// A server that does not number its versions gives the last word to whoever speaks last.
pub(super) fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
}
