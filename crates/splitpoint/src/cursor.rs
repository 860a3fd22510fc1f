//! Scans: they return every key of a store with its value, in the order of the file.
//!
//! A scan walks the segments that existed at its moment, up to where the log and the compacted
//! segments ended at that moment, and asks for each record whether it is the [version](crate::store::Versions) of its key. If a
//! segment had no dead records at the moment, all of its records are versions, and the scan skips
//! the index lookup. A scan never visits buckets in order, so splits and merges do not affect it.
//! Exactly one record of a key is its version, so the scan returns each key once.
//!
//! If damaged headers hide segments, the scan follows the log instead, and ends at the damage.

mod hash_order;

pub use hash_order::Cursor;

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::Addr;
use crate::log::record::Pair;
use crate::log::runs::{HeldRuns, RunWalk, Runs};
use crate::log::scan::{LogWalk, Trust};
use crate::stats::Recovery;
use crate::store::{Hold, Places, Store, Versions, Writer};
use crate::testing::mutant::{self, Mutant};
use crate::value::{Entry, Value};

/// Records that a scan reads ahead at a time. Their buckets are prefetched while the scan returns
/// the previous records.
const READ_AHEAD: usize = 16;

/// Iterator over every key of a [`Db`](crate::Db), or of a [`Snapshot`](crate::Snapshot), with its
/// value. All keys and values are of one moment, regardless of concurrent changes.
///
/// After an error, the iterator is exhausted.
#[derive(Debug)]
pub struct Scan<'db> {
    versions: Arc<Versions<'db>>,
    walk: Option<Walk<'db>>,
    /// The parts of the file that held records at the moment.
    runs: Runs,
    /// Whether this scan is the only user of the versions, so that it can release the space that it
    /// has passed.
    is_alone: bool,
    /// Whether entries borrow their bytes, with pins in the memory of this handle.
    is_pinned_here: bool,
    /// Records read ahead; those from `next` on have not been examined yet. No pin protects their
    /// bytes, only the horizon: so the store can give up a scan that is not being advanced.
    ahead: Vec<Candidate<'db>>,
    next: usize,
    /// The records after `ahead`, whose buckets have been prefetched.
    coming: Vec<Candidate<'db>>,
}

/// What a scan reads.
#[derive(Debug)]
enum Walk<'db> {
    /// The segments.
    Runs(RunWalk<'db>),
    /// The log from its start to its end at the moment: for a store whose segments cannot be found.
    Log(LogWalk<'db>),
}

impl<'db> Walk<'db> {
    #[inline]
    fn next_pair(&mut self) -> Result<Option<(Addr, Pair<'db>)>> {
        match self {
            Self::Log(walk) => walk.next_pair(),
            Self::Runs(walk) => walk.next_pair(),
        }
    }

    /// Returns whether the last record is known to be the version of its key, without a lookup in
    /// the index.
    #[inline]
    fn is_held(&self) -> bool {
        matches!(self, Self::Runs(walk) if walk.is_held())
    }
}

/// A record that the scan returns if it is the version of its key.
#[derive(Clone, Copy, Debug)]
struct Candidate<'db> {
    addr: Addr,
    /// `None` if the record is known to be the version.
    hash: Option<u64>,
    pair: Pair<'db>,
}

impl<'db> Scan<'db> {
    /// Begins a scan of this moment, while the caller holds the writer's lock.
    pub(crate) fn new(store: &'db Store, writer: &mut Writer, hold: Hold) -> Result<Self> {
        let versions = Versions::now_locked(store, writer, hold)?;
        let places = versions.find_places(writer)?;
        let scan = Self::of(versions, places)?;
        Ok(Self { is_alone: matches!(scan.walk, Some(Walk::Runs(_))), ..scan })
    }

