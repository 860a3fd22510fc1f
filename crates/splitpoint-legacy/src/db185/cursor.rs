//! A cursor: a walk over the pairs that a table has, whatever is stored and deleted meanwhile.
//!
//! It goes through the buckets that the table had when it began. A bucket that was split since is read with all
//! that came of it, so no key comes twice, and none is missed.

use std::ops::Range;

use splitpoint::{Error, Result};

use super::addresses::Shape;
use super::overflow::Bits;
use super::store::{Steps, Store};
use super::table::Db185;

/// A place in the pairs of a [`Db185`].
///
/// Every key that the table has from the first call to the last comes exactly once, with the value that it has by
/// then. A key that is stored or deleted meanwhile comes once or not at all.
///
/// # Cost
///
/// Memory for the pairs of one bucket as the table was when the walk began, with all that came of it since.
///
/// # Examples
///
/// ```
/// use splitpoint::TableExt;
/// use splitpoint_legacy::db185::{Cursor, Options};
///
/// # fn main() -> splitpoint::Result<()> {
/// let mut table = Options::new().in_memory()?;
/// table.put("a", "1")?;
/// table.put("b", "2")?;
/// let mut cursor = Cursor::default();
/// while let Some((key, _)) = cursor.next(&mut table)? {
///     let key = key.to_vec();
///     table.delete(&key)?; // The cursor reaches all keys.
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Cursor {
    start: Option<Start>,
    /// The next bucket of the table as it was then.
    bucket: u64,
    ahead: Ahead,
    /// The next pair of those.
    next: usize,
    /// The table and the number of its changes when they were read.
    read_at: Option<(u64, u64)>,
    /// Overflow pages seen since then, so that no page is read for two buckets.
    seen: Bits,
    /// Where the chain of the bucket is damaged, behind its pairs.
    damage: Option<Error>,
    /// Whether the walk has said that the file is too short.
    has_missed_pages: bool,
    /// A value that was read anew.
    value: Vec<u8>,
}

/// The table when the walk began.
#[derive(Debug)]
struct Start {
    shape: Shape,
    /// The buckets that can have held something.
    bucket_count: u64,
}

/// The pairs of one bucket, one behind the other.
#[derive(Debug, Default)]
struct Ahead {
    bytes: Vec<u8>,
    pairs: Vec<Place>,
}

/// Where a pair is: its key ends where its value begins.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: usize,
    value: usize,
    end: usize,
}

impl Place {
    fn key(self) -> Range<usize> {
        self.start..self.value
    }

    fn value(self) -> Range<usize> {
        self.value..self.end
    }
}

impl Cursor {
    /// Returns whether the next pair is in memory, and still what the table has: [`next`](Self::next) reads no file.
    pub fn is_ahead(&self, table: &mut Db185) -> bool {
        let store = table.store_mut();
        self.next < self.ahead.pairs.len() && self.read_at == Some(store.state())
    }

    /// Returns the next pair, or `None` when there are no more.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](splitpoint::ErrorKind::Io), and
    /// [`ErrorKind::Corrupt`](splitpoint::ErrorKind::Corrupt) where the chain of a bucket is damaged, behind the
    /// pairs before the damage. The next call goes on with the next bucket.
    pub fn next(&mut self, table: &mut Db185) -> Result<Option<(&[u8], &[u8])>> {
        let store = table.store_mut();
        store.check_usable()?;
        loop {
            let Some(&place) = self.ahead.pairs.get(self.next) else {
                if let Some(damage) = self.damage.take() {
                    return Err(damage);
                }
                if !self.read_bucket(store) {
                    break;
                }
                continue;
            };
            self.next += 1;
            if self.read_at == Some(store.state()) {
                let bytes = &self.ahead.bytes;
                return Ok(Some((&bytes[place.key()], &bytes[place.value()])));
            }
            // It may have been replaced or deleted since.
            if let Some(value) = store.get(&self.ahead.bytes[place.key()])? {
                self.value = value;
                return Ok(Some((&self.ahead.bytes[place.key()], &self.value)));
            }
        }
        match store.missing().filter(|_| !self.has_missed_pages) {
            Some(missing) => {
                self.has_missed_pages = true;
                Err(missing)
            }
            None => Ok(None),
        }
    }

    /// Reads the pairs of the next bucket, and returns whether there is one.
    fn read_bucket(&mut self, store: &mut Store) -> bool {
        let start = self.start.get_or_insert_with(|| Start {
            shape: store.shape.clone(),
            bucket_count: store.bucket_end(),
        });
        if self.bucket == start.bucket_count {
            return false;
        }
        let bucket = self.bucket as u32;
        self.bucket += 1;
        self.ahead.clear();
        self.next = 0;
        if self.read_at != Some(store.state()) {
            self.read_at = Some(store.state());
            self.seen = Bits::default();
        }
        // The child of a fork has opened a file that its parent's splits have not reached.
        let is_smaller = store.shape.max_bucket < start.shape.max_bucket;
        // Then one bucket is read for several of those that the walk began with.
        let seen = (!is_smaller).then(|| std::mem::take(&mut self.seen));
        let mut steps = Steps { seen, ..store.steps() };
        for part in start.parts_of(bucket, store) {
            steps.left = store.steps().left;
            let read = self.ahead.read(store, part, &mut steps, |store, key| {
                let hash = store.hash_of(key).filter(|_| is_smaller);
                hash.is_none_or(|hash| start.shape.bucket_of(hash) == bucket)
            });
            self.damage = self.damage.take().or(read.err());
        }
        self.seen = steps.seen.unwrap_or_default();
        true
    }
}

impl Ahead {
    fn clear(&mut self) {
        self.bytes.clear();
        self.pairs.clear();
    }

    /// Adds those pairs of a bucket that belong there and that `is_wanted`, up to a damage if there is one.
    fn read(
        &mut self,
        store: &mut Store,
        bucket: u32,
        steps: &mut Steps,
        is_wanted: impl Fn(&Store, &[u8]) -> bool,
    ) -> Result<()> {
        let before = self.pairs.len();
        let visited = store.visit_bucket(bucket, steps, |key, value| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(key);
            self.bytes.extend_from_slice(value);
            let value = start + key.len();
            self.pairs.push(Place { start, value, end: self.bytes.len() });
        });
        // A sync that was interrupted may have left others here, after they had moved.
        let is_there = |key: &[u8]| {
            !store.is_interrupted || store.bucket_of(key).is_none_or(|it| it == bucket)
        };
        let found = self.pairs.split_off(before);
        let keys = found.into_iter().filter(|place| {
            let key = &self.bytes[place.key()];
            is_there(key) && is_wanted(store, key)
        });
        self.pairs.extend(keys);
        visited
    }
}

impl Start {
    /// Returns what has come of a bucket, of which not all need be its own.
    fn parts_of(&self, bucket: u32, store: &Store) -> Vec<u32> {
        let end = store.bucket_end();
        let now = &store.shape;
        if now.max_bucket < self.shape.max_bucket {
            return Vec::from_iter(Some(now.bucket_of(bucket)).filter(|&it| u64::from(it) < end));
        }
        let others = (u64::from(bucket)..end).step_by(1 + self.shape.low_mask as usize);
        others.map(|it| it as u32).filter(|&it| self.shape.bucket_of(it) == bucket).collect()
    }
}
