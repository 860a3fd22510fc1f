//! `Cursor`: a place in the keys of a store, in an order that changes do not disturb.
//!
//! A bucket of a linear-hash table holds the hashes that end in the bits of its number. In the
//! order of the bit-reversed hashes, those hashes are one interval. A split divides an interval and
//! a merge joins two, but no key changes its place in the order: a cursor goes from interval to
//! interval, whatever shape the table has by then.
//!
//! ```text
//! hash, last bit first   000   001   010   011 | 100   101   110   111
//! 5 buckets              |  0  |  4  |    2    |     1     |     3    |
//! 6 buckets              |  0  |  4  |    2    |  1  |  5  |     3    |
//! ```
//!
//! # Source
//!
//! The cursor of Redis's `SCAN` counts in the same order. Unlike in Redis, a half-finished doubling
//! is one table and not two, and the keys of one bucket have an order too, so a walk returns each
//! key once.

use std::cmp::Ordering as Order;

use crate::atomic::{Ordering, fence};
use crate::db::Db;
use crate::error::Result;
use crate::format::Addr;
use crate::index::Lines;
use crate::index::lookup::for_each_line;
use crate::index::shape::Shape;
use crate::linear::{BucketIndex, Geometry};
use crate::log::record::Pair;
use crate::store::Store;
use crate::testing::mutant::{self, Mutant};
use crate::value::Value;

/// Keys that a cursor reads ahead at first, and at most, unless a single bucket has more.
const AHEAD: (usize, usize) = (8, 64);

/// Keys that most buckets of a table have at least, unless many were deleted.
const KEYS_PER_BUCKET_MIN: usize = 4;

/// Size in bytes of the largest value that a cursor reads ahead, and total size of keys and values
/// after which it reads ahead no more values: one bucket may have any number of keys.
const VALUE_AHEAD_BYTES_MAX: usize = 1024;
const AHEAD_BYTES_MAX: usize = 128 << 10;

/// A place in the keys of a [`Db`], in the order of their hashes.
///
/// Unlike a [`Scan`](crate::Scan), a cursor borrows nothing, keeps no old records alive, and can
/// begin after any key. It returns every key that the store has from the first call to the last
/// exactly once, whatever is stored, replaced or deleted meanwhile; even the key returned last may
/// be deleted. It returns a key that is stored or deleted meanwhile once or not at all.
///
/// The order stays the same as long as the store keeps its hash function and seed.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// # let db = splitpoint::Db::in_memory()?;
/// db.put_many((0..1000_u32).map(|i| (i.to_le_bytes(), "")))?;
/// let mut cursor = splitpoint::Cursor::default();
/// while let Some(key) = cursor.next(&db)? {
///     db.delete(key)?; // A store shrinks, and the cursor reaches all keys.
/// }
/// assert!(db.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Cursor {
    /// The bytes of the keys read ahead, one after the other, each followed by its value if that
    /// was read too.
    bytes: Vec<u8>,
    /// Their places, ascending.
    ahead: Vec<Ahead>,
    next: usize,
    /// The key returned last.
    last: Option<usize>,
    /// Whether the program has asked for a value: from then on, values are read with the keys.
    reads_values: bool,
    /// How many keys to read ahead.
    ahead_count: usize,
    /// The place from which to read on, or `None` at the end.
    from: Option<u64>,
    /// The last change of the store before the keys were read.
    seen: Option<LastChange>,
}

/// The number that identifies a store in this process, and its last change.
type LastChange = (u64, (u64, u64));

/// A key that was read ahead, and perhaps its value.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    place: u64,
    start: usize,
    end: usize,
    value_end: Option<usize>,
}

impl Default for Cursor {
    /// Returns a cursor before the first key.
    fn default() -> Self {
        Self::at(0)
    }
}