    /// Begins a scan of the versions of a moment, whose records are at `places`.
    pub(crate) fn of(versions: Arc<Versions<'db>>, places: Places) -> Result<Self> {
        let store = versions.store();
        let view = &store.region.view;
        let (walk, runs) = match places {
            Places::Runs(runs, held) => {
                (Some(Walk::Runs(RunWalk::new(view, runs.clone(), held))), runs)
            }
            Places::Log(start, end) => {
                let walk = LogWalk::new(view, start, Trust::Published, end.lsn)?;
                (walk.map(Walk::Log), Runs::default())
            }
        };
        let is_pinned_here = versions.is_pinned_here();
        let [ahead, coming] = [(); 2].map(|()| Vec::with_capacity(READ_AHEAD));
        Ok(Self { versions, walk, runs, is_alone: false, is_pinned_here, ahead, next: 0, coming })
    }

    /// Begins `part_count` scans of about the same size over the versions of a moment, which
    /// together return every key exactly once.
    pub(crate) fn parts(versions: &Arc<Versions<'db>>, part_count: usize) -> Result<Vec<Self>> {
        let part_count = part_count.max(1);
        let places = match versions.places()? {
            Places::Runs(runs, held) => {
                let parts = cut(&runs, part_count).into_iter();
                parts.map(|runs| Places::Runs(runs, held.clone())).collect()
            }
            // A walk along the log cannot be divided.
            log @ Places::Log(..) => {
                let none =
                    std::iter::repeat_with(|| Places::Runs(Runs::default(), HeldRuns::default()));
                std::iter::once(log).chain(none).take(part_count).collect::<Vec<_>>()
            }
        };
        places.into_iter().map(|places| Self::of(versions.clone(), places)).collect()
    }

    /// Moves on to the records that were read ahead, and reads ahead the next ones. Damage becomes
    /// an error only after the scan has returned the records before it.
    fn read_ahead(&mut self) -> Result<()> {
        std::mem::swap(&mut self.ahead, &mut self.coming);
        self.coming.clear();
        self.next = 0;
        let Self { versions, walk, ahead, coming, .. } = self;
        let store = versions.store();
        if ahead.is_empty() {
            read_some(store, walk, ahead)?;
        }
        // Ignore an error here: the next call meets it again when these records are due.
        let _ = read_some(store, walk, coming);
        Ok(())
    }

    /// Returns whether a record is the version of its key.
    #[inline]
    fn is_version(&self, addr: Addr, hash: u64, key: &[u8]) -> Result<bool> {
        let is_newest = self.versions.store().is_held(hash, addr)?;
        if is_newest { Ok(true) } else { self.was_version(addr, hash, key) }
    }

    /// Asks the index about a record that [`Walk::is_held`] has vouched for, for an assertion. An
    /// error counts as yes: the snapshot may have been given up meanwhile.
    fn is_version_by_index(&self, addr: Addr, key: &[u8]) -> bool {
        let store = self.versions.store();
        // A file that was opened may be damaged in any way, so the assertion holds only for a store
        // that this handle created.
        if store.recovery != Recovery::Created || mutant::is_made(Mutant::TakesAllForVersions) {
            return true;
        }
        let hash = store.hash_of(key);
        self.is_version(addr, hash, key).unwrap_or(true)
    }

    /// Like [`is_version`](Self::is_version), for a record that no slot holds any more.
    #[cold]
    fn was_version(&self, addr: Addr, hash: u64, key: &[u8]) -> Result<bool> {
        let version = self.versions.version_of(key, hash);
        self.versions.check()?;
        Ok(version? == Some(addr))
    }

    /// Returns the parts of the file that held records when the scan began.
    pub(crate) fn runs(&self) -> &[Range<u64>] {
        &self.runs
    }

