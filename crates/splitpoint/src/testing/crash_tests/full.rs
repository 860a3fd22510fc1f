//! A full disk: no delete fails, whatever crashes between, and puts go on when enough is deleted.

use super::{History, Op, Run, compact, is_slow, mix, seed};
use crate::Durability::{Buffered, Sync};
use crate::format::GRANULE_BYTES;
use crate::testing::mutant::{Mutant, with};
use crate::{Batch, Db, Durability, SimDisk};

/// What the disk holds.
const DISK_BYTES: u64 = 240 << 10;

fn key(i: u64) -> Vec<u8> {
    format!("key {i}").into_bytes()
}

fn value(i: u64) -> Vec<u8> {
    vec![i as u8; 300 + (mix(7, i) % 200) as usize]
}

fn level(i: u64) -> Durability {
    if i.is_multiple_of(16) { Sync } else { Buffered }
}

fn full_disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.limit_to(DISK_BYTES);
    disk
}

fn fill(db: &Db) -> u64 {
    (0..u64::MAX)
        .find(|&i| db.put_with(key(i), value(i), level(i)).is_err())
        .expect("a disk is finite")
}

/// Returns the numbers below `count` in an order.
fn in_order(order: u64, count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    match order {
        0 => {}
        1 => numbers.reverse(),
        _ => numbers.sort_unstable_by_key(|&i| mix(order, i)),
    }
    numbers
}

/// Returns a program that fills the disk, deletes half of the keys, stores some and deletes the others.
fn program(order: u64) -> Vec<Op> {
    let count = {
        let db = full_disk().open(&compact::options()).unwrap();
        fill(&db)
    };
    assert!(count > 150, "{count}");
    let put = |i| Op::Put(key(i), value(i), level(i));
    let delete = |i: u64| Op::Delete(key(i), level(i));
    let numbers = in_order(order, count);
    let (half, rest) = numbers.split_at(numbers.len() / 2);
    let more = 1000..1000 + count / 8;
    let mut ops: Vec<Op> = (0..count).map(put).collect();
    ops.extend(half.iter().map(|&i| delete(i)));
    ops.push(Op::Sync);
    ops.extend(more.clone().map(put));
    ops.extend(rest.iter().copied().chain(more).map(delete));
    ops
}

/// Runs it, and looks at what a crash at some of the events leaves.
fn sweep(order: u64) -> Result<u64, String> {
    let every = if is_slow() { 7 } else { 301 };
    let run = Run { options: compact::options(), ops: program(order), seed: seed() };
    let ran = run.on(full_disk(), History::default(), move |point| {
        if !point.number.is_multiple_of(every) {
            return Ok(());
        }
        point.check_kill()?;
        for i in 0..2 {
            point.check_image(&point.disk.lose_power(mix(seed() ^ i, point.number)), "full")?;
        }
        Ok(())
    })?;
    Ok(ran.events)
}

#[test]
fn no_delete_fails_on_a_full_disk_and_no_crash_loses_anything() {
    for order in 0..3 {
        let events = sweep(order).unwrap_or_else(|error| panic!("order {order}: {error}"));
        println!("order {order}: {events} events");
    }
}

/// Deletes all keys of a full store, in a new process after each few: killed, or after a power loss.
fn delete_between_crashes(order: u64, loses_power: bool) -> Result<(), String> {
    let mut disk = full_disk();
    let mut db = disk.open(&compact::options()).map_err(|error| error.to_string())?;
    let count = fill(&db);
    for (i, number) in in_order(order, count).into_iter().enumerate() {
        db.delete_with(key(number), Sync).map_err(|error| format!("delete {i}: {error}"))?;
        if i % 37 == 36 {
            disk = if loses_power { disk.lose_power(mix(seed(), i as u64)) } else { disk.kill() };
            drop(db);
            db = disk.open(&compact::options()).map_err(|error| format!("after {i}: {error}"))?;
            if db.len() != count - 1 - i as u64 {
                return Err(format!("{} keys of {count} after {i} deletes", db.len()));
            }
        }
    }
    let report = db.check().map_err(|error| error.to_string())?;
    if report.is_clean() { Ok(()) } else { Err(format!("{:?}", report.damages.first())) }
}

#[test]
fn deletes_go_on_after_each_killed_process() {
    for order in 0..3 {
        delete_between_crashes(order, false).unwrap_or_else(|error| panic!("{order}: {error}"));
    }
}

#[test]
fn a_batch_of_deletes_that_the_reserve_has_room_for_is_applied_on_a_full_disk() {
    let db = full_disk().open(&compact::options()).unwrap();
    let count = fill(&db);
    for first in (0..count).step_by(50) {
        let numbers = first..(first + 50).min(count);
        let batch = numbers.fold(Batch::new(), |batch, i| batch.delete(key(i)));
        db.apply(&batch).unwrap_or_else(|error| panic!("from {first} of {count}: {error}"));
    }
    assert!(db.is_empty());
}

#[test]
fn maintenance_makes_room_on_a_full_disk() {
    let db = full_disk().open(&compact::options()).unwrap();
    let count = fill(&db);
    for i in (0..count).step_by(2) {
        db.delete(key(i)).unwrap();
    }
    while !db.maintain(1 << 20).unwrap().is_done {}
    for i in 1000..1000 + count / 4 {
        db.put(key(i), value(i)).unwrap();
    }
}

/// Returns whether something is held back.
fn is_holding(db: &Db) -> bool {
    db.store().lock().unwrap().extents.is_anything_held()
}

