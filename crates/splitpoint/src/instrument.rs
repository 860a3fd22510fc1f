//! The instrument: counts the cost of the lookups of a handle.
//!
//! Each of the first 63 threads of a process has a cache line of counters of its own, to which it
//! adds by plain loads and stores; all others share one line. The counters are read while they
//! change, so a reading is not of a single moment, but it includes every lookup that ended before
//! it.
//!
//! # Source
//!
//! Lever, "Linux kernel hash table behavior: analysis and improvements", 2000: his patch counted the
//! lookups, hits and iterations of the kernel's tables. Live tables were his future work.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::index::Lines;
use crate::index::line::{Line, LineNumber};
use crate::linear::BucketIndex;
use crate::stats::Lookups;

/// Lines of counters. The threads beyond share the last.
const PLACE_COUNT: usize = 64;

/// The counters of the lookups of one handle.
#[derive(Debug, Default)]
pub(crate) struct Instrument(Box<[Place]>);

/// The counters of some threads, in a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Place {
    lookups: AtomicU64,
    hits: AtomicU64,
    compared: AtomicU64,
    lines: AtomicU64,
}

impl Instrument {
    pub(crate) fn new() -> Self {
        Self((0..PLACE_COUNT).map(|_| Place::default()).collect())
    }

    /// Adds one lookup, which compared the keys of `compared` records and read `lines` lines.
    pub(crate) fn add(&self, is_hit: bool, compared: u64, lines: u64) {
        let shared = PLACE_COUNT - 1;
        let number = thread_number().min(shared);
        let place = &self.0[number];
        let Place { lookups: lookup_count, hits, compared: compared_count, lines: line_count } =
            place;
        for (counter, count) in [
            (hits, u64::from(is_hit)),
            (compared_count, compared),
            (line_count, lines),
            (lookup_count, 1),
        ] {
            if number == shared {
                counter.fetch_add(count, Ordering::Relaxed);
            } else {
                counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
            }
        }
    }

    /// Returns the sums of all threads.
    pub(crate) fn read(&self) -> Lookups {
        let sum = |of: fn(&Place) -> &AtomicU64| {
            self.0.iter().map(|place| of(place).load(Ordering::Relaxed)).sum()
        };
        Lookups {
            lookup_count: sum(|place| &place.lookups),
            hit_count: sum(|place| &place.hits),
            compared_count: sum(|place| &place.compared),
            line_count: sum(|place| &place.lines),
        }
    }
}

/// Returns a number that no other thread of this process has.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// The lines of a table, with a count of those that a lookup asks for.
#[derive(Debug)]
pub(crate) struct CountedLines<'a, L: ?Sized> {
    lines: &'a L,
    pub(crate) count: Cell<u64>,
}

impl<'a, L: Lines + ?Sized> CountedLines<'a, L> {
    pub(crate) fn of(lines: &'a L) -> Self {
        Self { lines, count: Cell::new(0) }
    }

    fn count_one(&self) {
        self.count.set(self.count.get() + 1);
    }
}

