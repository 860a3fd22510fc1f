//! Every store to an index line or to the live header as the last one of a process.
//!
//! Before and after each, a copy of the machine is taken as a killed process leaves it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;

use crate::atomic::kill_points::observe;
use crate::hash::{HashFunction, HashId};
use crate::index::overflow::LinePool as _;
use crate::region::{LivePool, Region};
use crate::storage::open::open_and_lock;
use crate::storage::waiting::Waiting;
use crate::testing::mutant::{self, Mutant};
use crate::{Create, Db, Durability, Options, Recovery, Sharing, SimDisk, SimFault};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn content(db: &Db) -> Content {
    let mut content = Content::new();
    for entry in db.scan().unwrap() {
        let entry = entry.unwrap();
        let earlier = content.insert(entry.key.to_vec(), entry.value.to_vec());
        assert_eq!(earlier, None, "a scan returned a key twice");
    }
    content
}

fn options(fill_factor: f64) -> Options {
    let few_bits = |key: &[u8], _| crate::hash::fnv1a_64(key) & 0b0001_0011;
    let hash = HashFunction::user(HashId(0x8000_0001), "few-bits", few_bits).unwrap();
    let options = Options::new().hash(hash).fill_factor(fill_factor).seed(1);
    options.segment_bytes_min(4096).durability(Durability::Buffered)
}

/// Opens the machine that a kill has left for reading only and checks that it shows `before` or
/// `after` in every way, and no damage.
fn assert_readable(disk: &SimDisk, options: &Options, before: &Content, after: &Content, at: &str) {
    assert_shows(&disk.open(&options.clone().read_only()).unwrap(), before, after, at);
}

/// Opens what a kill has left in a file, for a handle that reads and lets writers come.
fn open_file_as_left(disk: &SimDisk, path: &Path, options: &Options) -> Db {
    write_file_as_left(disk, path, options);
    options.clone().read_only().open(path).unwrap()
}

/// Writes what a kill has left to a file, so that an opening takes it for one that was killed there.
fn write_file_as_left(disk: &SimDisk, path: &Path, options: &Options) {
    std::fs::write(path, disk.file()).unwrap();
    let storage = open_and_lock(path, options, &mut Waiting::new(options)).unwrap().storage;
    let region = Region::new(Box::new(storage), false).unwrap();
    if region.live().is_of(disk.identity()) {
        region.claim_live().unwrap();
        region.set_identity();
    }
}

/// Checks that a handle shows `before` or `after` in every way, and no damage.
fn assert_shows(db: &Db, before: &Content, after: &Content, at: &str) {
    let found = content(db);
    assert!(found == *before || found == *after, "{at}: {} keys", found.len());
    assert_eq!(db.len(), found.len() as u64, "{at}");
    for key in before.keys().chain(after.keys()) {
        assert_eq!(db.get(key).unwrap().as_deref(), found.get(key).map(|v| &v[..]), "{at}");
    }
    let report = db.check().unwrap();
    assert!(report.is_clean(), "{at}, read only: {:?}", report.damages);
}

/// Opens the machine that a kill has left and checks that it holds `before` or `after`.
fn assert_left(disk: &SimDisk, options: &Options, before: &Content, after: &Content, at: &str) {
    assert_readable(disk, options, before, after, at);
    let db = disk.open(&options.clone().create(Create::Never)).unwrap();
    let found = content(&db);
    assert!(found == *before || found == *after, "{at}: {} keys", found.len());
    assert_eq!(db.len(), found.len() as u64, "{at}");
    for (key, value) in &found {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]), "{at}");
    }
    let report = db.check().unwrap();
    assert!(report.is_clean(), "{at}: {:?}", report.damages);
    if let Recovery::WarmRestart { records } = db.recovery() {
        assert!(records <= 2, "{at}: {records} records applied");
    }
    // What is left must also take changes: a line used twice would show now.
    for i in 0..12_u8 {
        db.put(&[200, i], &[i; 3]).unwrap();
        let _ = db.delete(&[i]).unwrap();
    }
    let report = db.check().unwrap();
    assert!(report.is_clean(), "{at}, later: {:?}", report.damages);
}

