//! Samples the chains of a table in use, without a lock and without stopping the writer.
//!
//! The buckets whose numbers share some low bits form a table of linear hashing themselves, for the
//! keys whose hashes have these bits:
//!
//! ```text
//! five buckets       0   1   2   3   4
//! of low bit 0       0       1       2     three: buckets 0 and 2 are divided here as well
//! ```
//!
//! So their ideal is exactly that of a smaller table, and only a fraction of all splits affects
//! them. A sample is valid if no split has affected it while it was taken; otherwise a smaller one
//! is taken.
//!
//! # Invariants
//!
//! - Nothing of the store is written.

use super::Store;
use crate::atomic::Ordering;
use crate::error::Result;
use crate::index::Lines;
use crate::index::line::SLOT_COUNT;
use crate::index::lookup::for_each_line;
use crate::index::shape::Shape;
use crate::linear::{BucketIndex, Geometry, low_mask};
use crate::options::Access;
use crate::stats::{Occupancy, Recovery, Sample, SharedLookups, WriterState};
use crate::storage::neighbours::Neighbours;
use crate::testing::mutant::{Mutant, is_made};

/// The buckets of a table whose numbers have the same `bits` low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    bits: u32,
    residue: u64,
}

impl Part {
    /// Returns a part of about `bucket_count` buckets at most, and one at least. `which` chooses it.
    fn of(whole: Geometry, bucket_count: u64, which: u64) -> Self {
        let mut bits = 0;
        while bits < whole.level() && whole.bucket_count() >> bits > bucket_count.max(1) {
            bits += 1;
        }
        Self { bits, residue: which & low_mask(bits) }
    }

    /// Returns one in which fewer splits, or none, are to be expected soon: the part opposite, if this one
    /// is near the bucket that is divided next, and otherwise a half.
    fn calmer(self, whole: Geometry, which: u64) -> Self {
        let opposite = self.away_from(whole);
        if opposite != self || self.bits >= whole.level() {
            return opposite;
        }
        let bits = self.bits + 1;
        let residue = self.residue | (which >> self.bits & 1) << self.bits;
        Self { bits, residue }.away_from(whole)
    }

    /// Returns this part, or the one opposite if it is near the bucket that is divided next.
    fn away_from(self, whole: Geometry) -> Self {
        let distance = self.residue.wrapping_sub(whole.bucket_count()) & low_mask(self.bits);
        let quarter = (1 << self.bits) / 4;
        if (quarter..3 * quarter).contains(&distance) || self.bits == 0 {
            return self;
        }
        Self { residue: self.residue ^ 1 << (self.bits - 1), ..self }
    }

    /// Returns its shape in a table that has a bucket of it.
    fn geometry_in(self, whole: Geometry) -> Geometry {
        debug_assert!(self.bits <= whole.level());
        let behind = whole.bucket_count() - self.residue + low_mask(self.bits);
        Geometry::with_bucket_count(behind >> self.bits)
    }

    fn bucket(self, index: u64) -> BucketIndex {
        BucketIndex(index << self.bits | self.residue)
    }
}

/// What a walk over a part has found.
struct Walked {
    part: Part,
    whole: Geometry,
    occupancy: Occupancy,
    bucket_count: u64,
    key_count: u64,
    /// Whether no split or merge of its buckets came between.
    is_valid: bool,
}

impl Store {
    /// Looks at about `bucket_count` buckets; `which` chooses them.
    pub(crate) fn sample(&self, bucket_count: u64, which: u64) -> Result<Sample> {
        self.refuse_reading_in_fork()?;
        let walked = match &self.reader {
            Some(reader) => {
                let _pin = reader.pin(&self.region)?;
                reader.look(&self.region, |lines| walk_valid(lines, bucket_count, which))?
            }
            None => walk_valid(&self.region.windows, bucket_count, which)?,
        };
        let (lsn, state) = self.region.live().committed();
        Ok(Sample {
            writer: self.writer_state()?,
            record_count: state.record_count,
            geometry: walked.whole,
            log_bytes: lsn,
            bucket_count: walked.bucket_count,
            key_count: walked.key_count,
            chains: walked.occupancy.finish(),
            lookups: self.shared_lookups()?,
        })
    }

