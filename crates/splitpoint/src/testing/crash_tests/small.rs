//! Small programs: every crash point with every image.
//!
//! # What "every" means
//!
//! What a power loss may leave only grows from one sync to the next, so all images of all crash
//! points are among those of the last point before each sync and of the end, where more is known to
//! be synced: those are enumerated, and nothing is left to a seed.
//!
//! At each such point, of the superblocks, the log and the size of the file, every combination is
//! recovered: of each sector that was written any version, of each word of 8 bytes that was stored
//! any value since the last sync, of the size any. The live tables (live header, index) would
//! multiply that by more than can be run. Recovery after a power loss believes them in one case
//! only, that of a clean superblock, so they are in two states for each combination: all as they
//! were at their last sync, and all as they are now. Then, with all else old and with all else new,
//! each of their sectors and words is by itself everything it may be.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::{Counts, History, Op, Point, Run, is_slow, options, seed};
use crate::Durability::{Async, Buffered, Sync};
use crate::SimDisk;
use crate::format::{
    GRANULE_BYTES, HEADER_BYTES, LIVE_OFFSET, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock,
    u64_at,
};
use crate::piece::piece_of;

fn key(i: u8) -> Vec<u8> {
    vec![i]
}

fn put(i: u8, value: &[u8], durability: crate::Durability) -> Op {
    Op::Put(key(i), value.to_vec(), durability)
}

/// A value of `bytes` zeros but for the last byte: few sectors of it differ from empty ones.
fn hollow(bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    value[bytes - 1] = 1;
    value
}

/// Puts of new keys, then of a new one and one that is there.
fn puts_together() -> Vec<Op> {
    vec![
        Op::PutMany((1..4).map(|i| (key(i), vec![i])).collect(), Buffered),
        Op::PutMany(vec![(key(4), Vec::new()), (key(1), Vec::new())], Sync),
    ]
}

/// The programs, each with a name: together they have every kind of event.
#[expect(clippy::too_many_lines, reason = "a list of programs")]
pub(super) fn programs() -> Vec<(&'static str, f64, Vec<Op>)> {
    vec![
        (
            "first changes",
            7.0,
            vec![put(1, b"a", Sync), put(2, b"b", Buffered), put(1, b"c", Async), Op::Sync],
        ),
        (
            "overwrite, delete, insert",
            7.0,
            vec![
                put(1, b"a", Sync),
                put(1, b"b", Buffered),
                put(2, b"", Buffered),
                Op::Delete(key(1), Buffered),
                put(1, b"c", Buffered),
                Op::SyncInBackground,
                Op::Delete(key(1), Sync),
            ],
        ),
        (
            "closed and opened",
            7.0,
            vec![
                put(1, b"a", Buffered),
                Op::Reopen,
                put(2, b"b", Buffered),
                Op::Reopen,
                Op::Reopen,
                put(1, b"c", Sync),
            ],
        ),
        (
            "closed behind a sync, and power lost",
            7.0,
            vec![
                put(1, b"a", Sync),
                Op::Reopen,
                put(2, b"b", Sync),
                Op::Reopen,
                put(1, b"c", Buffered),
                Op::LosePower(3),
                put(3, b"d", Sync),
                Op::Reopen,
                Op::LosePower(u64::MAX),
                put(4, b"e", Sync),
            ],
        ),
        ("closed empty", 7.0, vec![Op::Reopen, put(1, b"a", Buffered), put(2, b"b", Sync)]),
        ("synced empty", 7.0, vec![Op::Sync, put(1, b"a", Buffered), put(2, b"b", Sync)]),
        (
            "closed without a checksum of the index",
            7.0,
            vec![
                put(1, &hollow(1 << 20), Buffered),
                Op::Reopen,
                put(2, b"b", Buffered),
                Op::Reopen,
                put(2, b"c", Sync),
            ],
        ),
        (
            "segments",
            7.0,
            vec![
                put(1, &hollow(3000), Sync),
                put(2, &hollow(2500), Sync),
                put(3, b"c", Buffered),
                put(3, &hollow(3000), Buffered),
                Op::Sync,
            ],
        ),
        (
            "a big record",
            7.0,
            vec![put(1, b"a", Buffered), put(2, &hollow(20_000), Buffered), put(3, b"c", Sync)],
        ),
        (
            "splits and a merge",
            1.0,
            vec![
                put(1, b"", Buffered),
                put(2, b"", Buffered),
                put(3, b"", Sync),
                Op::Delete(key(1), Buffered),
                Op::Delete(key(2), Buffered),
                Op::Delete(key(3), Buffered),
                Op::Sync,
            ],
        ),
        (
            "killed",
            7.0,
            vec![
                put(1, b"a", Sync),
                put(2, b"b", Buffered),
                Op::Kill,
                put(3, b"c", Buffered),
                put(4, b"d", Sync),
                Op::Kill,
                Op::Reopen,
            ],
        ),
        (
            "power lost",
            7.0,
            vec![
                put(1, b"a", Sync),
                put(2, b"b", Buffered),
                Op::LosePower(0),
                put(3, b"c", Buffered),
                put(4, b"d", Sync),
                put(5, b"e", Buffered),
                Op::LosePower(u64::MAX),
                put(6, b"f", Buffered),
            ],
        ),
        ("puts together, behind which buckets are split", 1.0, puts_together()),
        (
            "a batch",
            7.0,
            vec![
                put(1, b"a", Sync),
                Op::Batch(vec![(key(2), Some(b"b".to_vec())), (key(1), None)]),
                Op::Sync,
            ],
        ),
    ]
}

