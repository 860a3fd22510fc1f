//! Verify a store without writing; a report, not an error.

use std::fmt;

/// One damage that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What is broken: a term of the glossary.
    pub what: &'static str,
    /// Where, in bytes from the start of the file.
    pub offset: u64,
    /// What the format asks for there.
    pub expected: u64,
    /// What is there.
    pub found: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, offset, expected, found } = self;
        write!(f, "{what} at byte {offset}: expected {expected:#x}, found {found:#x}")
    }
}

/// What a check looked at and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Records of the log whose checksum was verified.
    pub record_count: u64,
    /// Bytes of the log that were read.
    pub log_bytes: u64,
    /// Buckets and overflow lines that were compared with the log.
    pub line_count: u64,
    /// The first damages found, at most [`CheckReport::DAMAGES_MAX`].
    pub damages: Vec<Damage>,
    /// How many there are in all.
    pub damage_count: u64,
}

impl CheckReport {
    /// Damages that a report lists; the rest are counted.
    pub const DAMAGES_MAX: usize = 1000;

    /// Returns whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0
    }

    /// Notes a damage.
    pub(crate) fn note(&mut self, what: &'static str, offset: u64, expected: u64, found: u64) {
        self.damage_count += 1;
        if self.damages.len() < Self::DAMAGES_MAX {
            self.damages.push(Damage { what, offset, expected, found });
        }
    }
}