/// Kills a store at every store of a word while it grows, overwrites, shrinks, closes and is
/// opened again: the next process finds the change made or not made, and nothing else changed.
#[test]
fn a_kill_at_any_store_leaves_the_change_made_or_not_made() {
    let mut kill_count = 0;
    for fill_factor in [1.0, 7.0] {
        let options = options(fill_factor);
        let disk = Rc::new(SimDisk::new());
        let mut db = Some(disk.open(&options).unwrap());
        let mut model = Content::new();
        for step in 0..170_u64 {
            let before = model.clone();
            let key = vec![(step % 60) as u8];
            let value = vec![step as u8; if step % 17 == 3 { 1500 } else { 20 }];
            let copies = Rc::new(RefCell::new(Vec::new()));
            let observer = {
                let (disk, copies) = (disk.clone(), copies.clone());
                move || copies.borrow_mut().push(disk.kill())
            };
            observe(observer, || match step {
                80 | 130 => {
                    db.take().unwrap().close().unwrap();
                    db = Some(disk.open(&options).unwrap());
                }
                0..90 => {
                    db.as_ref().unwrap().put(&key, &value).unwrap();
                    model.insert(key.clone(), value.clone());
                }
                _ => {
                    let was_there = model.remove(&key).is_some();
                    assert_eq!(db.as_ref().unwrap().delete(&key).unwrap(), was_there);
                }
            });
            for (place, copy) in copies.take().iter().enumerate() {
                let at = format!("fill {fill_factor}, step {step}, place {place}");
                assert_left(copy, &options, &before, &model, &at);
                kill_count += 1;
            }
        }
        assert_eq!(content(db.as_ref().unwrap()), model);
    }
    assert!(kill_count > 1500, "{kill_count}");
}

/// Kills a store at every store of a word while records move and space is used again. What is left is read
/// without a lock that keeps writers out.
#[test]
fn what_a_kill_leaves_in_a_file_is_one_moment_for_a_handle_that_lets_writers_come() {
    sweep_files_left();
}

#[test]
fn a_reader_that_shows_what_a_killed_process_had_not_committed_is_found() {
    let sweep = || mutant::with(Mutant::ShowsUnfinished, sweep_files_left);
    assert!(catch_unwind(AssertUnwindSafe(sweep)).is_err(), "it goes unnoticed");
}

fn sweep_files_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("left.spt");
    let options = options(4.0).checkpoint_bytes_min(2048).live_share(0.9);
    let disk = Rc::new(SimDisk::new());
    let db = disk.open(&options).unwrap();
    let mut model = Content::new();
    let mut warm_count = 0;
    for step in 0..420_u64 {
        let before = model.clone();
        let key = vec![(step * 7 % 40) as u8];
        let value = vec![step as u8; if step % 9 == 3 { 5000 } else { 150 }];
        let copies = Rc::new(RefCell::new(Vec::new()));
        let observer = {
            let (disk, copies) = (disk.clone(), copies.clone());
            move || copies.borrow_mut().push(disk.kill())
        };
        observe(observer, || {
            if step % 11 == 10 {
                db.maintain(u64::MAX).unwrap();
            } else if step % 5 == 4 {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                db.put(&key, &value).unwrap();
                model.insert(key.clone(), value.clone());
            }
        });
        for (place, copy) in copies.take().iter().enumerate().skip(step as usize % 5).step_by(5) {
            let db = open_file_as_left(copy, &path, &options);
            assert_shows(&db, &before, &model, &format!("step {step}, place {place}"));
            if matches!(db.recovery(), Recovery::WarmRestart { .. }) {
                warm_count += 1;
                // From its commit on the handle shows what the next writer makes of it.
                let writer = options.open(&path).unwrap();
                assert_eq!(content(&db), content(&writer), "step {step}, place {place}");
                drop(writer);
                assert_shows(&db, &before, &model, &format!("step {step}, place {place}, later"));
            }
        }
    }
    assert!(db.store().lock().unwrap().superblock.is_compacted);
    assert!(warm_count > 500, "{warm_count} were read as they are");
}

/// Puts `i` into a store whose segment table moves in one of the first changes of these.
fn put_until_table_moves(db: &Db, i: u64) {
    db.put(i.to_le_bytes(), vec![i as u8; 9000]).unwrap();
}

