//! Copies that compaction has made, and the RELOCATE in the log that names them: which of the two a crash
//! leaves, and what the next process moves to the same place.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::{Commit, History, examine, mix};
use crate::atomic::kill_points::observe;
use crate::checkpoint::Image;
use crate::format::{LIVE_OFFSET, SegmentHeader};
use crate::log::append::LogPosition;
use crate::log::record::RecordKind;
use crate::log::scan::{LogWalk, Trust};
use crate::testing::mutant::{Mutant, with};
use crate::{Db, Options, Recovery, SimDisk};

/// A disk after a power loss that kept a RELOCATE and not its copies, and the place of those.
struct WithoutCopies {
    disk: SimDisk,
    place: Range<u64>,
    keys: Vec<Vec<u8>>,
}

/// Few checkpoints, since one makes everything durable before it.
fn compacting() -> Options {
    super::compact::options().checkpoint_bytes_min(1 << 20)
}

fn heads(db: &Db) -> [LogPosition; 2] {
    db.store().lock().expect("nobody panics").heads()
}

fn overwrite(db: &Db, i: u64) {
    // Keys from 40 on stay as they are, so that they are moved.
    let key = (mix(3, i) % 40).to_le_bytes();
    db.put(key, vec![i as u8; 100]).expect("there is room");
}

/// Returns the keys of the records that were moved to a range of a segment, and where the last one ends.
fn moved_to(db: &Db, place: Range<u64>) -> (Vec<Vec<u8>>, u64) {
    let (mut at, mut keys) = (place.start, Vec::new());
    while let Ok(record) = db.store().region.view.record_before(at, place.end)
        && record.header.kind == RecordKind::Put
    {
        keys.push(record.key().to_vec());
        at += record.bytes.len() as u64;
    }
    (keys, at)
}

/// Loses the copies of a step that go to a segment which has earlier ones.
fn lose_copies() -> WithoutCopies {
    let disk = SimDisk::new();
    let db = disk.open(&compacting()).expect("a new store");
    (0..80_u64).for_each(|i| db.put(i.to_le_bytes(), vec![7; 100]).expect("there is room"));
    (0..80).for_each(|i| overwrite(&db, i));
    db.maintain(u64::MAX).expect("there is room");
    (80..1000)
        .find_map(|i| {
            db.sync().expect("nothing fails");
            let (synced, [_, before]) = (disk.file(), heads(&db));
            overwrite(&db, i);
            let [_, after] = heads(&db);
            let is_moved = after.segment_offset == before.segment_offset
                && (before.segment_offset + SegmentHeader::BYTES < before.offset)
                && before.offset < after.offset;
            if !is_moved {
                return None;
            }
            let place = before.offset..after.offset;
            let mut file = disk.file();
            let range = place.start as usize..place.end as usize;
            file[range.clone()].copy_from_slice(&synced[range]);
            let (keys, end) = moved_to(&db, place.clone());
            assert_eq!(end, place.end);
            Some(WithoutCopies { disk: SimDisk::with_file(&file).lose_power(0), place, keys })
        })
        .expect("the keys that stay are moved")
}

/// Recovery ends the log at a name whose copies are not there. The next process moves other records to their
/// place. A second power loss keeps these, and the log as it was before the first recovery.
#[test]
fn records_that_are_moved_later_are_not_taken_for_those_that_a_lost_name_was_for() {
    let WithoutCopies { disk: before, place, keys } = lose_copies();
    let disk = before.kill();
    let db = disk.open(&compacting()).unwrap();
    assert!(matches!(db.recovery(), Recovery::Replayed { dropped_bytes: 1.., .. }));
    let content = super::read(&db).unwrap();
    assert_eq!(heads(&db)[1].offset, place.start, "records are moved there again");
    // Those that were moved are dead now, so that others are.
    for key in &keys {
        db.put(key, b"other").unwrap();
    }
    let segment = heads(&db)[1].segment_offset;
    let segment_end = segment + db.store().region.view.segment(segment).unwrap().segment_bytes;
    let others = || match heads(&db)[1] {
        head if head.segment_offset == segment => moved_to(&db, place.start..head.offset),
        _ => moved_to(&db, place.start..segment_end),
    };
    for _ in 0..100 {
        if others().0.len() >= keys.len() {
            break;
        }
        db.maintain(300).unwrap();
    }
    let (others, end) = others();
    assert!(others.len() >= keys.len() && others[0] != keys[0], "{others:?} {keys:?}");
    let headers = LIVE_OFFSET;
    assert!(disk.syncs().iter().all(|(_, range)| range.end <= headers), "{:?}", disk.syncs());

    let mut file = before.file();
    let range = place.start as usize..end as usize;
    file[range.clone()].copy_from_slice(&disk.file()[range]);
    file[..headers as usize].copy_from_slice(&disk.file()[..headers as usize]);
    let lost = SimDisk::with_file(&file).lose_power(0);
    let read = |disk: SimDisk| {
        let db = disk.open(&compacting()).map_err(|error| error.to_string())?;
        super::read(&db)
    };
    assert!(read(lost.kill()) == Ok(content));
    let taken = with(Mutant::TakesOtherCopies, || read(lost.kill()));
    println!("{}", taken.expect_err("the index has a key twice"));
}