/// Returns where the live header and the pieces of the index are in a file.
fn tables(file: &[u8]) -> Vec<Range<usize>> {
    if file.len() < HEADER_BYTES as usize {
        return Vec::new();
    }
    let live = LIVE_OFFSET as usize;
    let mut tables = Vec::new();
    tables.push(live..HEADER_BYTES as usize);
    for (count_at, pieces_at) in [(416, 1024), (424, 2560)] {
        for piece in 0..u64_at(file, live + count_at) as usize {
            let start = u64_at(file, live + pieces_at + 8 * piece) * GRANULE_BYTES;
            let bytes = piece_of(piece).granule_count() * GRANULE_BYTES;
            tables.push(start as usize..(start + bytes) as usize);
        }
    }
    tables.sort_by_key(|table| table.start);
    tables
}

/// Returns what lies between `tables`.
fn between(tables: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for table in tables {
        ranges.push(start..table.start);
        start = table.end;
    }
    ranges.push(start..usize::MAX);
    ranges
}

/// Refuses a machine on which a power loss may take both superblocks.
pub(super) fn check_superblocks(point: &Point<'_>) -> Result<(), String> {
    // A device may write part of one only, whatever the size of its sectors.
    let (durable, cached) = (point.disk.outcomes().seeded(0).file(), point.disk.file());
    let is_on_its_way = |&at: &u64| {
        let block = at as usize..(at + SUPERBLOCK_BYTES) as usize;
        durable.get(block.clone()) != cached.get(block)
    };
    let is_lost = |at: &u64| {
        let start = *at as usize;
        let block = durable.get(start..start + SUPERBLOCK_BYTES as usize);
        is_on_its_way(at) || block.is_none_or(|block| Superblock::decode(block).is_err())
    };
    if point.history.is_promised && SUPERBLOCK_OFFSETS.iter().all(is_lost) {
        return Err("power lost, neither superblock is durable".to_string());
    }
    Ok(())
}

/// Recovers every image at a point.
fn check_every(point: &Point<'_>, counts: &mut Counts) -> Result<(), String> {
    let outcomes = point.disk.outcomes();
    check_superblocks(point)?;
    let tables = tables(&point.disk.file());
    let mut failure = Ok(());
    let mut recovered = 0;
    let mut visit = |image: Vec<u8>| {
        recovered += 1;
        if failure.is_ok() {
            let lost = outcomes.of_image(image);
            failure = point.check_image(&lost, &format!("image {recovered}")).map(drop);
        }
    };
    let mut count = outcomes.every(&between(&tables), &mut visit);
    for table in &tables {
        count += outcomes.each_alone(table, &(0..LIVE_OFFSET as usize), &mut visit);
    }
    counts.images += count;
    failure
}