impl<L: Lines + ?Sized> Lines for CountedLines<'_, L> {
    fn shape(&self) -> &crate::atomic::AtomicU64 {
        self.lines.shape()
    }

    fn bucket(&self, bucket: BucketIndex) -> &Line {
        self.count_one();
        self.lines.bucket(bucket)
    }

    fn overflow(&self, line: LineNumber) -> Option<&Line> {
        self.count_one();
        self.lines.overflow(line)
    }

    fn overflow_line_count(&self) -> u64 {
        self.lines.overflow_line_count()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{Db, Options};

    fn instrumented() -> Db {
        Options::new().instrument(true).in_memory().expect("memory is there")
    }

    #[test]
    fn each_kind_of_read_counts_its_keys_once() {
        let db = instrumented();
        for key in 0..1000_u64 {
            db.put(key.to_le_bytes(), b"value").expect("it fits");
        }
        let keys = |range: std::ops::Range<u64>| range.map(u64::to_le_bytes);
        for key in keys(0..500) {
            assert!(db.get(key).expect("it reads").is_some());
            assert!(db.contains(key).expect("it reads"));
            assert!(db.get_into(key, &mut Vec::new()).expect("it reads"));
        }
        assert_eq!(db.get_many(keys(900..1100)).expect("it reads").iter().flatten().count(), 100);
        let lookups = db.stats().expect("it is whole").lookups.expect("it is on");
        assert_eq!((lookups.lookup_count, lookups.hit_count), (1700, 1600));
        assert!(lookups.compared_count >= lookups.hit_count, "a hit has compared its record");
        // A tag of 24 bits or more lets next to no other record through.
        assert!(lookups.compared_count < lookups.hit_count + 20, "{lookups:?}");
        assert!(lookups.line_count >= lookups.lookup_count, "a lookup reads a bucket");
    }

    #[test]
    fn chains_of_chosen_keys_show_in_lines_per_lookup() {
        let db = Options::new().instrument(true).fill_factor(7.0).in_memory().expect("it fits");
        for key in 0..7000_u64 {
            db.put(key.to_le_bytes(), b"").expect("it fits");
        }
        for key in 0..7000_u64 {
            db.get(key.to_le_bytes()).expect("it reads");
        }
        let stats = db.stats().expect("it is whole");
        let lookups = stats.lookups.expect("it is on");
        assert!(
            stats.overflow_line_count > 0,
            "seven keys in a bucket of seven on average overflow"
        );
        assert!(lookups.lines_per_lookup() > 1.05, "{lookups:?}");
    }

    #[test]
    fn threads_lose_no_count_however_many_share_a_line() {
        let db = instrumented();
        db.put("key", "value").expect("it fits");
        std::thread::scope(|scope| {
            for _ in 0..100 {
                scope.spawn(|| {
                    (0..100).for_each(|_| assert!(db.contains("key").expect("it reads")));
                });
            }
        });
        let lookups = db.stats().expect("it is whole").lookups.expect("it is on");
        assert_eq!((lookups.lookup_count, lookups.hit_count), (10_000, 10_000));
    }

    #[test]
    fn a_handle_without_the_instrument_has_no_reading() {
        let db = Db::in_memory().expect("memory is there");
        db.put("key", "value").expect("it fits");
        assert!(db.get("key").expect("it reads").is_some());
        assert_eq!(db.stats().expect("it is whole").lookups, None);
    }

    /// A file of one key, open to write by a handle that counts.
    #[cfg(not(miri))]
    fn counting_writer(path: &std::path::Path) -> Db {
        let db = Options::new().instrument(true).open(path).expect("it opens");
        db.put("key", "value").expect("it fits");
        db
    }

    #[cfg(not(miri))]
    #[test]
    fn a_reader_sees_what_all_that_count_have_looked_up() {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a.spt");
        let writer = counting_writer(&path);
        let watch = Options::new().read_only().open(&path).expect("it opens");
        let seen = || watch.sample(64, 0).expect("it is whole").lookups.expect("it is a file");
        for _ in 0..500 {
            assert!(writer.contains("key").expect("it reads"));
            assert!(!writer.contains("other").expect("it reads"));
        }
        // Until the thread has published them.
        while seen().lookups.lookup_count != 1000 {
            std::thread::yield_now();
        }
        assert_eq!((seen().lookups, seen().is_counting), (writer.lookups().expect("on"), true));

        let before = seen();
        let reader = Options::new().read_only().instrument(true).open(&path).expect("it opens");
        (0..10).for_each(|_| assert!(reader.contains("key").expect("it reads")));
        drop(reader);
        let since = seen().since(&before);
        assert_eq!((since.lookup_count, since.hit_count), (10, 10), "its drop publishes the last");

        writer.contains("key").expect("it reads");
        writer.close().expect("it syncs");
        assert_eq!((seen().lookups.lookup_count, seen().is_counting), (1011, false));
    }

    #[cfg(not(miri))]
    #[test]
    fn nothing_is_counted_unless_somebody_asks_for_it() {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a.spt");
        let writer = Db::open(&path).expect("it opens");
        writer.put("key", "value").expect("it fits");
        let watch = Options::new().read_only().open(&path).expect("it opens");
        (0..10).for_each(|_| assert!(writer.contains("key").expect("it reads")));
        let lookups = watch.sample(64, 0).expect("it is whole").lookups.expect("it is a file");
        assert_eq!((lookups.lookups.lookup_count, lookups.is_counting), (0, false));
    }

    #[cfg(not(miri))]
    #[test]
    fn a_few_counted_lookups_leave_a_closed_file_as_it_is() {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a.spt");
        counting_writer(&path).close().expect("it syncs");
        let before = std::fs::read(&path).expect("it is there");
        let reader = Options::new().read_only().instrument(true).open(&path).expect("it opens");
        assert!(reader.contains("key").expect("it reads"));
        drop(reader);
        assert!(before == std::fs::read(&path).expect("it is there"));
    }

    #[cfg(not(miri))]
    #[test]
    fn a_sample_tells_who_writes() {
        use crate::stats::WriterState;

        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a.spt");
        let writer = counting_writer(&path);
        let state = |db: &Db| db.sample(64, 0).expect("it is whole").writer;
        assert_eq!(state(&writer), WriterState::Writing);
        let watch = Options::new().read_only().open(&path).expect("it opens");
        assert_eq!(state(&watch), WriterState::Writing);
        writer.close().expect("it syncs");
        assert_eq!(state(&watch), WriterState::Closed);
        drop(watch);
        let by_turns =
            Options::new().sharing(crate::Sharing::Shared).open(&path).expect("it opens");
        by_turns.put("another", "value").expect("it fits");
        let watch = Options::new().read_only().open(&path).expect("it opens");
        assert_eq!(state(&watch), WriterState::BetweenTurns);
    }
}
