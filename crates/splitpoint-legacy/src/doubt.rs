//! What a survey or a salvage cannot take at face value.

use std::fmt;

use crate::reader::Fault;
use crate::stated::Discrepancy;

/// Something in a file that the library cannot take at face value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// Something breaks the format; a scan loses its content.
    Fault(Fault),
    /// A key is in the file twice, as after a crash during a split. The scan returns the pair that
    /// the original's lookup finds.
    Twice {
        /// The key.
        key: Vec<u8>,
    },
    /// A pair is in a place where the original's lookup misses it. The scan returns it.
    Stray {
        /// The key.
        key: Vec<u8>,
    },
    /// A number that the file states differs from the one found.
    Discrepancy(Discrepancy),
    /// The `.dir` is missing, so nothing states the number of blocks. Missing blocks at the end go
    /// unnoticed.
    UnknownExtent,
    /// The `.dir` of a dbm.dumb table is missing or not readable, so its earlier copy, the `.bak`, was
    /// read. Changes of the last session may be missing.
    EarlierIndex,
    /// The `.dir` of a dbm.dumb table lacks keys that its earlier copy, the `.bak`, lists: they were
    /// deleted, or the program was killed while it wrote the `.dir`. A salvage returns them.
    ShorterIndex {
        /// The number of these keys.
        key_count: u64,
    },
}

impl Doubt {
    /// Returns whether a scan lacks something that the file holds or held.
    pub fn is_loss(&self) -> bool {
        !matches!(self, Self::Stray { .. }) && !self.is_reservation()
    }

    /// Returns whether nothing in the files can settle it, so that a command warns of it and goes
    /// on.
    pub fn is_reservation(&self) -> bool {
        matches!(self, Self::UnknownExtent) || self.is_about_index()
    }

    /// Returns whether the list of the keys may lack some, so that the table must not be replaced
    /// by what it lists unless the user says so.
    pub fn is_about_index(&self) -> bool {
        matches!(self, Self::EarlierIndex | Self::ShorterIndex { .. })
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::Twice { key } => write!(f, "key `{}` is there twice", key.escape_ascii()),
            Self::Stray { key } => {
                write!(f, "key `{}` is where a lookup does not find it", key.escape_ascii())
            }
            Self::Discrepancy(discrepancy) => discrepancy.fmt(f),
            Self::UnknownExtent => {
                f.write_str("there is no .dir, and nothing else states how many blocks there were")
            }
            Self::EarlierIndex => f.write_str(
                "there is no readable .dir, so its earlier copy, the .bak, was read; changes of the last \
                 session may be missing",
            ),
            Self::ShorterIndex { key_count: 1 } => f.write_str(
                "the .dir lacks a key that its earlier copy, the .bak, lists: it was deleted, or \
                 the program was killed; salvage saves its record",
            ),
            Self::ShorterIndex { key_count } => write!(
                f,
                "the .dir lacks {key_count} keys that its earlier copy, the .bak, lists: they were \
                 deleted, or the program was killed; salvage saves their records",
            ),
        }
    }
}
