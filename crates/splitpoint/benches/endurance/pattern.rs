//! What each change of a pattern is, by its number, and how many were made.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::Run;
use super::support::mix;

const VALUE_BYTES: usize = 100;
const BIG_BYTES_MAX: u64 = 64 << 10;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    Uniform,
    Skewed,
    Queue,
    Sawtooth,
    Mixed,
}

/// A change of the record whose key has a number.
pub(crate) enum Change {
    /// A put of a value of so many bytes.
    Put(u64, usize),
    Delete(u64),
}

impl Change {
    pub(crate) fn key_number(&self) -> u64 {
        match *self {
            Self::Put(key_number, _) | Self::Delete(key_number) => key_number,
        }
    }
}

/// Makes `value` the one of `value_bytes` that change `number` stores, which tells the number.
pub(crate) fn fill(value: &mut Vec<u8>, number: u64, value_bytes: usize) {
    value.clear();
    while value.len() < value_bytes {
        value.extend_from_slice(&number.to_le_bytes());
    }
    value.truncate(value_bytes);
}

impl Pattern {
    pub(crate) const ALL: [Self; 5] =
        [Self::Uniform, Self::Skewed, Self::Queue, Self::Sawtooth, Self::Mixed];

    /// Returns how many records there are at first, where `records` are asked for.
    pub(crate) fn records(self, records: u64) -> u64 {
        match self {
            Self::Uniform | Self::Skewed | Self::Queue => records,
            Self::Sawtooth | Self::Mixed => records / 10,
        }
    }

    /// Returns change `number`; the first `records` of them store the first keys.
    pub(crate) fn change(self, records: u64, number: u64) -> Change {
        let Some(step) = number.checked_sub(records) else {
            return Change::Put(number, VALUE_BYTES);
        };
        let random = mix(step);
        let put = |key_number| Change::Put(key_number, VALUE_BYTES);
        match self {
            Self::Skewed => {
                let is_hot = random >> 32 & 0xff < 205;
                put(random % if is_hot { records / 5 } else { records })
            }
            Self::Queue if step.is_multiple_of(2) => put(records + step / 2),
            Self::Queue => Change::Delete(step / 2),
            Self::Sawtooth => match step % (18 * records) {
                rising if rising < 9 * records => put(records + rising),
                falling => Change::Delete(19 * records - 1 - falling),
            },
            Self::Mixed if (random >> 32).is_multiple_of(64) => {
                // All tell their number.
                let value_bytes = ((random >> 40) % BIG_BYTES_MAX).max(8);
                Change::Put(random % records, value_bytes as usize)
            }
            Self::Uniform | Self::Mixed => put(random % records),
        }
    }

    /// Returns how many records there are after `count` changes.
    pub(crate) fn record_count(self, records: u64, count: u64) -> u64 {
        let Some(step) = count.checked_sub(records) else { return count };
        match self {
            Self::Uniform | Self::Skewed | Self::Mixed => records,
            Self::Queue => records + step % 2,
            Self::Sawtooth => {
                let at = step % (18 * records);
                records + at.min(18 * records - at)
            }
        }
    }
}

/// How many changes were made, noted in a file now and then.
pub(crate) struct Count {
    file: File,
    count: u64,
}

impl Count {
    /// Changes between two notes.
    pub(crate) const STEP: u64 = 64;

    /// Opens the count at `path` of a store that has `records` at first.
    pub(crate) fn open(path: &Path, records: u64) -> Run<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let mut words = [[0; 8]; 2];
        // A file that is shorter has no count yet.
        _ = file.read_at(words.as_flattened_mut(), 0)?;
        let [count, earlier] = words.map(u64::from_le_bytes);
        if earlier != 0 && earlier != records {
            let path = path.display();
            return Err(format!("{path} is of {earlier} records, not {records}").into());
        }
        file.write_all_at(&records.to_le_bytes(), 8)?;
        Ok(Self { file, count })
    }

    pub(crate) fn get(&self) -> u64 {
        self.count
    }

    pub(crate) fn set(&mut self, count: u64) -> Run {
        self.count = count;
        if count.is_multiple_of(Self::STEP) {
            self.file.write_all_at(&count.to_le_bytes(), 0)?;
        }
        Ok(())
    }
}