/// Returns a store on a machine that compacts, the options for it, and the change with which its segment table
/// moves.
fn with_table_about_to_move() -> (Rc<SimDisk>, Db, Options, u64) {
    let by_turns = options(7.0).checkpoint_bytes_min(2048).live_share(0.9).sharing(Sharing::Shared);
    let make = |change_count: u64| {
        let disk = Rc::new(SimDisk::new());
        let db = disk.open(&by_turns).unwrap();
        (0..60_u8).for_each(|i| db.put([i % 10], [i; 1500]).unwrap());
        db.maintain(u64::MAX).unwrap();
        (0..change_count).for_each(|i| put_until_table_moves(&db, i));
        (disk, db)
    };
    let (_, db) = make(0);
    let table = || db.store().region.live().segment_table();
    let before = table();
    assert!(before.is_some(), "it compacts");
    let moves = (0..1000).find(|&i| {
        put_until_table_moves(&db, i);
        table() != before
    });
    let moves = moves.expect("it grows");
    drop(db);
    let (disk, db) = make(moves);
    (disk, db, by_turns, moves)
}

/// The end of the file is raised for a larger segment table before that is the table.
#[test]
fn a_kill_while_the_segment_table_moves_leaves_tables_that_the_next_process_goes_on_with() {
    let (disk, db, options, moves) = with_table_about_to_move();
    let before = content(&db);
    let copies = Rc::new(RefCell::new(Vec::new()));
    let observer = {
        let (disk, copies) = (disk.clone(), copies.clone());
        move || copies.borrow_mut().push(disk.kill())
    };
    observe(observer, || put_until_table_moves(&db, moves));
    let after = content(&db);
    let copies = copies.take();
    for (place, copy) in copies.iter().enumerate() {
        let db = copy.open(&options).unwrap();
        let recovery = db.recovery();
        assert!(matches!(recovery, Recovery::WarmRestart { .. }), "place {place}: {recovery:?}");
        assert_shows(&db, &before, &after, &format!("place {place}"));
        (1000..1020).for_each(|i| put_until_table_moves(&db, i));
        let report = db.check().unwrap();
        assert!(report.is_clean(), "place {place}: {:?}", report.damages);
    }
    assert!(copies.len() > 20, "{}", copies.len());
}

/// Each call to the storage is refused once in the change with which the table moves: the turns after it go on
/// with the table that is left.
#[test]
fn a_segment_table_that_could_not_be_moved_stops_no_later_turn() {
    const NO_SPACE: i32 = 28;
    let mut refused_count = 0;
    for call in 1..60 {
        let (disk, db, _, moves) = with_table_about_to_move();
        let before = content(&db);
        disk.fail_once(call, SimFault::Error(NO_SPACE));
        let put = db.put(moves.to_le_bytes(), vec![moves as u8; 9000]);
        refused_count += u32::from(put.is_err());
        // What the handle allocates next in its turn has a place in the table.
        assert!(db.store().lock().unwrap().extents.has_table_room(), "call {call}");
        disk.fail_once(u64::MAX, SimFault::Error(NO_SPACE));
        (moves + 1..moves + 20).for_each(|i| put_until_table_moves(&db, i));
        assert!(before.keys().all(|key| db.contains(key).unwrap()), "call {call}");
        let report = db.check().unwrap();
        assert!(report.is_clean(), "call {call}: {:?}", report.damages);
    }
    assert!(refused_count > 3, "{refused_count}");
}

/// A close moves what is left to the beginning of the file, where most of it was deleted.
#[test]
fn a_kill_or_a_power_loss_in_a_close_that_compacts_loses_nothing() {
    const KEYS: u64 = 4000;
    let options = Options::new().seed(1).segment_bytes_min(4096).durability(Durability::Buffered);
    let disk = Rc::new(SimDisk::new());
    let db = disk.open(&options).unwrap();
    (0..KEYS).for_each(|i| db.put(i.to_le_bytes(), [i as u8; 200]).unwrap());
    let doomed = (0..KEYS).filter(|i| i % 10 > 0);
    doomed.for_each(|i| assert!(db.delete(i.to_le_bytes()).unwrap()));
    db.sync().unwrap();
    let model = content(&db);
    let copies = Rc::new(RefCell::new(Vec::new()));
    let observer = {
        let (disk, copies, mut count) = (disk.clone(), copies.clone(), 0_u64);
        move || {
            count += 1;
            let mut copies = copies.borrow_mut();
            match count % 131 {
                0 => copies.push(disk.kill()),
                41 => copies.push(disk.lose_power(0)),
                83 => copies.push(disk.lose_power(count)),
                _ => {}
            }
        }
    };
    let bytes_before = disk.file().len();
    observe(observer, || db.close().unwrap());
    assert!(disk.file().len() < bytes_before / 2, "it compacts");
    let copies = copies.take();
    for (place, copy) in copies.iter().enumerate() {
        let db = copy.open(&options.clone().create(Create::Never)).unwrap();
        assert!(content(&db) == model, "place {place}: {} keys", db.len());
        let report = db.check().unwrap();
        assert!(report.is_clean(), "place {place}: {:?}", report.damages);
        assert_has_room(&db, &format!("place {place}"));
    }
    assert!(copies.len() > 20, "{}", copies.len());
}

