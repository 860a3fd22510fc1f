//! Reading the keys that the lab measures on.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

use clap::ValueEnum as _;
use splitpoint_lab::study::{Duplicates, KeyFacts, LengthRow};

use crate::bytes::{decode_hex, shown};
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::number::{count, counted};
use crate::store;

/// How keys are written in a file
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum KeyFormat {
    /// One a line
    #[default]
    Lines,
    /// Ended by NUL bytes
    Nul,
    /// One a line, in hex
    Hex,
    /// Integers of 1 byte
    U8,
    /// Integers of 2 bytes, little-endian
    U16,
    /// Integers of 4 bytes, little-endian
    U32,
    /// Integers of 8 bytes, little-endian
    U64,
    /// Integers of 2 bytes, big-endian
    U16Be,
    /// Integers of 4 bytes, big-endian
    U32Be,
    /// Integers of 8 bytes, big-endian
    U64Be,
    /// The keys of a store
    Store,
}

/// Keys in memory, in the order of the file.
#[derive(Debug)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    spans: Vec<Range<usize>>,
    facts: KeyFacts,
}

/// Rows of lengths.
const LENGTHS_MAX: usize = 64;
/// Keys that are shown.
const EXAMPLES: usize = 5;

impl Keys {
    /// Reads the keys of a file, or of standard input if it is `-`.
    ///
    /// Keys that were there before are left out, exactly, unless `keeps_duplicates`.
    pub(super) fn read(
        path: &Path,
        format: KeyFormat,
        keeps_duplicates: bool,
        console: Console,
    ) -> Result<Self> {
        let mut keys = match format {
            KeyFormat::Store => Self::of_store(path, console)?,
            _ => Self::of_bytes(read_all(path)?, format)
                .map_err(|reason| malformed(path, &reason))?,
        };
        keys.facts.source = path.display().to_string();
        keys.facts.format =
            format.to_possible_value().map_or_else(String::new, |value| value.get_name().into());
        if !keeps_duplicates {
            keys.facts.duplicates = Duplicates::Removed;
            keys.remove_duplicates();
        }
        keys.gather_facts();
        keys.tell(console);
        Ok(keys)
    }

    fn of_store(path: &Path, console: Console) -> Result<Self> {
        let db = store::open_to_read(path, console)?;
        let failed = |error| Failure::using(path, &error);
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        for record in db.scan().map_err(failed)? {
            let record = record.map_err(failed)?;
            let start = bytes.len();
            bytes.extend_from_slice(&record.key);
            spans.push(start..bytes.len());
        }
        Ok(Self { bytes, spans, facts: KeyFacts::default() })
    }

    fn of_bytes(bytes: Vec<u8>, format: KeyFormat) -> Result<Self, String> {
        match format {
            KeyFormat::Lines => Ok(Self::ended_by(bytes, b'\n')),
            KeyFormat::Nul => Ok(Self::ended_by(bytes, b'\0')),
            KeyFormat::Hex => Self::ended_by(bytes, b'\n').decoded(),
            KeyFormat::U8 => Self::of_width(bytes, 1, false),
            KeyFormat::U16 => Self::of_width(bytes, 2, false),
            KeyFormat::U32 => Self::of_width(bytes, 4, false),
            KeyFormat::U64 => Self::of_width(bytes, 8, false),
            KeyFormat::U16Be => Self::of_width(bytes, 2, true),
            KeyFormat::U32Be => Self::of_width(bytes, 4, true),
            KeyFormat::U64Be => Self::of_width(bytes, 8, true),
            KeyFormat::Store => unreachable!("a store is not read as bytes"),
        }
    }

    fn ended_by(bytes: Vec<u8>, end: u8) -> Self {
        let (mut spans, mut facts, mut start) = (Vec::new(), KeyFacts::default(), 0);
        for part in bytes.split_inclusive(|&byte| byte == end) {
            let key = part.strip_suffix(&[end]).unwrap_or(part);
            // NUL-ended keys come from programs, where an empty one is meant.
            if end == b'\n' && (key.is_empty() || key == b"\r") {
                facts.blank_count += 1;
            } else {
                facts.carriage_return_count += u64::from(end == b'\n' && key.ends_with(b"\r"));
                spans.push(start..start + key.len());
            }
            start += part.len();
        }
        Self { bytes, spans, facts }
    }

    fn decoded(self) -> Result<Self, String> {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        for (number, span) in (1_u64..).zip(&self.spans) {
            let digits = self.bytes[span.clone()].trim_ascii();
            let start = bytes.len();
            decode_hex(digits, &mut bytes).map_err(|error| format!("key {number}: {error}"))?;
            spans.push(start..bytes.len());
        }
        let facts = KeyFacts { carriage_return_count: 0, ..self.facts };
        Ok(Self { bytes, spans, facts })
    }