/// A store and what was done to it.
struct Tracked {
    db: Db,
    history: History,
}

impl Tracked {
    fn of(disk: &SimDisk) -> Self {
        Self { db: disk.open(&compacting()).expect("it opens"), history: History::default() }
    }

    /// Makes a store of 80 keys, overwrites some, and compacts it.
    fn compacted(disk: &SimDisk) -> Self {
        let mut store = Self::of(disk);
        (0..80_u64).for_each(|i| store.change(&i.to_le_bytes(), Some(&[7; 100])));
        (0..80).for_each(|i| store.overwrite(i));
        store.db.maintain(u64::MAX).expect("there is room");
        store
    }

    /// Puts a value, or deletes the key.
    fn change(&mut self, key: &[u8], value: Option<&[u8]>) {
        let commit: Commit = vec![(key.to_vec(), value.map(<[u8]>::to_vec))];
        self.history.attempt(&commit);
        match value {
            Some(value) => self.db.put(key, value).expect("there is room"),
            None => assert!(self.db.delete(key).expect("there is room")),
        }
        self.history.acknowledged = self.history.tried();
    }

    /// Does the same as the function [`overwrite`].
    fn overwrite(&mut self, i: u64) {
        let key = (mix(3, i) % 40).to_le_bytes();
        self.change(&key, Some(&[i as u8; 100]));
    }

    fn sync(&mut self) {
        self.db.sync().expect("nothing fails");
        self.history.synced = self.history.tried();
    }
}

/// A machine whose process is killed when it has made copies that the log does not name yet.
struct Unnamed {
    disk: SimDisk,
    /// Where they end.
    end: u64,
    history: History,
}

fn kill_before_name() -> Unnamed {
    let disk = Rc::new(SimDisk::new());
    let mut store = Tracked::compacted(&disk);
    for i in 80..1000 {
        store.sync();
        let [_, before] = heads(&store.db);
        let machines = Rc::new(RefCell::new(Vec::new()));
        let observer = {
            let (disk, machines) = (disk.clone(), machines.clone());
            move || machines.borrow_mut().push(disk.kill())
        };
        observe(observer, || store.overwrite(i));
        let [_, after] = heads(&store.db);
        let is_moved = after.segment_offset == before.segment_offset
            && before.segment_offset + SegmentHeader::BYTES < before.offset
            && before.offset < after.offset;
        if !is_moved {
            continue;
        }
        let (place, file) = (before.offset as usize..after.offset as usize, disk.file());
        let has_all = |machine: &SimDisk| machine.file()[place.clone()] == file[place.clone()];
        let disk = machines.take().into_iter().find(has_all).expect("the copies were made");
        return Unnamed { disk, end: after.offset, history: store.history };
    }
    panic!("the keys that stay are moved");
}

/// The next process after [`kill_before_name`] names other copies in the same place. Returns its machine after
/// a power loss that keeps the name and, of the place, what the first process has copied.
fn lose_power_with_unnamed(is_power_lost: bool) -> (SimDisk, History) {
    let Unnamed { disk, end, mut history } = kill_before_name();
    let unnamed = disk.file();
    let disk = if is_power_lost { disk.lose_power(u64::MAX) } else { disk };
    let (found, db) = examine(&disk, &compacting(), &history, history.synced).expect("it is sound");
    assert_eq!(matches!(db.recovery(), Recovery::Replayed { .. }), is_power_lost);
    history.states.truncate(found + 1);
    history.acknowledged = found;
    let mut store = Tracked { db, history };
    let [_, LogPosition { segment_offset, offset: start, .. }] = heads(&store.db);
    assert!(start < end, "nothing names these copies: records are moved there again");
    let (keys, copies_end) = moved_to(&store.db, start..end);
    assert_eq!(copies_end, end);
    for (i, key) in keys.iter().enumerate() {
        store.change(key, (i % 2 == 1).then_some(&b"other"[..]));
    }
    for _ in 0..100 {
        if heads(&store.db)[1].offset > start {
            break;
        }
        // A record.
        store.db.maintain(1).expect("there is room");
    }
    let [_, head] = heads(&store.db);
    assert_eq!(head.segment_offset, segment_offset, "one step");
    let (others, others_end) = moved_to(&store.db, start..head.offset);
    assert!(!others.is_empty() && others.len() <= keys.len(), "{others:?} {keys:?}");
    assert_ne!(others[0], keys[0]);
    store.change(b"behind", Some(b"the name"));

    let mut image = disk.file();
    let place = start as usize..others_end.max(end) as usize;
    image[place.clone()].copy_from_slice(&unnamed[place]);
    let outcomes = disk.outcomes();
    assert!(outcomes.has(&image), "no power loss leaves this");
    (outcomes.of_image(image), store.history)
}

