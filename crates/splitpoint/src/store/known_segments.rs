//! `KnownSegments`: the list of segments with records that a handle by turns caches from its own
//! last turn.
//!
//! A snapshot beside other processes needs the list of segments with records of its moment. To get
//! it from the file, it must [look at every segment](Store::find_segments_beside). A handle that
//! had the last turn need not:
//!
//! ```text
//! turn      ends: the word; then the list of before stays if the segment table has the same version
//! snapshot  pin; w = word of the turns, ended and own; the list of w, or made from the own table
//!           load the commit; fence; if the word is not w: look at the file instead
//! ```
//!
//! So the cost of a transaction that follows a change of the same handle does not depend on the
//! number of segments. The list is rebuilt when the handle has begun, emptied or ended a segment;
//! each big record has one, and the headers of those that are not dead are read. A handle still
//! looks at the file while its writer is locked, and before its first change of a file without a
//! segment table.
//!
//! # Why it is right
//!
//! - Segments begin, are emptied and end only within turns, and each turn leaves a different word,
//!   even one of the same handle. So while the word is w, the file has the segments and the commit
//!   that this turn has left, which is what a look at the file would find. A writer that takes no
//!   turns leaves the word 0.
//! - The loaded commit is used only if the word is unchanged afterwards. A handle that begins a
//!   turn stores the word first, then executes a fence, as for [glances](super::glance).
//! - The argument of [`moments`](crate::moments) requires a pin taken before the commit was loaded,
//!   and a list without the segments emptied until then. The pin is older than the load of the
//!   word, and segments emptied before w are not in the list, whenever it was built. Segments
//!   emptied later are emptied in a turn that begins at the commit of the moment or after it.
//! - Within the listed segments, later records are recognized by the two heads of the moment: they
//!   are appended after these heads, or in segments that are not in the list.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use super::turns::Turns;
use super::{Store, Writer};
use crate::format::SegmentHeader;
use crate::live::CommitState;
use crate::log::runs::{Runs, run_at};
use crate::storage::reader_table::TurnWord;
use crate::testing::meanwhile::{self, Point};
use crate::testing::mutant::{self, Mutant};

/// The segments with records at the end of a turn.
#[derive(Debug)]
pub(super) struct KnownSegments {
    /// The version of the segment table.
    version: u64,
    /// From the first record of each to its end, in the order of the file.
    segments: Runs,
}

/// Where the records of a moment were.
#[derive(Clone, Debug)]
pub(super) struct PlacesThen {
    segments: Runs,
    /// What was appended later to the segments of the two heads.
    rests: [Range<u64>; 2],
}

impl PlacesThen {
    /// Returns the places of a look at the file.
    pub(super) fn of_runs(runs: Runs) -> Self {
        Self { segments: runs, rests: [0..0, 0..0] }
    }

    /// Returns the places of a commit in `segments`, all of which had been begun; `None` if a head is in
    /// none of them.
    fn of_commit(segments: Runs, state: &CommitState) -> Option<Self> {
        let heads =
            [(state.tail_segment, state.tail_offset), (state.head_segment, state.head_offset)];
        let mut rests = [0..0, 0..0];
        for (rest, (segment_offset, offset)) in rests.iter_mut().zip(heads) {
            if segment_offset != 0 {
                let run = run_at(&segments, segment_offset + SegmentHeader::BYTES)?;
                *rest = offset..run.end;
            }
        }
        Some(Self { segments, rests })
    }

    /// Returns whether a record at `offset` was there.
    #[inline]
    pub(super) fn has(&self, offset: u64) -> bool {
        run_at(&self.segments, offset).is_some()
            && !self.rests.iter().any(|rest| rest.contains(&offset))
    }

    /// Returns where the records were, without what was appended later.
    pub(super) fn to_runs(&self) -> Runs {
        if self.rests.iter().all(Range::is_empty) {
            return self.segments.clone();
        }
        let end_of = |run: &Range<u64>| {
            let rest = self.rests.iter().find(|rest| !rest.is_empty() && rest.end == run.end);
            rest.map_or(run.end, |rest| rest.start)
        };
        self.segments.iter().map(|run| run.start..end_of(run)).collect()
    }
}

impl Store {
    /// Notes the last commit in `looking` and returns where its records are, if this handle had the last
    /// turn. The caller has a pin.
    pub(super) fn places_of_own_turn(&self, looking: &mut Writer) -> Option<PlacesThen> {
        let turns = self.turns.as_deref()?;
        let word = self.others.as_deref()?.turn().ok().filter(|word| word.has_ended())?;
        let segments = turns.known_segments(word).or_else(|| self.learn_segments(turns, word))?;
        meanwhile::at(Point::ListKnown);
        self.note_commit(looking);
        let places = PlacesThen::of_commit(segments, &looking.state)?;
        self.is_last_turn(word).then_some(places)
    }

