//! The published cost of lookups, in the last place of the reader table, where other processes can
//! read it.
//!
//! All handles that count add to the same words, periodically and never within a lookup. While such
//! a handle is open, it has a shared lock on the byte of the place, so the kernel knows whether
//! anybody counts, even after a process was killed.
//!
//! # Invariants
//!
//! - Two more words count the additions that have begun and those that have ended. A reader that
//!   loads the second before and the first after the counts, and finds them equal, has read only
//!   complete additions.
//! - Nothing depends on the counts. A writer that is alone erases them with the rest of the table.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::byte_locks::{self, LockByte, LockKind};
use super::claim::Claims;
use super::fork::Origin;
use super::neighbours::can_store_to_table;
use super::reader_table::{COUNTS_PLACE, ReaderTable, open_again, since_boot_ns};
use super::reservation::Protection;
use super::shared_file::OtherFile;
use crate::stats::{Lookups, SharedLookups};

/// Words of the place.
const LOOKUPS: usize = 0;
const HITS: usize = 1;
const COMPARED: usize = 2;
const LINES: usize = 3;
const BEGUN: usize = 4;
const ENDED: usize = 5;
const SINCE: usize = 6;

/// How many times to read counts again while an addition is in progress. An addition takes far less
/// time; one that a kill has cut short never ends.
const LOOKS: u32 = 100;

/// The place where a handle adds the cost of its lookups.
#[derive(Debug)]
pub(crate) struct SharedCounts {
    origin: Origin,
    /// A description of its own, which has the lock.
    file: OtherFile,
    table: ReaderTable,
}

impl SharedCounts {
    /// Opens the place of a file that this process has open; `None` if it may not be stored to.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub(super) fn open(file: &File, path: &Path, claims: &Claims) -> io::Result<Option<Self>> {
        let file = open_again(file, path, File::options().read(true).write(true))?;
        let place = LockByte::place(COUNTS_PLACE);
        if !can_store_to_table(&file, claims)
            || !byte_locks::try_lock(&file, place, LockKind::Shared)?
        {
            return Ok(None);
        }
        let table = ReaderTable::map(&file, Protection::ReadWrite)?;
        let counts = Self { origin: Origin::here(), file, table };
        counts.note_beginning();
        Ok(Some(counts))
    }

    /// Adds what lookups have cost.
    pub(crate) fn add(&self, more: &Lookups) {
        self.note_beginning();
        let words = self.table.place(COUNTS_PLACE);
        let add = |word: usize, count| words[word].fetch_add(count, Ordering::SeqCst);
        add(BEGUN, 1);
        add(LOOKUPS, more.lookup_count);
        add(HITS, more.hit_count);
        add(COMPARED, more.compared_count);
        add(LINES, more.line_count);
        add(ENDED, 1);
    }

    /// Notes the time since which there are counts, unless that is noted already: a lone writer may
    /// have erased it.
    fn note_beginning(&self) {
        let since = &self.table.place(COUNTS_PLACE)[SINCE];
        // Another handle may be first.
        let _ = since.compare_exchange(0, since_boot_ns(), Ordering::SeqCst, Ordering::SeqCst);
    }
}

impl Drop for SharedCounts {
    fn drop(&mut self) {
        // Closing the file would unlock its byte, unless a child of a fork has it open.
        if self.origin.is_here() {
            let _ = byte_locks::unlock_all(&self.file);
        }
    }
}

/// Reads the counts in a table of `file`.
pub(super) fn read(table: &ReaderTable, file: &File) -> SharedLookups {
    let words = table.place(COUNTS_PLACE);
    let mut counts = read_once(words);
    for _ in 0..LOOKS {
        if counts.is_whole {
            break;
        }
        std::thread::yield_now();
        counts = read_once(words);
    }
    let is_counting = byte_locks::is_locked(file, LockByte::place(COUNTS_PLACE)).unwrap_or(false);
    SharedLookups { lookups: counts.lookups, is_counting, since_ns: counts.since_ns }
}

#[derive(Debug)]
struct Counts {
    lookups: Lookups,
    since_ns: u64,
    is_whole: bool,
}

