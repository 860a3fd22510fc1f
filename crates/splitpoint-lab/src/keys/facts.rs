//! Collects facts about keys while they are read.

use std::collections::BTreeMap;

use super::shown::shown;
use crate::study::LengthRow;

/// Most rows of lengths.
const LENGTH_ROWS_MAX: usize = 64;
/// Keys that serve as examples.
const EXAMPLES_MAX: usize = 5;
/// From this length on, lengths share counters: eight for each power of two.
const EXACT_BELOW: u64 = 1024;

/// Counts of keys by length, and examples.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) key_count: u64,
    pub(super) key_bytes: u64,
    /// By class of lengths, so that unbounded lengths take bounded memory.
    lengths: BTreeMap<u64, LengthRow>,
    pub(super) examples: Vec<String>,
}

impl Tally {
    /// Counts a key.
    pub(super) fn add(&mut self, key: &[u8]) {
        let bytes = key.len() as u64;
        self.key_count += 1;
        self.key_bytes += bytes;
        let row = self.lengths.entry(class_of(bytes)).or_insert(LengthRow {
            bytes_min: bytes,
            bytes_max: bytes,
            key_count: 0,
        });
        row.bytes_min = row.bytes_min.min(bytes);
        row.bytes_max = row.bytes_max.max(bytes);
        row.key_count += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(shown(key));
        }
    }

    /// Returns the lengths, joined to ranges where there are too many.
    pub(super) fn lengths(&self) -> Vec<LengthRow> {
        let rows: Vec<LengthRow> = self.lengths.values().copied().collect();
        let per_range = rows.len().div_ceil(LENGTH_ROWS_MAX).max(1);
        let join = |rows: &[LengthRow]| LengthRow {
            bytes_min: rows[0].bytes_min,
            bytes_max: rows[rows.len() - 1].bytes_max,
            key_count: rows.iter().map(|row| row.key_count).sum(),
        };
        rows.chunks(per_range).map(join).collect()
    }
}

fn class_of(bytes: u64) -> u64 {
    if bytes < EXACT_BELOW {
        return bytes;
    }
    let shift = bytes.ilog2() - 3;
    bytes >> shift << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted_and_joined_where_there_are_many() {
        let mut tally = Tally::default();
        for bytes in [3, 3, 5, 1 << 20] {
            tally.add(&vec![b'k'; bytes]);
        }
        let row = |bytes, key_count| LengthRow { bytes_min: bytes, bytes_max: bytes, key_count };
        assert_eq!(tally.lengths(), [row(3, 2), row(5, 1), row(1 << 20, 1)]);
        assert_eq!((tally.key_count, tally.key_bytes), (4, (1 << 20) + 11));
        assert_eq!(tally.examples[3], format!("{}... (1048576 bytes)", "k".repeat(60)));
        for bytes in 0..3000 {
            tally.add(&vec![0; bytes]);
        }
        let rows = tally.lengths();
        assert!((32..=LENGTH_ROWS_MAX).contains(&rows.len()), "{}", rows.len());
        assert_eq!(rows.iter().map(|row| row.key_count).sum::<u64>(), 3004);
        assert!(rows.windows(2).all(|pair| pair[0].bytes_max < pair[1].bytes_min));
    }
}