#[test]
fn only_on_a_nearly_full_disk_something_is_held_back() {
    let (disk, ordinary) = (SimDisk::new(), SimDisk::new());
    let [db, other] = [&disk, &ordinary].map(|disk| disk.open(&compact::options()).unwrap());
    let put = |numbers: std::ops::Range<u64>| {
        for i in numbers {
            db.put(key(i), value(i)).unwrap();
            other.put(key(i), value(i)).unwrap();
        }
    };
    let limit_with = |free_bytes: u64| disk.limit_to(disk.file().len() as u64 + free_bytes);
    put(0..400);
    assert!(!is_holding(&db));
    assert_eq!(disk.file().len(), ordinary.file().len(), "the disk has no limit");
    limit_with(100 << 20);
    put(400..500);
    assert!(!is_holding(&db), "much is free");
    limit_with(50 << 20);
    put(500..600);
    assert!(is_holding(&db), "little is free");
    limit_with(100 << 20);
    put(600..700);
    assert!(is_holding(&db), "more must be free for the end of a reserve");
    limit_with(200 << 20);
    put(700..800);
    assert!(!is_holding(&db) && !is_holding(&other), "much is free again");
}

#[test]
fn what_was_held_back_goes_at_a_close_when_much_is_free() {
    let bytes_after = |is_limited: bool| {
        let disk = SimDisk::new();
        let db = disk.open(&compact::options()).unwrap();
        if is_limited {
            disk.limit_to(50 << 20);
        }
        (0..8000).for_each(|i| db.put(key(i), value(i)).unwrap());
        assert_eq!(is_holding(&db), is_limited);
        if let Some(needs) = db.store().lock().unwrap().extents.needs() {
            let held_bytes = 3 * needs.segment_bytes + needs.place_bytes;
            assert!(held_bytes > 100 << 10, "{held_bytes} bytes are held back");
        }
        disk.limit_to(u64::MAX);
        db.close().unwrap();
        let used_bytes = || disk.file().len() as u64 - disk.hole_count() * GRANULE_BYTES;
        let closed_bytes = used_bytes();
        let db = disk.open(&compact::options()).unwrap();
        assert!(!is_holding(&db), "nothing is held any more");
        db.maintain(u64::MAX).unwrap();
        db.close().unwrap();
        (closed_bytes, used_bytes())
    };
    let (limited, ordinary) = (bytes_after(true), bytes_after(false));
    // Free ranges of less than a close makes holes of keep their blocks. What was held back is more.
    assert!(limited.0 <= ordinary.0 + ordinary.0 / 16, "{limited:?} and {ordinary:?} bytes");
    assert!(limited.1 <= ordinary.1 + ordinary.1 / 32, "{limited:?} and {ordinary:?} bytes");
}

#[test]
fn a_reserve_that_was_never_whole_shares_with_puts() {
    let disk = SimDisk::new();
    let db = disk.open(&compact::options()).unwrap();
    (0..400).for_each(|i| db.put(key(i), value(i)).unwrap());
    let mut from = 1000;
    for _ in 0..3 {
        let used_bytes = disk.file().len() as u64;
        disk.limit_to(used_bytes + (32 << 10));
        let refused = (from..u64::MAX).find(|&i| db.put(key(i), value(i)).is_err()).unwrap();
        assert!(refused - from >= 12, "{} puts in 32 KiB", refused - from);
        from = refused;
    }
    assert!(is_holding(&db));
}

#[track_caller]
fn assert_found(mutant: Mutant) {
    let found = with(mutant, || (0..3).find_map(|order| sweep(order).err()));
    println!("{mutant:?}: {found:?}");
    assert!(found.is_some(), "{mutant:?} is not found");
}

#[test]
fn puts_that_take_the_reserve_are_found() {
    assert_found(Mutant::PutsTakeReserve);
}

#[test]
fn a_reserve_that_is_not_held_back_again_is_found() {
    assert_found(Mutant::RefillsNothing);
}

/// Fills a disk with records of many sizes and deletes most of them, again and again. No delete fails,
/// and no big record is stored while the reserve is not whole.
fn churn(seed: u64, round_count: u64) -> Result<(), String> {
    let disk = SimDisk::new();
    disk.limit_to(6 << 20);
    let segment_bytes = if seed.is_multiple_of(2) { 64 << 10 } else { 16 << 10 };
    let db = disk.open(&compact::options().segment_bytes_min(segment_bytes)).unwrap();
    let share = 1 + seed / 2 % 6 * 3;
    let size = |i: u64| match mix(seed, i) as usize {
        random if i.is_multiple_of(share) => 17_000 + random % 100_000,
        random => random % 300,
    };
    let mut live: Vec<u64> = Vec::new();
    let mut next = 0;
    for round in 0..round_count {
        let mut refused_in_row = 0;
        while refused_in_row < 3 {
            let value = vec![1; size(next)];
            if db.put(key(next), &value).is_err() {
                refused_in_row += 1;
            } else {
                live.push(next);
                refused_in_row = 0;
                let is_whole = db.store().lock().unwrap().extents.is_reserve_whole();
                if value.len() >= 17_000 && !is_whole {
                    return Err(format!("put {next} was stored beside a reserve in parts"));
                }
            }
            next += 1;
        }
        live.sort_unstable_by_key(|&i| mix(round, i));
        for i in live.drain(live.len() * (1 + round as usize % 3) / 4..) {
            db.delete(key(i)).map_err(|error| format!("round {round}, delete {i}: {error}"))?;
        }
    }
    Ok(())
}

#[test]
fn no_delete_fails_whatever_sizes_come_and_go() {
    let (seeds, round_count) = if is_slow() { (0..24, 30) } else { (22..24, 24) };
    for seed in seeds {
        churn(seed, round_count).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_place_for_a_checkpoint_that_goes_to_segments_is_found() {
    let found = with(Mutant::PlacesBecomeSegments, || churn(23, 24).err());
    println!("{found:?}");
    assert!(found.is_some());
}
