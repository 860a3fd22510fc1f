//! What a file states of itself: how many records it has and how far it goes, to be compared with
//! what is found.
//!
//! None of the old formats marks its end, and a page that is not there reads as an empty one. So a
//! file that was cut at a page boundary looks sound, bucket by bucket. What tells is a number
//! elsewhere:
//!
//! ```text
//! format       states                                         pages that must be there
//! db 1.85,     nkeys; max_bucket, spares, bitmaps             up to the last bucket and the last
//! krb5                                                        bitmap
//! Berkeley DB  max_bucket, spares; last_pgno since version 8  up to the last bucket
//! gdbm         next_block; the count of each bucket           none but those that an address names
//! dbm, sdbm    the bits of the .dir                           up to the highest block that was split
//! ```
//!
//! Overflow pages at the end may be free, and the original does not always write free pages. So we
//! report a missing end with nothing but overflow pages only if a chain leads there.
//!
//! Conversely, pages behind the end that the header states were written after it, because the file
//! was not closed. But a bug of the original also writes pages in wrong places, so we report such
//! pages only if they have a key that the table lacks.

use std::fmt;

use splitpoint::Result;

use crate::Source;
use crate::reader::Fault;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counted {
    /// Pairs, including duplicates of a key.
    Records,
    /// Complete pages of the file.
    Pages,
    /// Complete blocks of a `.pag`.
    Blocks,
    /// Bytes of the file.
    Bytes,
}

impl Counted {
    /// Returns the plural for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Pages => "pages",
            Self::Blocks => "blocks",
            Self::Bytes => "bytes",
        }
    }

    /// Returns the name of the number for an error.
    fn what(self) -> &'static str {
        match self {
            Self::Records => "number of records",
            Self::Pages => "number of pages",
            Self::Blocks => "number of blocks",
            Self::Bytes => "number of bytes",
        }
    }
}

/// The part of a file that states a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StatedBy {
    /// The header, with the bitmaps that belong to it.
    Header,
    /// The `.dir` beside a `.pag`.
    Dir,
    /// The counts in the buckets of a gdbm file, added up.
    Buckets,
}

impl StatedBy {
    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Dir => ".dir",
            Self::Buckets => "buckets",
        }
    }
}

/// A number that the file states and that differs from the one found.
///
/// Fewer than stated: the file was cut short, lost pages, or has a damaged count. More than stated:
/// the file was not closed, and the header does not know of all its pages.
///
/// # Examples
///
/// ```
/// use splitpoint_legacy::{Counted, StatedBy};
///
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("cut.db");
/// let mut bytes = std::fs::read("tests/fixtures/db185-le-512-small.db").unwrap();
/// bytes.truncate(40 * 512);
/// std::fs::write(&path, bytes).unwrap();
/// let file = splitpoint_legacy::open(&path)?;
/// let survey = file.survey()?;
/// let records = survey.discrepancies().find(|one| one.counted == Counted::Records).unwrap();
/// assert_eq!((records.stated_by, records.stated), (StatedBy::Header, 600));
/// assert_eq!(records.found, survey.pair_count);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Discrepancy {
    /// What is counted.
    pub counted: Counted,
    /// Where the file states it.
    pub stated_by: StatedBy,
    /// What the file states.
    pub stated: u64,
    /// What was found.
    pub found: u64,
}

impl Discrepancy {
    pub(crate) fn of_records(stated_by: StatedBy, stated: u64, found: u64) -> Self {
        Self { counted: Counted::Records, stated_by, stated, found }
    }

    /// Returns whether there is less than the file states.
    pub fn is_shortfall(self) -> bool {
        self.found < self.stated
    }
}

impl fmt::Display for Discrepancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { counted, stated_by, stated, found } = *self;
        let verb = if stated_by == StatedBy::Buckets { "state" } else { "states" };
        let (part, counted) = (stated_by.name(), counted.name());
        let counted = if stated == 1 { &counted[..counted.len() - 1] } else { counted };
        write!(f, "the {part} {verb} {stated} {counted}, found {found}")?;
        if !self.is_shortfall() {
            f.write_str(", as after a crash")?;
        }
        Ok(())
    }
}

/// The numbers that a file states, read at the open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stated {
    /// Fewest records of a sound file.
    pub(crate) records: Option<u64>,
    pub(crate) extent: Option<Extent>,
}

impl Stated {
    /// Returns the discrepancy that is certain without a walk over the file.
    pub(crate) fn discrepancy(&self) -> Option<Discrepancy> {
        let extent = self.extent.filter(Extent::is_missing)?;
        Some(extent.discrepancy(extent.stated))
    }

    /// Returns the discrepancy that exists if the table lacks what was written behind the stated
    /// end.
    pub(crate) fn surplus(&self) -> Option<(Extent, Discrepancy)> {
        let extent = self.extent.filter(|extent| extent.has_more)?;
        extent.known.map(|known| (extent, extent.discrepancy(known)))
    }