/// Checks that no more counts as live or dead than the segments in use have room for.
#[track_caller]
fn assert_has_room(db: &Db, at: &str) {
    let stats = db.stats().unwrap();
    let (used, counted) =
        (stats.segments.log + stats.segments.big, stats.live_bytes + stats.dead_bytes);
    assert!(used >= counted, "{at}: {used} bytes for {counted}");
}

/// They were counted when the first checkpoint of a compacted store was made, and are freed with it.
#[test]
fn a_kill_or_a_power_loss_in_the_first_compaction_counts_no_dead_big_record_that_is_freed() {
    let options = Options::new().seed(1).segment_bytes_min(4096).durability(Durability::Buffered);
    let disk = Rc::new(SimDisk::new());
    let db = disk.open(&options).unwrap();
    (0..8_u64).for_each(|i| db.put(i.to_le_bytes(), vec![7; 100_000]).unwrap());
    (1..8_u64).for_each(|i| assert!(db.delete(i.to_le_bytes()).unwrap()));
    db.sync().unwrap();
    let copies = Rc::new(RefCell::new(Vec::new()));
    let observer = {
        let (disk, copies) = (disk.clone(), copies.clone());
        move || copies.borrow_mut().extend([disk.kill(), disk.lose_power(0)])
    };
    observe(observer, || {
        db.maintain(0).unwrap();
    });
    let big_bytes = db.stats().unwrap().segments.big;
    assert!((100_000..200_000).contains(&big_bytes), "{big_bytes}");
    let mut compacted = [0; 2];
    for (place, copy) in copies.take().iter().enumerate() {
        let db = copy.open(&options).unwrap();
        assert_has_room(&db, &format!("place {place}"));
        if db.store().lock().unwrap().superblock.is_compacted {
            let stats = db.stats().unwrap();
            assert_eq!(stats.segments.big, big_bytes, "place {place}");
            assert!(stats.dead_bytes < 100_000, "place {place}: {} are dead", stats.dead_bytes);
            compacted[place % 2] += 1;
        }
    }
    assert!(compacted.iter().all(|&count| count > 0), "{compacted:?}");
}

/// The free list and the count of overflow lines that were handed out are words of their own. A process
/// that is killed between the two must leave a header that the next one does not trust, or it would take
/// the lines for used as long as the index lives.
#[test]
fn a_kill_while_overflow_lines_begin_anew_loses_none() {
    const LINES: u64 = 200;
    let disk = Rc::new(SimDisk::new());
    let db = disk.open(&options(7.0)).unwrap();
    db.put(b"key", b"value").unwrap();
    let store = db.store();
    let mut writer = store.lock().unwrap();
    writer.extents.reserve_overflow_lines(LINES).unwrap();
    let mut pool = LivePool(&store.region.windows);
    let lines: Vec<_> = (0..LINES).map(|_| pool.take().unwrap()).collect();
    for line in lines {
        pool.give(line);
    }
    let copies = Rc::new(RefCell::new(Vec::new()));
    let observer = {
        let (disk, copies) = (disk.clone(), copies.clone());
        move || copies.borrow_mut().push(disk.kill())
    };
    observe(observer, || writer.extents.give_back_lines());
    let copies = copies.take();
    assert!(copies.len() > 6, "{}", copies.len());
    for (place, copy) in copies.iter().enumerate() {
        let db = copy.open(&options(7.0)).unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]), "place {place}");
        let report = db.check().unwrap();
        assert!(report.is_clean(), "place {place}: {:?}", report.damages);
        let live = db.store().region.live();
        assert_eq!(live.free_lines().1, live.lines_used(), "place {place}");
    }
}