    /// Returns whether nobody had begun a turn since that of `word` when the caller has read what it has.
    fn is_last_turn(&self, word: TurnWord) -> bool {
        fence(Ordering::Acquire);
        self.others.as_ref().is_some_and(|others| others.turn().is_ok_and(|last| last == word))
            || mutant::is_made(Mutant::CountsListsAnyway)
    }

    /// Makes the list of the segments with records from the own table, if the last turn was that of `word`.
    fn learn_segments(&self, turns: &Turns, word: TurnWord) -> Option<Runs> {
        // A change of another thread may be waiting for its turn.
        let writer = self.writer.try_lock().ok()?;
        if writer.turn.word != word {
            return None;
        }
        let version = writer.extents.segments()?.version();
        let segments = writer.segments_of_commit(&self.region.live().committed())?;
        meanwhile::at(Point::ListMade);
        if !self.is_last_turn(word) {
            return None;
        }
        turns.set_known_segments(KnownSegments { version, segments: segments.clone() });
        Some(segments)
    }
}

impl KnownSegments {
    /// Returns whether a table of that version has the same segments.
    pub(super) fn is_of(&self, version: Option<u64>) -> bool {
        version == Some(self.version)
    }

    pub(super) fn segments(&self) -> Runs {
        self.segments.clone()
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::db::Db;
    use crate::format::SegmentHeader;
    use crate::options::{Options, Sharing};
    use crate::segments::{SegmentUse, TableSegment};
    use crate::testing::meanwhile::{self, Point};
    use crate::testing::mutant::{self, Mutant};

    fn open(path: &Path) -> Db {
        let options = Options::new().sharing(Sharing::Shared).segment_bytes_min(4096);
        options.live_share(0.9).checkpoint_bytes_min(16 << 10).open(path).expect("nothing fails")
    }

    /// Returns whether the list of a handle, if it has one, is what a look at the file finds; `None` without
    /// a list.
    fn is_list_right(db: &Db) -> Option<bool> {
        let store = db.store();
        let reader = store.reader.as_ref().expect("it reads between its turns");
        let _pin = reader.pin(&store.region).expect("nothing fails");
        let mut looking = store.lock_to_look().expect("nothing fails");
        let known = store.places_of_own_turn(&mut looking)?;
        let commit = (looking.log.position(), looking.state);
        store.find_segments_beside(&mut looking).expect("nothing fails");
        let found = store.runs_beside(&looking).expect("nothing fails");
        let is_same_commit = commit == (looking.log.position(), looking.state);
        Some(is_same_commit && known.to_runs() == found)
    }

    /// Returns whether a look at the file counts a big record as there that was marked as dead before the
    /// noted commit, if the change behind that, or the one behind that one, replaces it.
    fn counts_a_dead_big(is_next: bool) -> bool {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        let (db, other) = (open(&path), open(&path));
        (0..200_u32).for_each(|i| db.put((i % 20).to_le_bytes(), [7; 300]).expect("nothing fails"));
        db.maintain(u64::MAX).expect("nothing fails");
        db.put("big", [7; 9_000]).expect("nothing fails");
        let store = other.store();
        let reader = store.reader.as_ref().expect("it reads between its turns");
        let _pin = reader.pin(&store.region).expect("nothing fails");
        let mut looking = store.lock_to_look().expect("nothing fails");
        store.find_segments_beside(&mut looking).expect("nothing fails");
        let segments = looking.extents.segments_mut().expect("they were found");
        let part = segments.parts().map(|(part, _)| part).last().expect("there is a big record");
        segments.bury_big(part.start).expect("it was live");
        if !is_next {
            db.put("another", "value").expect("nothing fails");
        }
        db.put("big", [8; 9_000]).expect("nothing fails");
        let runs = store.runs_beside(&looking).expect("nothing fails");
        runs.iter().any(|run| run.start == part.start + SegmentHeader::BYTES)
    }

    #[test]
    fn a_dead_big_record_was_there_if_the_very_next_change_replaces_it() {
        assert!(counts_a_dead_big(true));
        assert!(!counts_a_dead_big(false));
        assert!(mutant::with(Mutant::NamesDeadBigsAgain, || counts_a_dead_big(false)));
    }

    /// Values of all sizes, also such as have a segment of their own; segments begin, are emptied and end.
    #[test]
    fn the_list_of_the_own_turn_is_what_a_look_at_the_file_finds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let (db, other) = (open(&path), open(&path));
        // A look at a file that has no segment table yet finds dead big records, too.
        (0..200_u32).for_each(|i| db.put((i % 20).to_le_bytes(), [7; 300]).unwrap());
        db.maintain(u64::MAX).unwrap();
        let (mut known_count, mut was_emptied) = (0, false);
        for i in 0..4_000_u32 {
            let value = vec![7; if i % 40 == 0 { 9_000 } else { 150 }];
            let key = (i * 7 % 300).to_le_bytes();
            match i % 50 {
                0..3 => other.put(key, value).unwrap(),
                3 => drop(db.delete(key).unwrap()),
                4 => drop(other.delete(key).unwrap()),
                5 => db.sync().unwrap(),
                _ => db.put(key, value).unwrap(),
            }
            let is_right = is_list_right(&db);
            assert_ne!(is_right, Some(false), "change {i}");
            known_count += u32::from(is_right.is_some());
            // A checkpoint that ends late frees it.
            was_emptied |= i % 16 == 0 && db.stats().unwrap().segments.waiting > 0;
        }
        assert!(known_count > 3_000, "{known_count} lists");
        assert!(was_emptied, "something was emptied");
    }

