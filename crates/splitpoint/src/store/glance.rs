//! Glances: optimistic lookups without a pin.
//!
//! A handle without locks between calls has no place in the reader table, because a place is a
//! lock; so a pin costs it three system calls. A *glance* needs none. It begins when nobody has a
//! turn, copies what it reads word by word, and is valid only if the turn word is unchanged
//! afterwards (a seqlock):
//!
//! ```text
//! glance  w = turn; if it has not ended: pin
//!         look, copy; fence; if turn is not w: pin
//! turn    turn = begun, another number each time; fence; only then store anything
//! ```
//!
//! # Why it is right
//!
//! - Everything that a lookup reads is stored to only within a turn, or in the session of a writer
//!   of another kind, which begins by storing 0 to that word. So a valid glance has read while
//!   nobody changed the file.
//! - Data read during a change is copied by atomic loads of single words, within the file, and
//!   discarded. No conclusion is drawn from it: not even a size is used that would lead out of the
//!   file.
//! - The file does not become shorter during a glance. Before its first glance a handle increments
//!   a count in the table, and decrements it when it is closed. A writer that wants to truncate the
//!   file first announces itself, then loads this count. One of the two fences comes first: either
//!   the writer sees the count, or the handle sees the writer and does not glance. The handle
//!   reloads the size of the file after it has seen no writer, so it does not read what was
//!   truncated earlier. A handle that ends without a close (killed, by an `exec`, or without its
//!   descriptor) stays in the count until the next boot; until then, free space at the end of the
//!   file is punched out instead of truncated.
//! - A container may have a boot id of its own. A handle that finds counts of another boot respects
//!   them, and does not glance. A handle that opens the file alone erases them; a handle that was
//!   counted there notices this and does not glance any more.

use super::Store;
use crate::index::lookup::find;

/// A key has to be looked up with a pin.
#[derive(Debug)]
pub(super) struct NeedsPin;