    /// Returns the discrepancy that exists if something in the file leads beyond its end.
    pub(crate) fn suspicion(&self) -> Option<Discrepancy> {
        let extent = self.extent.filter(|extent| extent.found < extent.stated)?;
        (!extent.is_missing()).then(|| extent.discrepancy(extent.stated))
    }

    /// Returns the fault if records are certainly missing.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let extent = self.extent.filter(Extent::is_missing)?;
        Some(Fault::new(extent.counted.what(), extent.at, extent.stated, extent.found))
    }
}

/// The length of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) counted: Counted,
    pub(crate) stated_by: StatedBy,
    /// Offset of the number, in bytes.
    pub(crate) at: u64,
    /// Bytes of one.
    pub(crate) unit_bytes: u64,
    /// Every sound file has at least this many.
    pub(crate) needed: u64,
    /// A sound file has at least this many if its last pages are in use.
    pub(crate) stated: u64,
    /// Most that the header knows of, if it states that.
    pub(crate) known: Option<u64>,
    /// Complete ones in the file.
    pub(crate) found: u64,
    /// Whether something was written behind those that the header knows of.
    pub(crate) has_more: bool,
}

impl Extent {
    fn is_missing(&self) -> bool {
        self.found < self.needed
    }

    fn discrepancy(&self, stated: u64) -> Discrepancy {
        let Self { counted, stated_by, found, .. } = *self;
        Discrepancy { counted, stated_by, stated, found }
    }
}

/// Returns whether a byte other than 0 is in `from..to`. Holes are not read.
pub(crate) fn has_data(source: &Source, from: u64, to: u64) -> Result<bool> {
    const CHUNK_BYTES: u64 = 1 << 16;
    let mut chunk = vec![0; CHUNK_BYTES as usize];
    let mut offset = source.next_data(from);
    while offset < to {
        let bytes = CHUNK_BYTES.min(to - offset) as usize;
        source.read_at(offset, &mut chunk[..bytes])?;
        if chunk[..bytes].iter().any(|&byte| byte != 0) {
            return Ok(true);
        }
        offset = source.next_data(offset + bytes as u64);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent {
        counted: Counted::Pages,
        stated_by: StatedBy::Header,
        at: 40,
        unit_bytes: 512,
        needed: 10,
        stated: 14,
        known: Some(20),
        found: 14,
        has_more: false,
    };

    fn stated(extent: Extent) -> Stated {
        Stated { records: None, extent: Some(extent) }
    }

    #[test]
    fn a_file_with_all_pages_in_use_is_as_it_states() {
        for found in [14, 17, 20, 30] {
            let stated = stated(Extent { found, ..EXTENT });
            assert_eq!((stated.discrepancy(), stated.suspicion()), (None, None), "{found}");
            assert!(stated.fault().is_none() && stated.surplus().is_none());
        }
    }

    #[test]
    fn overflow_pages_that_are_not_there_are_only_a_suspicion() {
        let stated = stated(Extent { found: 12, ..EXTENT });
        assert_eq!((stated.discrepancy(), stated.fault()), (None, None));
        let suspicion = stated.suspicion().unwrap();
        assert_eq!((suspicion.stated, suspicion.found), (14, 12));
    }

    #[test]
    fn buckets_that_are_not_there_are_certain() {
        let stated = stated(Extent { found: 9, ..EXTENT });
        let discrepancy = stated.discrepancy().unwrap();
        assert_eq!(discrepancy.to_string(), "the header states 14 pages, found 9");
        assert_eq!(stated.suspicion(), None);
        assert_eq!(stated.fault(), Some(Fault::new("number of pages", 40, 14, 9)));
    }

    #[test]
    fn pages_behind_the_known_end_say_that_the_file_was_not_closed() {
        let stated = stated(Extent { found: 30, has_more: true, ..EXTENT });
        let (_, discrepancy) = stated.surplus().unwrap();
        assert!(!discrepancy.is_shortfall());
        assert_eq!(
            discrepancy.to_string(),
            "the header states 20 pages, found 30, as after a crash"
        );
        assert_eq!((stated.discrepancy(), stated.fault()), (None, None));
    }

    #[test]
    fn data_are_found_in_any_chunk_and_only_there() {
        let mut bytes = vec![0; 300_000];
        bytes[200_000] = 1;
        let source = Source::of_bytes(bytes);
        assert!(has_data(&source, 0, 300_000).unwrap());
        assert!(has_data(&source, 200_000, 200_001).unwrap());
        assert!(!has_data(&source, 0, 200_000).unwrap());
        assert!(!has_data(&source, 200_001, 300_000).unwrap());
        assert!(!has_data(&source, 300_000, 300_000).unwrap());
    }
}