/// Returns which calls to the storage are syncs, and of what, up to the end of the first machine.
pub(super) fn syncs(fill_factor: f64, ops: &[Op]) -> Vec<(u64, Range<u64>)> {
    let run = Run { options: options(fill_factor), ops: ops.to_vec(), seed: seed() };
    let disk = Rc::new(RefCell::new(Vec::new()));
    let calls = disk.clone();
    let is_first = std::cell::Cell::new(true);
    let visit = move |point: &Point<'_>| {
        let now = point.disk.syncs();
        // A machine that takes over begins to count anew.
        is_first.set(is_first.get() && now.len() >= calls.borrow().len());
        if is_first.get() {
            calls.replace(now);
        }
        Ok(())
    };
    run.on(SimDisk::new(), History::default(), visit).expect("nothing fails here");
    disk.take()
}

/// Runs a program on a machine; an error says where something was lost. At each of `second_every`
/// events, recoveries are crashed again.
pub(super) fn sweep(
    disk: SimDisk,
    fill_factor: f64,
    ops: &[Op],
    second_every: u64,
) -> Result<Counts, String> {
    let run = Run { options: options(fill_factor), ops: ops.to_vec(), seed: seed() };
    let counts = Rc::new(RefCell::new(Counts::default()));
    let sum = counts.clone();
    let visit = move |point: &Point<'_>| {
        let counts = &mut *sum.borrow_mut();
        counts.kills += 1;
        point.check_kill()?;
        if point.is_before_sync {
            check_every(point, counts)?;
            point.check_next_process(|next| check_every(next, counts))?;
        }
        if point.number.is_multiple_of(second_every) {
            for image_seed in [0, super::mix(point.seed, point.number), u64::MAX] {
                counts.second += point.check_second_crash(image_seed, 2)?;
            }
        }
        Ok(())
    };
    let ran = run.on(disk, History::default(), visit)?;
    let counts = *counts.borrow();
    Ok(Counts { points: ran.events, moved_bytes: ran.moved_bytes, ..counts })
}

#[test]
fn every_image_of_every_crash_point_of_small_programs_is_a_prefix_with_everything_synced() {
    let mut sum = Counts::default();
    let second_every = if is_slow() { 1 } else { 40 };
    for (name, fill_factor, ops) in programs() {
        let counts = match sweep(SimDisk::new(), fill_factor, &ops, second_every) {
            Ok(counts) => counts,
            Err(error) => panic!("{name}: {error}"),
        };
        println!("{name}: {counts:?}");
        sum.add(counts);
    }
    println!("all: {sum:?}");
    assert!(sum.points > 500 && sum.images > 2000 && sum.second > 1000, "{sum:?}");
}

/// The process that is killed may have written a superblock and not waited for it.
#[test]
fn no_process_after_a_kill_writes_over_the_only_durable_superblock() {
    let visited = Rc::new(RefCell::new(0));
    for (name, fill_factor, ops) in programs() {
        let options = options(fill_factor);
        let run = Run { options: options.clone(), ops, seed: seed() };
        let sum = visited.clone();
        let visit = move |point: &Point<'_>| {
            let next = vec![Op::Put(b"next".to_vec(), Vec::new(), Sync), Op::Reopen];
            let next = Run { options: options.clone(), ops: next, seed: seed() };
            let history = point.history.clone();
            let killed = point.disk.kill();
            let seen = sum.clone();
            let visit = move |point: &Point<'_>| {
                *seen.borrow_mut() += 1;
                check_superblocks(point)
            };
            next.on(killed, history, visit).map(drop).map_err(|error| format!("killed, {error}"))
        };
        let ran = run.on(SimDisk::new(), History::default(), visit);
        assert_eq!(ran.map(drop), Ok(()), "{name}");
    }
    println!("{} events", visited.borrow());
    assert!(*visited.borrow() > 10_000, "{}", visited.borrow());
}