    /// Returns who writes the store.
    fn writer_state(&self) -> Result<WriterState> {
        let storage = self.region.storage();
        let has_writer = storage.neighbours().is_some_and(Neighbours::has_writer);
        if has_writer || self.access == Access::ReadWrite {
            return Ok(WriterState::Writing);
        }
        let takes_turns = match &self.reader {
            Some(reader) => reader.last_turn(&self.region)?.has_ended(),
            None => false,
        };
        let is_closed = !self.region.live().has_pid();
        Ok(match self.recovery {
            Recovery::Replayed { .. } => WriterState::Killed,
            _ if is_closed => WriterState::Closed,
            _ if takes_turns => WriterState::BetweenTurns,
            _ => WriterState::Killed,
        })
    }

    /// Returns the cost of the lookups of all handles that count theirs; of this handle alone, if
    /// no other can have the file open.
    fn shared_lookups(&self) -> Result<Option<SharedLookups>> {
        if let Some(reader) = &self.reader {
            return reader.shared_lookups(&self.region).map(Some);
        }
        // Without the table, only the lookups of this handle are known.
        let of_all = self.others.as_ref().and_then(|others| others.shared_lookups().ok());
        let of_this =
            self.lookups().map(|lookups| SharedLookups { lookups, is_counting: true, since_ns: 0 });
        Ok(of_all.or(of_this))
    }
}

/// Walks over a part until no split or merge of its buckets comes between.
fn walk_valid(lines: &impl Lines, bucket_count: u64, which: u64) -> Result<Walked> {
    let whole = shape_of(lines).geometry;
    let mut part = Part::of(whole, bucket_count, which);
    loop {
        let walked = walk(lines, part)?;
        match &walked {
            Some(found) if found.is_valid || found.part.bits >= found.whole.level() => {
                return Ok(walked.expect("it was just found"));
            }
            _ => {}
        }
        let whole = shape_of(lines).geometry;
        part = match walked {
            Some(_) => part.calmer(whole, which),
            None => Part::of(whole, bucket_count, which),
        };
    }
}

/// Counts the chains of a part; `None` if the table has become too small to have it.
fn walk(lines: &impl Lines, part: Part) -> Result<Option<Walked>> {
    let whole = shape_of(lines).geometry;
    if part.bits > whole.level() {
        return Ok(None);
    }
    let geometry = part.geometry_in(whole);
    let mut occupancy = Occupancy::new(geometry, SLOT_COUNT as u64);
    let (mut fewest, mut most) = (whole.bucket_count(), whole.bucket_count());
    let (mut key_count, mut keys_per_line) = (0, Vec::new());
    for index in 0..geometry.bucket_count() {
        let bucket = part.bucket(index);
        let Some(now) = count_chain(lines, bucket, &mut keys_per_line)? else { return Ok(None) };
        (fewest, most) = (fewest.min(now), most.max(now));
        key_count += keys_per_line.iter().sum::<u64>();
        occupancy.add_chain(BucketIndex(index), &keys_per_line);
    }
    let [fewest, most] = [fewest, most].map(Geometry::with_bucket_count);
    let is_valid = is_made(Mutant::SamplesAcrossSplits)
        || part.bits <= fewest.level() && part.geometry_in(fewest) == part.geometry_in(most);
    let bucket_count = geometry.bucket_count();
    Ok(Some(Walked { part, whole, occupancy, bucket_count, key_count, is_valid }))
}

/// Counts the keys of each line of a chain, and returns how many buckets the table had; `None` if it has
/// become too small to have this one. Looks again if anything has moved meanwhile.
fn count_chain(
    lines: &impl Lines,
    bucket: BucketIndex,
    keys_per_line: &mut Vec<u64>,
) -> Result<Option<u64>> {
    loop {
        let before = shape_of(lines);
        if bucket.0 >= before.geometry.bucket_count() {
            return Ok(None);
        }
        keys_per_line.clear();
        let walked = for_each_line(lines, bucket, |_, line| keys_per_line.push(line.slot_count()));
        // Its lines count if they are still the same.
        std::sync::atomic::fence(Ordering::Acquire);
        let after = shape_of(lines);
        if before.epoch != after.epoch || walked.is_err() && before != after {
            continue;
        }
        return walked.map(|()| Some(after.geometry.bucket_count()));
    }
}