impl Cursor {
    /// Returns a cursor before the first key whose [place](Db::place_of) is at least `place`.
    pub fn at(place: u64) -> Self {
        Self {
            bytes: Vec::new(),
            ahead: Vec::new(),
            next: 0,
            last: None,
            reads_values: false,
            ahead_count: AHEAD.0,
            from: Some(place),
            seen: None,
        }
    }

    /// Returns a cursor after `key`, which need not exist.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    ///
    /// # Cost
    ///
    /// Reads a few buckets and their keys.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// use splitpoint::Cursor;
    ///
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put_many([("a", "1"), ("b", "2"), ("c", "3")])?;
    /// let first = Cursor::default().next(&db)?.expect("three keys").to_vec();
    /// db.delete(&first)?;
    /// let mut rest = Cursor::after(&db, &first)?;
    /// assert!(rest.next(&db)?.is_some() && rest.next(&db)?.is_some());
    /// assert_eq!(rest.next(&db)?, None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn after(db: &Db, key: &[u8]) -> Result<Self> {
        let place = db.place_of(key);
        let mut cursor = Self::at(place);
        cursor.read_ahead(db)?;
        let Self { bytes, ahead, .. } = &cursor;
        // Keys with equal hashes are in one bucket, so all of them have been read.
        cursor.next = ahead
            .partition_point(|next| (next.place, &bytes[next.start..next.end]) <= (place, key));
        Ok(cursor)
    }

    /// Returns the next key, or `None` when there are no more.
    ///
    /// After `None` the cursor keeps its place: the next call returns keys that were stored after
    /// that place since.
    ///
    /// # Errors
    ///
    /// As [`Db::get`]. After an error the next call tries again.
    ///
    /// # Cost
    ///
    /// Once every 64 keys, reads the buckets and records of the next ones while the writers of this
    /// handle wait. If the store has changed since, each key then costs one lookup, in cache lines
    /// that were just read.
    pub fn next(&mut self, db: &Db) -> Result<Option<&[u8]>> {
        self.last = None;
        loop {
            if self.next == self.ahead.len() {
                if self.from.is_none() {
                    return Ok(None);
                }
                self.read_ahead(db)?;
                continue;
            }
            let Ahead { start, end, .. } = self.ahead[self.next];
            // It may have been deleted since.
            let is_there = self.is_unchanged(db) || db.contains(&self.bytes[start..end])?;
            self.next += 1;
            if is_there {
                self.last = Some(self.next - 1);
                return Ok(Some(&self.bytes[start..end]));
            }
        }
    }

    /// Returns the current value of the key that [`next`](Self::next) returned last, or `None` if
    /// the key was deleted since or the last `next` returned `None`.
    ///
    /// While another thread or process is still making a change, such as a batch, this may return
    /// the old value although [`Db::get`] already returns the new one.
    ///
    /// # Errors
    ///
    /// As [`Db::get`].
    ///
    /// # Cost
    ///
    /// The first call of a walk is a lookup. From then on, values of at most 1,024 bytes are read
    /// with the keys, so a call looks up the key only if the store has changed since or the value
    /// is larger.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put_many((0..1000_u32).map(|i| (i.to_le_bytes(), i.to_string())))?;
    /// let mut cursor = splitpoint::Cursor::default();
    /// let mut digits = 0;
    /// while cursor.next(&db)?.is_some() {
    ///     digits += cursor.value(&db)?.map_or(0, |value| value.len());
    /// }
    /// assert_eq!(digits, 10 + 90 * 2 + 900 * 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn value<'a>(&'a mut self, db: &'a Db) -> Result<Option<Value<'a>>> {
        self.reads_values = true;
        let Some(last) = self.last else { return Ok(None) };
        let Ahead { start, end, value_end, .. } = self.ahead[last];
        match value_end {
            Some(value_end) if self.is_unchanged(db) => {
                Ok(Some(Value::borrowed(&self.bytes[end..value_end])))
            }
            _ => db.get(&self.bytes[start..end]),
        }
    }

    /// Returns whether the store has not changed since the keys were read.
    fn is_unchanged(&self, db: &Db) -> bool {
        self.seen == Some(db.store().last_change()) || mutant::is_made(Mutant::TrustsKeysAhead)
    }

    /// Reads the keys of the next buckets.
    fn read_ahead(&mut self, db: &Db) -> Result<()> {
        self.bytes.clear();
        self.ahead.clear();
        self.next = 0;
        self.last = None;
        let (from, count, reads_values) = (self.from, self.ahead_count, self.reads_values);
        let Some(first) = from else { return Ok(()) };
        self.seen = Some(db.store().last_change());
        let found = db.store().pairs_from(first, count, |place, pair| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(pair.key);
            let end = self.bytes.len();
            let is_read =
                reads_values && pair.value.len() <= VALUE_AHEAD_BYTES_MAX && end < AHEAD_BYTES_MAX;
            let value_end = is_read.then(|| {
                self.bytes.extend_from_slice(pair.value);
                self.bytes.len()
            });
            self.ahead.push(Ahead { place, start, end, value_end });
        });
        if found.is_err() {
            self.ahead.clear();
        }
        let after = found?;
        let bytes = &self.bytes;
        let key = |it: &Ahead| &bytes[it.start..it.end];
        self.ahead.sort_unstable_by(|one, other| match one.place.cmp(&other.place) {
            Order::Equal => key(one).cmp(key(other)),
            order => order,
        });
        self.from = after;
        self.ahead_count = (2 * count).min(AHEAD.1);
        Ok(())
    }
}