/// No checksum covers the durable position in the live header. Damage there may say of everything,
/// or of more than there is, that it is durable: the next process syncs it all the same.
#[test]
fn a_damaged_durable_position_makes_no_sync_after_a_takeover_too_short() {
    for damaged in [|committed: u64| committed, |_| !7] {
        let options = options(7.0);
        let disk = SimDisk::new();
        let db = disk.open(&options).unwrap();
        db.put_with(&[0], b"synced", Durability::Sync).unwrap();
        db.put_with(&[1], b"not synced", Durability::Buffered).unwrap();
        let live = db.store().region.live();
        live.set_durable_lsn(damaged(live.committed().0));
        let left = disk.kill();

        let db = left.open(&options).unwrap();
        assert!(matches!(db.recovery(), Recovery::WarmRestart { .. }), "{:?}", db.recovery());
        let before_sync = left.lose_power(0).open(&options).unwrap();
        assert_eq!(content(&before_sync).len(), 1, "the second change is durable without a sync");
        db.sync().unwrap();
        let after = left.lose_power(0).open(&options).unwrap();
        assert_eq!(content(&after), content(&db));
        assert_eq!(after.len(), 2);
    }
}

/// Kills a store at every store of a word while it is made, changed for the first time and closed.
/// A process that opens what is left and changes nothing closes it, whatever it found: nobody after
/// it has to recover an empty store again.
#[test]
fn a_store_left_in_its_first_change_is_closed_by_who_opens_it_and_changes_nothing() {
    let options = options(7.0);
    let disk = Rc::new(SimDisk::new());
    let copies = Rc::new(RefCell::new(Vec::new()));
    let observer = {
        let (disk, copies) = (disk.clone(), copies.clone());
        move || {
            copies.borrow_mut().push(disk.kill());
            copies.borrow_mut().push(disk.lose_power(0));
            copies.borrow_mut().push(disk.lose_power(u64::MAX));
        }
    };
    observe(observer, || {
        let db = disk.open(&options).unwrap();
        db.put(&[1], b"first").unwrap();
        db.close().unwrap();
    });
    let copies = copies.take();
    for (place, copy) in copies.iter().enumerate() {
        let found = {
            let db = copy.open(&options).unwrap();
            let found = content(&db);
            db.close().unwrap();
            found
        };
        for options in [options.clone().read_only(), options.clone()] {
            let db = copy.open(&options).unwrap();
            assert_eq!(db.recovery(), Recovery::Clean, "place {place}");
            assert_eq!(content(&db), found, "place {place}");
        }
    }
    assert!(copies.len() > 90, "{}", copies.len());
}

/// Kills a handle that takes turns at every store of a word of a maintenance; returns how many bytes more count
/// as dead in the next turn than the segments in use have, at most.
fn dead_beyond_segments() -> u64 {
    let options = options(7.0).checkpoint_bytes_min(2048).live_share(0.9).sharing(Sharing::Shared);
    let disk = Rc::new(SimDisk::new());
    let db = disk.open(&options).unwrap();
    (0..100_u8).for_each(|i| db.put([i % 10], [i; 150]).unwrap());
    db.maintain(u64::MAX).unwrap();
    (0..200_u8).for_each(|i| db.put([i % 10], [i; 150]).unwrap());
    let copies = Rc::new(RefCell::new(Vec::new()));
    let observer = {
        let (disk, copies) = (disk.clone(), copies.clone());
        move || copies.borrow_mut().push(disk.kill())
    };
    observe(observer, || assert!(db.maintain(u64::MAX).unwrap().is_done));
    let copies = copies.take();
    assert!(copies.len() > 20, "{}", copies.len());
    let beyond = |copy: &SimDisk| {
        let db = copy.open(&options).unwrap();
        let writer = db.store().lock_for_change().unwrap();
        let segments = writer.extents.segments().expect("it is compacted").segments();
        let dead_bytes: u64 = segments.map(|segment| segment.dead_bytes).sum();
        writer.state.dead_bytes.saturating_sub(dead_bytes)
    };
    copies.iter().map(beyond).max().unwrap_or(0)
}

#[test]
fn a_kill_between_turns_that_compact_leaves_no_more_dead_bytes_than_segments_have() {
    let right = dead_beyond_segments();
    let wrong = mutant::with(Mutant::RetiresUncommitted, dead_beyond_segments);
    assert!(right == 0 && wrong > 0, "{wrong} instead of {right}");
}