fn shape_of(lines: &impl Lines) -> Shape {
    Shape::of_word(lines.shape().load(Ordering::Acquire))
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Db;
    use crate::atomic::AtomicU64;
    use crate::index::line::{Line, LineNumber};
    use crate::testing::mutant;

    /// The lines of a table that `change` changes when the `at`-th bucket is looked at.
    struct Changing<'a, L, F> {
        lines: &'a L,
        looks_left: Cell<u64>,
        change: F,
    }

    impl<L: Lines, F: Fn()> Lines for Changing<'_, L, F> {
        fn shape(&self) -> &AtomicU64 {
            self.lines.shape()
        }

        fn bucket(&self, bucket: BucketIndex) -> &Line {
            self.looks_left.set(self.looks_left.get().wrapping_sub(1));
            if self.looks_left.get() == 0 {
                (self.change)();
            }
            self.lines.bucket(bucket)
        }

        fn overflow(&self, line: LineNumber) -> Option<&Line> {
            self.lines.overflow(line)
        }

        fn overflow_line_count(&self) -> u64 {
            self.lines.overflow_line_count()
        }
    }

    fn table(keys: std::ops::Range<u64>) -> Db {
        let db = Db::in_memory().expect("memory is there");
        put(&db, keys);
        db
    }

    fn put(db: &Db, keys: std::ops::Range<u64>) {
        db.put_many(keys.map(|key| (key.to_le_bytes(), ""))).expect("it fits");
    }

    #[test]
    fn a_part_of_a_table_is_a_table_of_linear_hashing() {
        for whole in (1..200).map(Geometry::with_bucket_count) {
            for bits in 0..=whole.level() {
                for residue in 0..1 << bits {
                    let part = Part { bits, residue };
                    let geometry = part.geometry_in(whole);
                    let is_of_part = |bucket: &u64| bucket & low_mask(bits) == residue;
                    let buckets: Vec<u64> = (0..whole.bucket_count()).filter(is_of_part).collect();
                    assert_eq!(buckets.len() as u64, geometry.bucket_count());
                    for hash in (0..512).filter(is_of_part) {
                        let index = geometry.bucket_of(hash >> bits).0;
                        assert_eq!(part.bucket(index), whole.bucket_of(hash), "{part:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_parts_of_a_table_have_all_its_keys() {
        let db = table(0..100_000);
        let whole = db.stats().expect("it is whole");
        let bits = Part::of(whole.geometry, 300, 0).bits;
        assert!(bits > 3, "there are many parts");
        let samples: Vec<Sample> =
            (0..1 << bits).map(|which| db.sample(300, which).expect("it is whole")).collect();
        let sum = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>();
        assert_eq!(sum(|sample| sample.key_count), 100_000);
        assert_eq!(sum(|sample| sample.bucket_count), whole.geometry.bucket_count());
        for sample in &samples {
            assert!(sample.bucket_count <= 301, "{}", sample.bucket_count);
            assert_eq!((sample.record_count, sample.geometry), (100_000, whole.geometry));
            let (found, ideal) = (sample.chains.probes_hit, sample.chains.probes_hit_ideal);
            assert!((found / ideal - 1.0).abs() < 0.1, "{found} beside {ideal}");
        }
    }

    /// Walks while keys are put, or deleted, in the middle of the first walk; returns whether the result is
    /// what a walk over the same part finds afterwards.
    fn is_right_beside(change: &dyn Fn(&Db), which: u64) -> bool {
        let db = table(0..20_000);
        let windows = &db.store().region.windows;
        let (looks_left, change) = (Cell::new(100), || change(&db));
        let lines = Changing { lines: windows, looks_left, change };
        let found = walk_valid(&lines, 200, which).expect("it is whole");
        let again = walk(windows, found.part).expect("it is whole");
        again.is_some_and(|again| (again.whole, again.key_count) == (found.whole, found.key_count))
    }

    fn grow(db: &Db) {
        put(db, 20_000..40_000);
    }

    fn shrink(db: &Db) {
        for key in 0..19_900_u64 {
            assert!(db.delete(key.to_le_bytes()).expect("it is whole"));
        }
    }

    #[test]
    fn a_walk_that_splits_or_merges_have_disturbed_does_not_count() {
        for which in 0..40 {
            assert!(is_right_beside(&grow, which) && is_right_beside(&shrink, which));
        }
    }

    #[test]
    fn a_walk_that_counts_in_spite_of_splits_is_noticed() {
        let is_right = || {
            (0..40).all(|which| is_right_beside(&grow, which) && is_right_beside(&shrink, which))
        };
        assert!(!mutant::with(Mutant::SamplesAcrossSplits, is_right));
    }
}