    #[test]
    fn a_list_outlives_changes_that_begin_no_segment() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().sharing(Sharing::Shared);
        let db = options.open(dir.path().join("a")).unwrap();
        db.put("key", "value").unwrap();
        let list = || {
            drop(db.snapshot().unwrap());
            let turns = db.store().turns.as_deref().unwrap();
            turns.known_segments(db.store().others.as_ref().unwrap().turn().unwrap()).unwrap()
        };
        let first = list();
        for _ in 0..100 {
            db.put("key", "value").unwrap();
        }
        assert!(Arc::ptr_eq(&first, &list()), "nobody made another one");
    }

    /// Returns whether a snapshot has a big record that `change` has stored, after one that was taken before.
    fn finds_what_came(change: impl Fn(&Db, &Db)) -> bool {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        let (db, other) = (open(&path), open(&path));
        db.put("small", "value").expect("nothing fails");
        drop(db.snapshot().expect("nothing fails"));
        change(&db, &other);
        let snapshot = db.snapshot().expect("nothing fails");
        snapshot.get("big").is_ok_and(|value| value.is_some())
    }

    #[test]
    fn a_damaged_segment_of_compacted_records_that_is_younger_than_the_tail_is_in_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let db = open(&dir.path().join("a"));
        let damage_one = || {
            let mut writer = db.store().lock_out_others().expect("nothing fails");
            let (tail, head) = (writer.state.tail_segment, writer.state.head_segment);
            let segments = writer.extents.segments_mut()?;
            let tail_sequence = segments.segment_at(tail)?.sequence;
            let is_wanted = |found: &TableSegment| {
                let is_compacted = found.segment_use == SegmentUse::Compacted;
                is_compacted && found.sequence > tail_sequence && found.offset != head
            };
            let offset = segments.segments().find(is_wanted)?.offset;
            segments.set_use(offset, SegmentUse::Damaged);
            Some(offset)
        };
        // Changes alone pay for one segment or two in that time, as the checkpoints end.
        let damaged = (0..20_000_u32).find_map(|i| {
            // Not in turn, so that segments that are emptied have live records.
            let key = i.wrapping_mul(0x9e37_79b1) >> 20;
            db.put((key % 300).to_le_bytes(), [7; 150]).expect("nothing fails");
            if i % 64 == 0 {
                db.maintain(u64::MAX).expect("nothing fails");
            }
            damage_one()
        });
        assert!(damaged.is_some(), "compaction has begun two segments in the time of one tail");
        assert_eq!(is_list_right(&db), Some(true));
    }

    /// Has another handle store a big record at a point of the first snapshot after a change; returns whether
    /// the snapshot has it, and whether the list is remembered.
    fn looks_beside(point: Point) -> (bool, bool) {
        let dir = tempfile::tempdir().expect("nothing fails");
        let path = dir.path().join("a");
        let (db, other) = (open(&path), open(&path));
        db.put("small", "value").expect("nothing fails");
        let mut is_stored = false;
        let change = move |at| {
            if at == point && !std::mem::replace(&mut is_stored, true) {
                other.put("big", [7; 9_000]).expect("nothing fails");
            }
        };
        let snapshot = meanwhile::with(change, || db.snapshot().expect("nothing fails"));
        let is_found = snapshot.get("big").expect("nothing fails").is_some();
        let word = db.store().writer.lock().expect("nobody panicked").turn.word;
        let turns = db.store().turns.as_deref().expect("it takes turns");
        (is_found, turns.known_segments(word).is_some())
    }

    #[test]
    fn a_list_does_not_count_if_another_handle_has_a_turn_before_the_commit_is_loaded() {
        let finds = || looks_beside(Point::ListKnown).0;
        assert!(finds());
        assert!(!mutant::with(Mutant::CountsListsAnyway, finds));
    }

    #[test]
    fn a_list_is_not_remembered_if_another_handle_has_a_turn_while_it_is_made() {
        let look = || looks_beside(Point::ListMade);
        assert_eq!(look(), (true, false));
        assert!(mutant::with(Mutant::CountsListsAnyway, look).1);
    }

    #[test]
    fn a_list_is_not_used_after_the_turn_of_another_handle() {
        let of_other = |_: &Db, other: &Db| other.put("big", [7; 9_000]).expect("nothing fails");
        assert!(finds_what_came(of_other));
        assert!(!mutant::with(Mutant::TrustsKnownSegments, || finds_what_came(of_other)));
        assert!(finds_what_came(|db, _| db.put("big", [7; 9_000]).expect("nothing fails")));
    }
}