impl Db {
    /// Returns the place of `key` in the order of a [`Cursor`], whether the key exists or not.
    ///
    /// Keys with equal hashes share a place; among them the order is that of their bytes.
    pub fn place_of(&self, key: impl AsRef<[u8]>) -> u64 {
        self.store().hash_of(key.as_ref()).reverse_bits()
    }
}

impl Store {
    /// Returns a stamp of the store: two equal stamps, of any stores of this process, mean the same
    /// store with no change finished in between, by this or any other process.
    #[inline]
    fn last_change(&self) -> LastChange {
        (self.number, self.region.live().last_change())
    }

    /// Calls `each` with the pairs from a place on, of at least `count` keys or until the end, bucket by
    /// bucket. Returns the place where the next bucket begins.
    fn pairs_from(
        &self,
        from: u64,
        count: usize,
        mut each: impl FnMut(u64, Pair<'_>),
    ) -> Result<Option<u64>> {
        let region = &self.region;
        let Some(reader) = &self.reader else {
            // While this is held, no record is moved and no space reused.
            let _writer = self.lock_out_others()?;
            return self.pairs_of_lines(&region.windows, from, count, &mut each);
        };
        let _pin = reader.pin(region)?;
        let (pairs, place) = reader.look(region, |lines| {
            let mut pairs = Vec::new();
            let add = &mut |place, pair| pairs.push((place, pair));
            let place = self.pairs_of_lines(lines, from, count, add)?;
            Ok((pairs, place))
        })?;
        for (place, pair) in pairs {
            each(place, pair);
        }
        Ok(place)
    }

    /// Prefetches the first lines of the next `count` buckets from a place on: they are far apart
    /// in memory.
    fn prefetch_buckets(&self, geometry: Geometry, from: u64, count: usize) {
        let mut place = Some(from);
        for _ in 0..count {
            let Some(at) = place else { return };
            let bucket = geometry.bucket_of(at.reverse_bits());
            self.region.windows.prefetch_bucket(bucket);
            place = end_of(geometry, bucket);
        }
    }

    fn pairs_of_lines<'a>(
        &'a self,
        lines: &impl Lines,
        from: u64,
        count: usize,
        each: &mut impl FnMut(u64, Pair<'a>),
    ) -> Result<Option<u64>> {
        // Each bucket, with the place from which on its keys are wanted.
        let mut addrs: Vec<(Addr, u64)> = Vec::with_capacity(count + 8);
        let geometry = Shape::of_word(lines.shape().load(Ordering::Relaxed)).geometry;
        self.prefetch_buckets(geometry, from, 1 + count / KEYS_PER_BUCKET_MIN);
        let mut place = Some(from);
        while let Some(at) = place.filter(|_| addrs.len() < count) {
            place = addrs_of_bucket(lines, at, &mut addrs)?;
        }
        let view = &self.region.view;
        for &(addr, _) in &addrs {
            view.prefetch_record(addr);
        }
        for (addr, at) in addrs {
            let pair = view.pair(addr)?;
            let place = self.hash_of(pair.key).reverse_bits();
            if place >= at {
                each(place, pair);
            }
        }
        Ok(place)
    }
}

/// Adds what the slots of the bucket at a place hold, and returns where the next bucket begins.
///
/// The writer may be another process. It moves slots to another bucket, and lines to another chain,
/// only before it changes the shape.
fn addrs_of_bucket(
    lines: &impl Lines,
    at: u64,
    addrs: &mut Vec<(Addr, u64)>,
) -> Result<Option<u64>> {
    let before = addrs.len();
    loop {
        let shape = lines.shape().load(Ordering::Acquire);
        let geometry = Shape::of_word(shape).geometry;
        let bucket = geometry.bucket_of(at.reverse_bits());
        let walked = for_each_line(lines, bucket, |_, line| {
            addrs.extend(line.slots_in_use().map(|(_, slot)| (slot.addr(), at)));
        });
        fence(Ordering::Acquire);
        if lines.shape().load(Ordering::Relaxed) == shape {
            return walked.map(|()| end_of(geometry, bucket));
        }
        addrs.truncate(before);
    }
}

/// Returns where the interval of a bucket ends and that of the next begins, or `None` for the last.
fn end_of(geometry: Geometry, bucket: BucketIndex) -> Option<u64> {
    let level = geometry.level();
    let is_divided = bucket.0 < geometry.split() || bucket.0 >= 1 << level;
    let bits = level + u32::from(is_divided);
    let start = bucket.0.reverse_bits();
    if bits == 0 { None } else { start.checked_add(1 << (64 - bits)) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::hash::{HashFunction, HashId};
    use crate::options::Options;

    #[test]
    fn intervals_of_buckets_follow_each_other_in_tables_of_every_shape() {
        for bucket_count in 1..200 {
            let geometry = Geometry::with_bucket_count(bucket_count);
            let mut seen = BTreeSet::new();
            let mut place = Some(0_u64);
            while let Some(at) = place {
                let bucket = geometry.bucket_of(at.reverse_bits());
                assert!(seen.insert(bucket), "{bucket:?} of {bucket_count} comes again");
                place = end_of(geometry, bucket);
                let last = place.map_or(u64::MAX, |next| next - 1);
                assert_eq!(geometry.bucket_of(last.reverse_bits()), bucket);
            }
            assert_eq!(seen.len() as u64, bucket_count);
        }
    }

    fn key(i: u32) -> [u8; 4] {
        i.to_le_bytes()
    }

    /// Walks over 2,000 keys while others are stored and deleted so that the table grows and
    /// shrinks. The walk returns each key that stays exactly once.
    fn assert_keys_that_stay_come_once(options: &Options) {
        let db = options.in_memory().expect("nothing fails");
        for i in 0..2000 {
            db.put(key(i), "").expect("nothing fails");
        }
        let mut cursor = Cursor::default();
        let mut came = BTreeSet::new();
        let mut step = 0;
        while let Some(found) = cursor.next(&db).expect("nothing fails") {
            let i = u32::from_le_bytes(*found.first_chunk().expect("nothing fails"));
            assert!(came.insert(i), "key {i} comes twice");
            step += 1;
            for other in 10 * step..10 * step + 10 {
                match step / 100 % 2 {
                    0 => db.put(key(10_000 + other % 5000), "").expect("nothing fails"),
                    _ => drop(db.delete(key(10_000 + other % 5000)).expect("nothing fails")),
                }
            }
            assert!(step < 20_000, "keys that are stored may come, but not for ever");
        }
        assert_eq!(came.range(..2000).count(), 2000);
    }

    #[test]
    fn keys_that_stay_come_once_while_the_table_changes() {
        assert_keys_that_stay_come_once(&Options::new().seed(1));
    }

    /// Returns whether a cursor of `db` still returns keys that it has read ahead and that `db` or
    /// the other handle has deleted since.
    fn deleted_keys_come(db: &Db, other: &Db) -> bool {
        for i in 0..AHEAD.0 as u32 {
            db.put(key(i), "").expect("nothing fails");
        }
        let mut cursor = Cursor::default();
        let first = cursor.next(db).expect("nothing fails").expect("it has keys").to_vec();
        for i in (0..AHEAD.0 as u32).filter(|&i| key(i) != first[..]) {
            assert!(other.delete(key(i)).expect("nothing fails"));
        }
        cursor.next(db).expect("nothing fails").is_some()
    }

    #[test]
    fn a_key_that_was_deleted_since_it_was_read_ahead_does_not_come() {
        let come = || {
            let db = Db::in_memory().expect("nothing fails");
            deleted_keys_come(&db, &db)
        };
        assert!(!come());
        assert!(mutant::with(Mutant::TrustsKeysAhead, come));
    }

    /// Returns whether a cursor of `db` that has read values ahead returns one that `other` has replaced since.
    fn replaced_values_come(db: &Db, other: &Db) -> bool {
        let key_count = 4 * AHEAD.1 as u32;
        for i in 0..key_count {
            other.put(key(i), "old").expect("nothing fails");
        }
        let mut cursor = Cursor::default();
        assert_eq!(cursor.value(db).expect("nothing fails"), None);
        for _ in 0..key_count / 2 {
            assert!(cursor.next(db).expect("nothing fails").is_some());
            assert_eq!(cursor.value(db).expect("nothing fails").expect("it is there"), "old");
        }
        while cursor.next == cursor.ahead.len() || cursor.ahead[cursor.next].value_end.is_none() {
            cursor.next(db).expect("nothing fails").expect("there are more");
        }
        for i in 0..key_count {
            other.put(key(i), "new").expect("nothing fails");
        }
        cursor.next(db).expect("nothing fails").expect("it is there");
        cursor.value(db).expect("nothing fails").expect("it is there") == "old"
    }

    #[test]
    fn a_value_that_was_replaced_since_it_was_read_ahead_does_not_come() {
        let come = || {
            let db = Db::in_memory().expect("nothing fails");
            replaced_values_come(&db, &db)
        };
        assert!(!come());
        assert!(mutant::with(Mutant::TrustsKeysAhead, come));
    }

    #[test]
    fn the_value_of_a_key_is_what_it_has_now_and_none_once_it_is_deleted() {
        let db = Db::in_memory().unwrap();
        let long = vec![7; VALUE_AHEAD_BYTES_MAX + 1];
        db.put_many((0..500).map(|i| (key(i), &long[i as usize % 2..]))).unwrap();
        let mut cursor = Cursor::default();
        let mut count = 0;
        while let Some(found) = cursor.next(&db).unwrap().map(<[u8]>::to_vec) {
            let i = u32::from_le_bytes(*found.first_chunk().unwrap());
            assert_eq!(cursor.value(&db).unwrap().unwrap(), long[i as usize % 2..]);
            assert!(db.delete(&found).unwrap());
            assert_eq!(cursor.value(&db).unwrap(), None);
            db.put(&found, "again").unwrap();
            assert_eq!(cursor.value(&db).unwrap().unwrap(), "again");
            count += 1;
        }
        assert_eq!(count, 500);
    }

    #[test]
    #[cfg(not(miri))]
    fn a_key_that_another_handle_has_deleted_does_not_come() {
        use crate::options::Sharing;
        for sharing in [Sharing::PerCall, Sharing::Shared] {
            let dir = tempfile::tempdir().unwrap();
            let open = || Options::new().sharing(sharing).open(dir.path().join("a")).unwrap();
            assert!(!deleted_keys_come(&open(), &open()));
            assert!(!replaced_values_come(&open(), &open()));
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn a_reader_beside_a_writer_returns_no_value_that_was_replaced() {
        let come = || {
            let dir = tempfile::tempdir().expect("nothing fails");
            let path = dir.path().join("a");
            let writer = Db::open(&path).expect("nothing fails");
            let reader = crate::Options::new().read_only().open(&path).expect("nothing fails");
            replaced_values_come(&reader, &writer)
        };
        assert!(!come());
        assert!(mutant::with(Mutant::TrustsKeysAhead, come));
    }

    #[test]
    fn a_bucket_of_many_keys_is_read_ahead_with_few_of_its_values() {
        let same = HashFunction::user(HashId(0x8000_1a33), "same", |_, _| 0).unwrap();
        let db = crate::Options::new().hash(same).in_memory().unwrap();
        db.put_many((0..500).map(|i| (key(i), vec![i as u8; 1000]))).unwrap();
        let mut cursor = Cursor::default();
        assert_eq!(cursor.value(&db).unwrap(), None);
        let (mut count, mut largest_bytes) = (0, 0);
        while let Some(found) = cursor.next(&db).unwrap() {
            let i = found[0];
            assert_eq!(cursor.value(&db).unwrap().unwrap(), [i; 1000][..]);
            count += 1;
            largest_bytes = largest_bytes.max(cursor.bytes.len());
        }
        assert_eq!(count, 500);
        let bound = AHEAD_BYTES_MAX + VALUE_AHEAD_BYTES_MAX + 500 * 4;
        assert!((AHEAD_BYTES_MAX..bound).contains(&largest_bytes), "{largest_bytes}");
    }

    #[test]
    fn keys_that_were_read_ahead_of_one_store_do_not_come_of_another() {
        let db = || Options::new().seed(1).in_memory().unwrap();
        let (one, other) = (db(), db());
        for i in 0..AHEAD.0 as u32 {
            one.put(key(i), "").unwrap();
            other.put(key(100 + i), "").unwrap();
        }
        let mut cursor = Cursor::default();
        assert!(cursor.next(&one).unwrap().is_some());
        assert_eq!(cursor.next(&other).unwrap(), None);
    }

    #[test]
    fn keys_with_equal_hashes_come_once_too() {
        let parity = |key: &[u8], _| u64::from(key.first().copied().unwrap_or(0) % 2);
        let two = HashFunction::user(HashId::USER_MIN, "parity", parity).unwrap();
        assert_keys_that_stay_come_once(&Options::new().hash(two));
    }

    #[test]
    fn a_cursor_behind_a_key_goes_on_as_the_walk_did_whether_the_key_exists_or_not() {
        let db = Options::new().seed(3).in_memory().unwrap();
        for i in 0..300 {
            db.put(key(i), "").unwrap();
        }
        let mut keys = Vec::new();
        let mut cursor = Cursor::default();
        while let Some(found) = cursor.next(&db).unwrap() {
            keys.push(found.to_vec());
        }
        for (i, found) in keys.iter().enumerate() {
            let next = keys.get(i + 1).map(Vec::as_slice);
            assert_eq!(Cursor::after(&db, found).unwrap().next(&db).unwrap(), next);
            db.delete(found).unwrap();
            assert_eq!(Cursor::after(&db, found).unwrap().next(&db).unwrap(), next);
        }
    }
}