/// A program closes all descriptors that it does not know, and a file of its own gets the number of the store's
/// while that is opened. Here it is a copy of the store, with which the log agrees. What the tables of a compacted
/// store have may be nowhere else: it is refused before anything is done with them.
#[test]
#[cfg(not(miri))]
fn lines_that_were_read_from_a_stranger_vouch_for_no_table() {
    use crate::storage::own_file::replace_descriptors;
    use crate::testing::meanwhile::{self, Point};
    use std::cell::Cell;

    let options = Options::new().segment_bytes_min(4096).durability(Durability::Buffered).seed(1);
    let options = options.live_share(0.9);
    let disk = SimDisk::new();
    let db = disk.open(&options).unwrap();
    for i in 0..4000_u32 {
        db.put((i % 2000).to_le_bytes(), b"value").unwrap();
    }
    assert!(db.maintain(u64::MAX).unwrap().is_done);
    db.put(b"a change", b"after the compaction").unwrap();
    let (dir, killed) = (tempfile::tempdir().unwrap(), disk.kill());
    let [path, stranger] = ["store", "stranger"].map(|name| dir.path().join(name));
    write_file_as_left(&killed, &path, &options);
    std::fs::copy(&path, &stranger).unwrap();
    let stranger = std::fs::File::open(&stranger).unwrap();
    let recovery = options.clone().read_only().open(&path).unwrap().recovery();
    assert!(matches!(recovery, Recovery::WarmRestart { .. }), "{recovery:?}");

    // Without the look it fails too, but only at a later call, and has trusted the tables until then.
    let is_refused = || {
        let (store, stranger) = (path.clone(), stranger.try_clone().unwrap());
        let replaced_count = Rc::new(Cell::new(0));
        let count = replaced_count.clone();
        let replace = move |point| {
            if point == Point::LogVerified {
                count.set(count.get() + replace_descriptors(&store, &stranger));
            }
        };
        let open = || options.clone().create(Create::Never).open(&path);
        let opened = meanwhile::with(replace, open).map(|db| db.recovery());
        assert!(replaced_count.get() > 0, "the index was looked at");
        let error = opened.expect_err("it cannot be locked, either");
        matches!(error, crate::Error::Io { action: "read the index of", .. })
    };
    assert!(is_refused());
    write_file_as_left(&killed, &path, &options);
    assert!(!mutant::with(Mutant::BelievesStrangers, is_refused));
}

/// What the process below gets: the file, and whether it reserves as it did before.
const FIRST_CHANGE_ENV: &str = "SPLITPOINT_TEST_FIRST_CHANGE";

fn by_turns() -> Options {
    Options::new().sharing(Sharing::Shared).durability(Durability::Buffered)
}

/// Not a test by itself: a process that is killed in the middle of the first change of a new store.
#[test]
#[cfg(not(miri))]
fn another_process_is_killed_in_the_first_change_of_a_new_store() {
    use crate::testing::meanwhile::{self, Point};
    use rustix::process::{Signal, getpid, kill_process};

    let Ok(arguments) = std::env::var(FIRST_CHANGE_ENV) else { return };
    let (path, mutant) = arguments.split_once('|').expect("a path, and what it does");
    let db = by_turns().open(path).unwrap();
    let kill = |point| {
        if point == Point::LogReserved {
            kill_process(getpid(), Signal::KILL).expect("it is our own");
        }
    };
    let put = || meanwhile::with(kill, || db.put("lost", "value"));
    let put = if mutant.is_empty() { put() } else { mutant::with(Mutant::ReservesWhileClean, put) };
    panic!("it was not killed: {put:?}");
}

/// Returns what a handle that was open all the time makes of it, and another one that is opened then.
#[cfg(not(miri))]
fn change_behind_a_killed_first_change(mutant: &str) -> crate::Result<()> {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let db = by_turns().open(&path).unwrap();
    let name = "another_process_is_killed_in_the_first_change_of_a_new_store";
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("testing::kill_tests::{name}")])
        .env(FIRST_CHANGE_ENV, format!("{}|{mutant}", path.display()))
        .stdout(Stdio::null())
        .status();
    assert_eq!(status.unwrap().signal(), Some(9));
    // It does not wait for a change of the first one.
    let other = by_turns().open(&path);
    db.put("key", "value")?;
    let other = other?;
    assert_eq!(content(&other), BTreeMap::from([(b"key".to_vec(), b"value".to_vec())]));
    assert!(db.check()?.is_clean());
    db.close()?;
    other.close().map(drop)
}

#[test]
#[cfg(not(miri))]
fn a_kill_in_the_first_change_of_a_new_store_leaves_handles_that_go_on() {
    change_behind_a_killed_first_change("").unwrap();
    let error = change_behind_a_killed_first_change("mutant").unwrap_err();
    assert!(matches!(error, crate::Error::Corrupt { what: "live header", .. }), "{error}");
}