    /// Returns the next record that is a version. The caller holds a pin or an unbounded horizon,
    /// which keeps the bytes from being overwritten.
    #[inline]
    pub(crate) fn next_current(&mut self) -> Result<Option<(Addr, Pair<'db>)>> {
        if self.next == self.ahead.len() && self.walk.is_none() && self.coming.is_empty() {
            return Ok(None);
        }
        if let Err(error) = self.versions.check() {
            self.end();
            return Err(error);
        }
        loop {
            if self.next == self.ahead.len() {
                let read = self.read_ahead();
                if read.is_err() {
                    self.end();
                }
                read?;
            }
            // Destructured, so that most fields stay in registers.
            let Some(&Candidate { addr, hash, pair }) = self.ahead.get(self.next) else {
                return Ok(None);
            };
            self.next += 1;
            let is_version = match hash {
                Some(hash) => self.is_version(addr, hash, pair.key),
                None => Ok(true),
            };
            debug_assert!(hash.is_some() || self.is_version_by_index(addr, pair.key), "{addr:?}");
            match is_version {
                Ok(true) => {
                    if self.is_alone {
                        self.versions.pass(addr.offset() + 1);
                    }
                    return Ok(Some((addr, pair)));
                }
                Ok(false) => {}
                Err(error) => {
                    self.end();
                    return Err(error);
                }
            }
        }
    }

    /// Returns the next entry of a scan over a file that another process may change.
    #[cold]
    #[inline(never)]
    fn next_beside(&mut self) -> Result<Option<Entry<'db>>> {
        let [key_pin, value_pin] = self.versions.two_pins().inspect_err(|_| self.end())?;
        let Some((_, Pair { key, value })) = self.next_current()? else { return Ok(None) };
        let (key, value) = if self.versions.copies_values() {
            (Value::copied(key)?, Value::copied(value)?)
        } else {
            (Value::pinned(key, key_pin), Value::pinned(value, value_pin))
        };
        Ok(Some(Entry { key, value }))
    }

    /// Ends the scan after an error.
    #[cold]
    fn end(&mut self) {
        self.walk = None;
        self.ahead.clear();
        self.coming.clear();
        self.next = 0;
    }
}