fn read_once(words: &[AtomicU64]) -> Counts {
    let load = |word: usize| words[word].load(Ordering::SeqCst);
    let (ended, since_ns) = (load(ENDED), load(SINCE));
    let lookup_count = load(LOOKUPS);
    let lookups = Lookups {
        lookup_count,
        // After an addition that was cut short, the words may disagree: the hits may have been
        // added alone.
        hit_count: load(HITS).min(lookup_count),
        compared_count: load(COMPARED),
        line_count: load(LINES),
    };
    Counts { lookups, since_ns, is_whole: load(BEGUN) == ended }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::super::reader_table::tests::is_free_to_write;
    use super::super::writer_byte::{Claim, Exclusion};
    use super::*;

    fn file() -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.expect("nothing fails");
        file.set_len(16384).expect("nothing fails");
        (dir, file)
    }

    fn open(file: &File) -> SharedCounts {
        SharedCounts::open(file, Path::new("/"), &Claims::default())
            .expect("nothing fails")
            .expect("it is there")
    }

    fn some(lookup_count: u64) -> Lookups {
        let hit_count = lookup_count / 2;
        Lookups { lookup_count, hit_count, compared_count: lookup_count, line_count: lookup_count }
    }

    #[test]
    fn counts_of_handles_add_up_and_their_lock_says_who_counts() {
        let (_dir, file) = file();
        let table = ReaderTable::map(&file, Protection::ReadWrite).expect("nothing fails");
        assert!(!read(&table, &file).is_counting);
        let (first, second) = (open(&file), open(&file));
        first.add(&some(10));
        second.add(&some(4));
        drop(first);
        let found = read(&table, &file);
        assert!(found.is_counting);
        assert_eq!(found.lookups, some(14));
        drop(second);
        let found = read(&table, &file);
        assert!(!found.is_counting);
        assert_eq!(found.lookups, some(14), "what was counted stays");
    }

    #[test]
    fn counts_leave_this_process_its_claims() {
        let (_dir, file) = file();
        let claim = Claim::take(&file, Exclusion::Writers).unwrap().unwrap();
        let looking = file.try_clone().unwrap();
        let is_kept = || !is_free_to_write(&looking);
        assert!(is_kept());
        let open = |claims: Claims| SharedCounts::open(&file, Path::new("/"), &claims).unwrap();
        assert!(open(Claims::without_room()).is_none());
        assert!(is_kept(), "without a place");
        drop(open(Claims::default()).expect("it is there"));
        assert!(is_kept(), "a place that was given up");
        drop(claim);
        assert!(is_free_to_write(&looking));
    }

    #[test]
    fn counts_that_were_erased_begin_anew() {
        let (_dir, file) = file();
        let table = ReaderTable::map(&file, Protection::ReadWrite).expect("nothing fails");
        let counts = open(&file);
        counts.add(&some(10));
        let before = read(&table, &file);
        for word in table.place(COUNTS_PLACE) {
            word.store(0, Ordering::SeqCst);
        }
        // Another moment of the clock.
        std::thread::sleep(std::time::Duration::from_millis(1));
        counts.add(&some(12));
        let after = read(&table, &file);
        assert_eq!(after.since(&before), some(12));
    }

    #[test]
    fn an_addition_that_a_kill_cut_short_is_read_all_the_same() {
        let (_dir, file) = file();
        let table = ReaderTable::map(&file, Protection::ReadWrite).expect("nothing fails");
        let place = table.place(COUNTS_PLACE);
        place[BEGUN].store(1, Ordering::SeqCst);
        place[HITS].store(7, Ordering::SeqCst);
        open(&file).add(&some(2));
        let found = read(&table, &file).lookups;
        assert_eq!((found.lookup_count, found.hit_count), (2, 2), "no more hits than lookups");
    }

    #[test]
    fn additions_are_read_whole() {
        let (_dir, file) = file();
        let table = ReaderTable::map(&file, Protection::ReadWrite).expect("nothing fails");
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let counts = open(&file);
                    (0..20_000).for_each(|_| counts.add(&some(2)));
                    is_over.store(true, Ordering::SeqCst);
                });
            }
            while !is_over.load(Ordering::SeqCst) {
                let counts = read_once(table.place(COUNTS_PLACE));
                let Lookups { lookup_count, hit_count, .. } = counts.lookups;
                assert!(!counts.is_whole || lookup_count == 2 * hit_count, "{counts:?}");
            }
        });
        assert_eq!(read(&table, &file).lookups, some(80_000));
    }
}