    fn of_width(mut bytes: Vec<u8>, width: usize, is_big_endian: bool) -> Result<Self, String> {
        if !bytes.len().is_multiple_of(width) {
            let length = bytes.len();
            return Err(format!("{length} bytes are not a whole number of {width}-byte integers"));
        }
        if is_big_endian {
            bytes.chunks_mut(width).for_each(<[u8]>::reverse);
        }
        let spans = (0..bytes.len()).step_by(width).map(|start| start..start + width).collect();
        Ok(Self { bytes, spans, facts: KeyFacts::default() })
    }

    fn remove_duplicates(&mut self) {
        let before = self.spans.len();
        let mut seen = HashSet::with_capacity(before);
        self.spans.retain(|span| seen.insert(&self.bytes[span.clone()]));
        self.facts.duplicate_count = count(before - self.spans.len());
    }

    fn gather_facts(&mut self) {
        self.facts.key_count = count(self.spans.len());
        self.facts.key_bytes = count(self.spans.iter().map(Range::len).sum());
        let mut lengths: BTreeMap<u64, u64> = BTreeMap::new();
        for span in &self.spans {
            *lengths.entry(count(span.len())).or_default() += 1;
        }
        let rows: Vec<(u64, u64)> = lengths.into_iter().collect();
        let of_rows = |rows: &[(u64, u64)]| LengthRow {
            bytes_min: rows[0].0,
            bytes_max: rows[rows.len() - 1].0,
            key_count: rows.iter().map(|row| row.1).sum(),
        };
        let per_row = rows.len().div_ceil(LENGTHS_MAX).max(1);
        self.facts.lengths = rows.chunks(per_row).map(of_rows).collect();
        self.facts.examples = self.iter().take(EXAMPLES).map(shown).collect();
    }

    fn tell(&self, console: Console) {
        let KeyFacts { duplicate_count, blank_count, carriage_return_count, .. } = self.facts;
        if duplicate_count > 0 {
            let keys = counted(duplicate_count, "duplicate key");
            console.note(format_args!("{keys} left out"));
        }
        if blank_count > 0 {
            console.note(format_args!("{} left out", counted(blank_count, "blank line")));
        }
        if carriage_return_count > 0 {
            let lines = counted(carriage_return_count, "line");
            console.note(format_args!("{lines} with a carriage return at the end of the key"));
        }
    }

    /// Returns the keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.spans.iter().map(|span| &self.bytes[span.clone()])
    }

    /// Returns what was noticed about them.
    pub(super) fn facts(&self) -> &KeyFacts {
        &self.facts
    }
}

fn read_all(path: &Path) -> Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map_err(|error| Failure::io("read standard input", &error))?;
        return Ok(bytes);
    }
    fs::read(path).map_err(|error| Failure::io(format!("read `{}`", path.display()), &error))
}

fn malformed(path: &Path, reason: &str) -> Failure {
    Failure::new(Exit::Usage, format!("`{}`: {reason}", path.display()))
        .hint("--keys says how keys are written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], format: KeyFormat, expected: &[&[u8]]) -> KeyFacts {
        let keys = Keys::of_bytes(bytes.to_vec(), format).expect("the bytes are keys");
        assert_eq!(keys.iter().collect::<Vec<_>>(), expected);
        keys.facts
    }

    #[test]
    fn lines_are_keys_and_what_is_odd_is_noticed() {
        let facts = check(b"a\r\n\nb\n\r\nlast", KeyFormat::Lines, &[b"a\r", b"b", b"last"]);
        assert_eq!((facts.blank_count, facts.carriage_return_count), (2, 1));
        check(b"a\0\0b", KeyFormat::Nul, &[b"a", b"", b"b"]);
        check(b"", KeyFormat::Lines, &[]);
    }

    #[test]
    fn integers_are_keys_in_little_endian_bytes() {
        check(&[1, 2, 3, 4], KeyFormat::U16, &[&[1, 2], &[3, 4]]);
        check(&[1, 2, 3, 4], KeyFormat::U16Be, &[&[2, 1], &[4, 3]]);
        check(&[1, 2], KeyFormat::U8, &[&[1], &[2]]);
        assert!(Keys::of_bytes(vec![0; 7], KeyFormat::U32).is_err());
    }

    #[test]
    fn hex_is_decoded_or_refused_with_its_key() {
        check(b"00ff\r\n61\n", KeyFormat::Hex, &[&[0, 0xff], b"a"]);
        let error = Keys::of_bytes(b"61\nxy\n".to_vec(), KeyFormat::Hex).unwrap_err();
        assert!(error.starts_with("key 2: "), "{error}");
    }

    #[test]
    fn duplicates_are_removed_and_counted_and_the_order_is_kept() {
        let mut keys = Keys::ended_by(b"b\na\nb\nb\nc\n".to_vec(), b'\n');
        keys.remove_duplicates();
        assert_eq!(keys.iter().collect::<Vec<_>>(), [b"b", b"a", b"c"]);
        assert_eq!(keys.facts.duplicate_count, 2);
    }
}