/// Reads the next [`READ_AHEAD`] records and prefetches their buckets. There are fewer at the end
/// of the walk and before a damaged record; a damaged first record is an error.
fn read_some<'db>(
    store: &Store,
    walk: &mut Option<Walk<'db>>,
    records: &mut Vec<Candidate<'db>>,
) -> Result<()> {
    let Some(records_left) = walk else { return Ok(()) };
    while records.len() < READ_AHEAD {
        match records_left.next_pair() {
            Ok(Some((addr, pair))) => {
                let is_held = records_left.is_held();
                let hash = (!is_held).then(|| store.hash_of(pair.key));
                records.push(Candidate { addr, hash, pair });
            }
            Ok(None) => {
                *walk = None;
                break;
            }
            Err(error) if records.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    // Issue the prefetches back to back: each needs a TLB miss resolved, and the processor overlaps
    // these page walks only if little work lies between them. If the table grows meanwhile, the
    // worst case is a useless prefetch.
    let geometry = store.geometry();
    for hash in records.iter().filter_map(|record| record.hash) {
        store.region.windows.prefetch_bucket(geometry.bucket_of(hash));
    }
    Ok(())
}

/// Cuts runs into `part_count` parts of about the same number of bytes.
fn cut(runs: &[Range<u64>], part_count: usize) -> Vec<Runs> {
    let bytes_of = |run: &Range<u64>| run.end - run.start;
    let mut bytes_left: u64 = runs.iter().map(bytes_of).sum();
    let mut rest = runs.iter().peekable();
    let mut parts = Vec::with_capacity(part_count);
    for parts_left in (1..=part_count as u64).rev() {
        let (wanted_bytes, mut part_bytes) = (bytes_left.div_ceil(parts_left), 0);
        let mut part = Vec::new();
        // The last part also takes the trailing runs that have no records yet.
        while (part_bytes < wanted_bytes || parts_left == 1)
            && let Some(run) = rest.next_if(|run| {
                // Rounds to the nearest run: takes a run if at least half of it still fits.
                part_bytes == 0 || part_bytes + bytes_of(run) / 2 <= wanted_bytes || parts_left == 1
            })
        {
            part_bytes += bytes_of(run);
            part.push(run.clone());
        }
        bytes_left -= part_bytes;
        parts.push(part.into());
    }
    debug_assert!(rest.next().is_none(), "the last part has the rest");
    parts
}

impl<'db> Iterator for Scan<'db> {
    type Item = Result<Entry<'db>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if !self.is_pinned_here {
            return self.next_beside().transpose();
        }
        let [key_pin, value_pin] = self.versions.store().region.pins.two();
        match self.next_current() {
            Ok(Some((_, Pair { key, value }))) => Some(Ok(Entry {
                key: Value::pinned(key, key_pin),
                value: Value::pinned(value, value_pin),
            })),
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl std::iter::FusedIterator for Scan<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_every_run_once_and_about_the_same_size() {
        let lengths = [5, 1, 1, 1, 8, 2, 2, 7, 9, 1, 40, 3];
        let runs: Vec<Range<u64>> = lengths
            .iter()
            .enumerate()
            .map(|(i, len)| i as u64 * 100..i as u64 * 100 + len)
            .collect();
        for part_count in 1..20 {
            let parts = cut(&runs, part_count);
            assert_eq!(parts.len(), part_count);
            let joined: Vec<Range<u64>> = parts.iter().flat_map(|part| part.to_vec()).collect();
            assert_eq!(joined, runs, "{part_count}");
        }
        let parts = cut(&runs[..10], 3);
        let bytes = |part: &Runs| part.iter().map(|run| run.end - run.start).sum::<u64>();
        assert!(parts.iter().all(|part| bytes(part).abs_diff(12) < 5), "{parts:?}");
        assert!(cut(&[], 2).iter().all(|part| part.is_empty()));
        // A segment in which no record is yet.
        assert_eq!(cut(&[0..8, 8..16, 64..64], 2)[1].len(), 2);
    }
}

#[cfg(all(test, not(any(loom, miri))))]
mod held_tests {
    use super::*;
    use crate::format::LIVE_OFFSET;
    use crate::{Batch, Db, Options, SimDisk};

    /// Returns the number of segments whose records a scan returns without a lookup in the index,
    /// and the number of all segments.
    fn held_of_all(db: &Db) -> (usize, usize) {
        let scan = db.scan().expect("a scan");
        let Ok(Places::Runs(runs, held)) = scan.versions.places() else { panic!("no segments") };
        assert!(held.iter().all(|held| runs.iter().any(|run| run.start == *held)));
        (held.len(), runs.len())
    }

    fn options() -> Options {
        Options::new().segment_bytes_min(4096).keep_dead_records().seed(7)
    }

    fn put_all(db: &Db, keys: std::ops::Range<u32>) {
        for key in keys {
            db.put(key.to_le_bytes(), [1; 100]).expect("there is room");
        }
    }

    #[test]
    fn a_scan_of_a_table_in_memory_asks_the_index_where_something_is_dead() {
        let db = Options::new().segment_bytes_min(4096).seed(7).in_memory().unwrap();
        put_all(&db, 0..1000);
        let (held, all) = held_of_all(&db);
        assert!(held == all && all > 4, "{held} of {all}");
        put_all(&db, 0..1);
        assert_eq!(held_of_all(&db), (all - 1, all), "the segment of the first record");
        assert!(db.delete(999_u32.to_le_bytes()).unwrap());
        assert_eq!(held_of_all(&db), (all - 2, all), "the segment of the last one");
        assert_eq!(db.scan().unwrap().count(), 999);
    }

    #[test]
    fn a_scan_of_a_file_trusts_the_counts_of_its_own_handle_only() {
        let disk = SimDisk::new();
        let db = disk.open(&options()).unwrap();
        put_all(&db, 0..1000);
        db.close().unwrap();
        let db = disk.open(&options()).unwrap();
        let (held, all) = held_of_all(&db);
        assert!(held == all && all > 4, "nothing is dead in all of the file: {held} of {all}");
        // Now something is dead, and the older segments may have been counted by another handle.
        put_all(&db, 0..1);
        assert_eq!(held_of_all(&db).0, 0);
        put_all(&db, 1000..2000);
        let (held, all_then) = held_of_all(&db);
        assert!(held > 0 && held <= all_then - all, "{held} of {all_then}, {all} are older");
        assert_eq!(db.scan().unwrap().count(), 2000);
        db.close().unwrap();
        let db = disk.open(&options()).unwrap();
        assert_eq!(held_of_all(&db).0, 0);
        assert_eq!(db.scan().unwrap().count(), 2000);
    }

    /// The live header that a killed process leaves has no valid checksum.
    #[test]
    fn a_damaged_count_of_dead_bytes_brings_nothing_back() {
        let disk = SimDisk::new();
        let db = disk.open(&options()).unwrap();
        put_all(&db, 0..1000);
        put_all(&db, 0..1);
        assert!(db.delete(1_u32.to_le_bytes()).unwrap());
        let (mut bytes, state) = (disk.file(), db.store().lock().unwrap().state);
        let dead_bytes = state.dead_bytes.to_le_bytes();
        // In both commit states of the live header, see `live`.
        for at in [208, 272].map(|at| LIVE_OFFSET as usize + at) {
            let was = bytes[at..at + 8].to_vec();
            bytes[at..at + 8].fill(0);
            assert!(
                was == dead_bytes || u64::from_le_bytes(was.try_into().unwrap()) < state.dead_bytes
            );
        }
        let disk = SimDisk::with_file(&bytes);
        for _ in 0..3 {
            let db = disk.open(&options()).unwrap();
            assert_eq!(db.stats().unwrap().dead_bytes, 0);
            assert_eq!(held_of_all(&db).0, 0);
            assert_eq!(db.scan().unwrap().count(), 999);
            db.close().unwrap();
        }
    }

    /// A batch without its COMMIT is in the log, and no slot leads there.
    #[test]
    fn records_that_no_slot_holds_are_not_returned_though_no_byte_counts_as_dead() {
        let disk = SimDisk::new();
        let db = disk.open(&options()).unwrap();
        put_all(&db, 0..1000);
        let (held, all) = held_of_all(&db);
        assert_eq!(held, all);
        // Earlier versions of the library left the count like this.
        db.apply(&Batch::new().put("a", "1").put("b", "2").delete("c")).unwrap();
        db.store().lock().unwrap().state.dead_bytes = 0;
        assert!(held_of_all(&db).0 < all, "the log is longer than its live records");
        db.close().unwrap();
        let db = disk.open(&options()).unwrap();
        assert_eq!(db.stats().unwrap().dead_bytes, 0);
        assert_eq!(held_of_all(&db).0, 0);
        assert_eq!(db.scan().unwrap().count(), 1002);
    }

    #[test]
    fn a_scan_trusts_no_counts_after_an_error_that_left_records() {
        let db = Options::new().segment_bytes_min(4096).seed(7).in_memory().unwrap();
        put_all(&db, 0..1000);
        assert!(held_of_all(&db).0 > 0);
        db.store().lock().unwrap().has_stray_records = true;
        assert_eq!(held_of_all(&db).0, 0);
        assert_eq!(db.scan().unwrap().count(), 1000);
    }

    #[test]
    fn a_scan_of_big_records_asks_the_index_for_all_of_a_file_that_was_opened() {
        let disk = SimDisk::new();
        let db = disk.open(&options()).unwrap();
        put_all(&db, 0..1000);
        db.put("big", vec![7; 50_000]).unwrap();
        db.close().unwrap();
        let db = disk.open(&options()).unwrap();
        assert_eq!(held_of_all(&db).0, 0);
        let parts = db.snapshot().unwrap().scan_parts(3).unwrap();
        assert_eq!(parts.into_iter().map(Iterator::count).sum::<usize>(), 1001);
    }

    #[test]
    fn a_scan_of_a_handle_that_takes_turns_asks_the_index_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let db = options().sharing(crate::Sharing::Shared).open(dir.path().join("a")).unwrap();
        put_all(&db, 0..1000);
        assert_eq!(held_of_all(&db).0, 0, "another handle may have left them wrong");
        assert_eq!(db.scan().unwrap().count(), 1000);
    }
}