impl Store {
    /// Looks up a key without a pin, and returns what `take` makes of its value.
    #[inline]
    pub(super) fn glance<T>(
        &self,
        key: &[u8],
        hash: u64,
        take: impl Fn(&[u8]) -> T,
    ) -> Result<Option<T>, NeedsPin> {
        let (Some(reader), Some(others)) = (&self.reader, &self.others) else {
            return Err(NeedsPin);
        };
        if !reader.is_per_call() || self.instrument.is_some() {
            return Err(NeedsPin);
        }
        let turn = others.glance(|| self.region.see_size().is_ok()).ok_or(NeedsPin)?;
        let view = &self.region.view;
        let found = reader.look(&self.region, |lines| {
            find(lines, hash, |addr| {
                let copy = view
                    .with_copy_of_pair(addr, |pair| (pair.key == key).then(|| take(pair.value)));
                // What cannot be copied ends the look: the outer `Some` is the search's.
                Ok(match copy {
                    Some(None) => None,
                    Some(found) => Some(found),
                    None => Some(None),
                })
            })
        });
        match found {
            Ok(None) if others.is_unchanged(turn) => Ok(None),
            Ok(Some(Some(value))) if others.is_unchanged(turn) => Ok(Some(value)),
            _ => Err(NeedsPin),
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::fs::File;
    use std::path::Path;
    use std::time::Duration;

    use crate::db::Db;
    use crate::error::ErrorKind;
    use crate::options::{Options, Sharing};
    use crate::storage::byte_locks::{self, LockByte, LockKind};
    use crate::storage::reader_table::is_glanced_at;
    use crate::testing::mutant::{self, Mutant};

    fn open(path: &Path) -> Db {
        let options = Options::new().sharing(Sharing::PerCall).lock_timeout(Duration::ZERO);
        options.open(path).expect("nobody keeps it out")
    }

    /// Returns whether what a handle finds at a glance counts although `change` has come meanwhile.
    fn counts_beside(change: impl Fn(&Db, &Db)) -> bool {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        let (db, other) = (open(&path), open(&path));
        db.put("key", "value").expect("nothing fails");
        let others = db.store().others.as_ref().expect("it takes turns");
        let turn = others.glance(|| true).expect("nobody has his turn");
        change(&db, &other);
        others.is_unchanged(turn)
    }

    #[test]
    fn what_was_found_while_others_had_a_turn_does_not_count() {
        let nothing = |_: &Db, _: &Db| {};
        assert!(counts_beside(nothing));
        let of_other = |_: &Db, other: &Db| other.put("key", "value").expect("nothing fails");
        assert!(!counts_beside(of_other));
        assert!(mutant::with(Mutant::TrustsGlances, || counts_beside(of_other)));
        let own = |db: &Db, _: &Db| db.put("key", "value").expect("nothing fails");
        assert!(!counts_beside(own));
        assert!(mutant::with(Mutant::RepeatsTurnWord, || counts_beside(own)));
    }

    #[test]
    fn a_lookup_between_the_turns_of_others_locks_nothing_and_finds_what_they_stored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (db, other) = (open(&path), open(&path));
        let file = File::options().read(true).write(true).open(&path).unwrap();
        for value_bytes in [0, 5, 300, 5_000] {
            other.put("key", vec![7; value_bytes]).unwrap();
            other.put("another", "").unwrap();
            // The file may have become longer, which only a pin lets it see.
            assert!(db.get("key").unwrap().is_some());
            assert!(byte_locks::try_lock(&file, LockByte::PRESENCE, LockKind::Exclusive).unwrap());
            assert_eq!(db.get("key").unwrap().unwrap(), vec![7; value_bytes]);
            assert_eq!(db.get("absent").unwrap(), None);
            byte_locks::unlock_all(&file).unwrap();
        }
        // What is not short, or has a segment of its own, needs a pin.
        for value_bytes in [60_000, 70_000] {
            other.put("key", vec![7; value_bytes]).unwrap();
            assert_eq!(db.get("key").unwrap().unwrap().len(), value_bytes);
        }
    }

    #[test]
    fn a_lookup_in_the_turn_of_another_takes_a_pin() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (db, other) = (open(&path), open(&path));
        db.put("key", "value").unwrap();
        let turn = other.store().lock_out_others().unwrap();
        assert!(db.store().others.as_ref().unwrap().glance(|| true).is_none());
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
        drop(turn);
        let alone = Options::new().open(&path).unwrap();
        assert!(db.store().others.as_ref().unwrap().glance(|| true).is_none());
        alone.put("key", "another").unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), "another");
        alone.close().unwrap();
        let alone = Options::new().sharing(Sharing::Exclusive).open(&path).unwrap();
        assert_eq!(db.get("key").unwrap_err().kind(), ErrorKind::Locked);
        drop(alone);
        assert_eq!(db.get("key").unwrap().unwrap(), "another");
    }

    #[test]
    fn a_handle_does_not_glance_where_those_of_another_boot_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path);
        let file = file.unwrap();
        let count = || {
            let mut count = [0; 4];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut count, 16384 - 8).unwrap();
            u32::from_le_bytes(count)
        };
        let glances = |db: &Db| db.store().others.as_ref().unwrap().glance(|| true).is_some();
        let is_glanced_at = |db: &Db| is_glanced_at(db.store().region.storage());
        let db = open(&path);
        db.put("key", "value").unwrap();
        assert!(glances(&db) && count() == 1);
        std::os::unix::fs::FileExt::write_all_at(&file, b"boot", 16384 - 4).unwrap();
        // Somebody has the file open, so nobody erases it.
        let present = Options::new().sharing(Sharing::Shared).read_only().open(&path).unwrap();
        let beside = open(&path);
        assert!(!glances(&db) && !glances(&beside) && is_glanced_at(&beside));
        assert_eq!(beside.get("key").unwrap().unwrap(), "value");
        drop(beside);
        drop(present);
        drop(db);
        assert_eq!(count(), 1, "of the other boot");
        let alone = open(&path);
        alone.put("key", "another").unwrap();
        assert!(glances(&alone) && count() == 1);
        drop(alone);
        assert_eq!(count(), 0);
    }

    /// Has a handle look and `end`, another one delete what makes the file long; returns whether the file was
    /// cut.
    fn is_cut_after<T>(end: impl Fn(&Path, Db) -> T) -> bool {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        let db = open(&path);
        for i in 0..2_000_u32 {
            db.put(i.to_le_bytes(), [7; 1000]).expect("nothing fails");
        }
        assert!(db.get(5_u32.to_le_bytes()).expect("nothing fails").is_some());
        let _kept = end(&path, db);
        let bytes = || path.metadata().expect("nothing fails").len();
        let before = bytes();
        let alone = Options::new().open(&path).expect("nobody has it");
        alone.clear().expect("nothing fails");
        alone.maintain(u64::MAX).expect("nothing fails");
        alone.close().expect("nothing fails");
        bytes() < before
    }

    #[test]
    fn a_file_is_cut_only_when_nobody_glances_at_it() {
        assert!(is_cut_after(|_, db| drop(db)));
        let is_cut_beside = || is_cut_after(|_, db| db);
        assert!(!is_cut_beside());
        assert!(mutant::with(Mutant::CutsUnderGlances, is_cut_beside));
        // As if its process were killed, before the next boot and after it.
        assert!(!is_cut_after(|_, db| std::mem::forget(db)));
        assert!(is_cut_after(|path, db| {
            std::mem::forget(db);
            let file = File::options().write(true).open(path).expect("it is there");
            let boot = 16384 - 4;
            std::os::unix::fs::FileExt::write_all_at(&file, b"boot", boot).expect("nothing fails");
        }));
    }
}