/// The other way round: the first process has copied and is killed, or loses its power, before it names the
/// copies. The next one has deleted or replaced these records, and names others in their place.
#[test]
fn copies_that_were_never_named_are_not_taken_for_those_that_a_later_name_is_for() {
    for is_power_lost in [false, true] {
        let (lost, history) = lose_power_with_unnamed(is_power_lost);
        let found = |disk: SimDisk| {
            examine(&disk, &compacting(), &history, history.synced).map(|(count, _)| count)
        };
        let count = found(lost.kill()).unwrap();
        assert!(count < history.tried(), "the log ends at the name");
        let taken = with(Mutant::TakesOtherCopies, || found(lost.kill()));
        println!("{}", taken.expect_err("keys are there twice, or again"));
    }
}

/// Returns how many records name copies without and with a checksum over theirs, from the checkpoint on.
fn count_names(db: &Db) -> [usize; 2] {
    let view = &db.store().region.view;
    let name = db.store().lock().expect("nobody panics").superblock.checkpoint;
    let state = Image::open(view, name.expect("it is compacted")).expect("it is sound").state;
    let walk = LogWalk::new(view, state.replay_start, Trust::Nothing, 0).expect("it is sound");
    let mut walk = walk.expect("it has a log").after_moves_to(state.commit.head_segment);
    let mut counts = [0; 2];
    while let Some(record) = walk.next_record().expect("it is sound") {
        if record.header.kind == RecordKind::Relocate {
            counts[usize::from(record.header.salt.is_some())] += 1;
        }
    }
    counts
}

/// A store that an earlier build has compacted: the machine as it left it, those at each event of its last
/// change, and what was done.
struct OfEarlierBuild {
    disk: SimDisk,
    last: Vec<SimDisk>,
    history: History,
}

fn compact_with_earlier_build() -> OfEarlierBuild {
    let disk = Rc::new(SimDisk::new());
    let mut store = Tracked::compacted(&disk);
    (80..300).for_each(|i| store.overwrite(i));
    for i in 300..1000 {
        let [before, head_before] = heads(&store.db);
        let machines = Rc::new(RefCell::new(Vec::new()));
        let observer = {
            let (disk, machines) = (disk.clone(), machines.clone());
            move || machines.borrow_mut().push(disk.kill())
        };
        store.sync();
        observe(observer, || store.overwrite(i));
        let [after, head_after] = heads(&store.db);
        if head_before != head_after && before.segment_offset == after.segment_offset {
            let last = machines.take();
            return OfEarlierBuild { disk: disk.kill(), last, history: store.history };
        }
    }
    panic!("the keys that stay are moved");
}

/// What an earlier build has written, and what this one writes behind it.
#[test]
fn copies_that_an_earlier_build_has_named_are_found_as_before() {
    let OfEarlierBuild { disk, last, mut history } =
        with(Mutant::NamesUnchecked, compact_with_earlier_build);
    let (acknowledged, before) = (history.acknowledged, history.acknowledged - 1);
    for machine in &last {
        let killed = examine(&machine.kill(), &compacting(), &history, before);
        killed.unwrap_or_else(|error| panic!("killed: {error}"));
    }
    history.synced = before;
    let lost = || {
        let images = [0, 1, 2, 3, u64::MAX].map(|seed| disk.lose_power(seed));
        let mut found = images.iter().map(|lost| examine(lost, &compacting(), &history, before));
        found.try_for_each(|found| found.map(drop))
    };
    lost().unwrap();
    let refused = with(Mutant::RefusesUnchecked, lost);
    println!("{}", refused.expect_err("changes that were synced are lost"));

    let (_, db) = examine(&disk, &compacting(), &history, acknowledged).unwrap();
    let [unchecked, checked] = count_names(&db);
    assert!(unchecked > 3 && checked == 0, "{unchecked} {checked}");
    let mut store = Tracked { db, history };
    (1000..1100).for_each(|i| store.overwrite(i));
    store.sync();
    let [unchecked, checked] = count_names(&store.db);
    assert!(unchecked > 3 && checked > 3, "{unchecked} {checked}");
    let Tracked { db, history } = store;
    let newest = history.newest().clone();
    let (saved, _) = disk.repair(&compacting()).unwrap();
    assert!(super::read(&saved) == Ok(newest));
    for machine in [disk.kill(), disk.lose_power(0), disk.lose_power(7)] {
        let read_only = machine.open(&compacting().read_only()).unwrap();
        assert!(super::read(&read_only).as_ref() == Ok(history.newest()));
        drop(read_only);
        examine(&machine, &compacting(), &history, history.synced).unwrap();
    }
    db.close().unwrap();
    let (_, db) = examine(&disk, &compacting(), &history, history.tried()).unwrap();
    assert_eq!(db.recovery(), Recovery::Clean);
}
