//! Files that are compacted: every crash point while records move, checkpoints are made and space is
//! used again. What is freed is overwritten at once, so whoever still needs it finds out.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::large::{self, Depth};
use super::{History, Op, Point, Run, is_slow, mix, seed, with_checkpoints};
use crate::Durability::{Async, Buffered, Sync};
use crate::format::{SEGMENT_MAGIC, SegmentHeader, SegmentKind};
use crate::testing::mutant::{Mutant, with};
use crate::{Options, SimDisk};

/// Keys whose values are not overwritten, so that they move.
const COLD_KEYS: u64 = 5;
const KEYS: u64 = 12;
const BIG_KEY: u64 = 100;

fn key(i: u64) -> Vec<u8> {
    format!("key {i}").into_bytes()
}

/// Makes operations whose values all differ.
#[derive(Default)]
struct Program {
    ops: Vec<Op>,
    number: u64,
}

impl Program {
    fn value(&mut self, bytes: u64) -> Vec<u8> {
        self.number += 1;
        (0..bytes).map(|at| (at * 7 + self.number) as u8).collect()
    }

    fn pair(&mut self) -> (Vec<u8>, Vec<u8>) {
        let random = mix(19, self.number);
        let value = self.value(100 + random % 500);
        (key(COLD_KEYS + (random >> 20) % (KEYS - COLD_KEYS)), value)
    }

    /// Overwrites keys that are hot, with what the thread in the background does between.
    fn overwrite(&mut self, count: u64) {
        for i in 0..count {
            let (key, value) = self.pair();
            let durability = if i % 9 == 8 { Sync } else { Buffered };
            self.ops.push(Op::Put(key, value, durability));
            if i % 4 == 3 {
                self.ops.push(Op::SyncInBackground);
            }
        }
    }

    fn put(&mut self, key_number: u64, bytes: u64) {
        let value = self.value(bytes);
        self.ops.push(Op::Put(key(key_number), value, Async));
    }

    /// Overwrites while a value and a scan are held.
    fn overwrite_while_held(&mut self, held: u64, count: u64) {
        let mut inner = Self { ops: Vec::new(), number: self.number };
        inner.overwrite(count / 2);
        inner.ops.push(Op::Maintain(u64::MAX));
        inner.overwrite(count / 2);
        inner.ops.push(Op::Maintain(u64::MAX));
        self.number = inner.number;
        self.ops.push(Op::WhileHeld(key(held), inner.ops));
    }
}

/// Overwrites a store until it is compacted, in several sessions; big values, batches, deletes, and
/// what holds space back.
pub(super) fn program() -> Vec<Op> {
    let mut program = Program::default();
    for i in 0..KEYS {
        program.put(i, 150);
    }
    program.put(BIG_KEY, 5000);
    program.overwrite(44);
    // Victims that are not read to their end.
    (0..3).for_each(|_| program.ops.push(Op::Maintain(700)));
    program.put(BIG_KEY, 4500);
    program.overwrite_while_held(COLD_KEYS, 20);
    program.ops.push(Op::Maintain(u64::MAX));
    let (first, second) = (program.pair(), program.pair());
    let batch = vec![(first.0, Some(first.1)), (key(0), None), (second.0, Some(second.1))];
    program.ops.push(Op::Batch(batch));
    program.ops.push(Op::Reopen);
    program.overwrite(8);
    let pairs: Vec<_> = (0..12).map(|_| program.pair()).collect();
    program.ops.push(Op::PutMany(pairs, Buffered));
    program.ops.push(Op::Delete(key(BIG_KEY), Buffered));
    program.ops.push(Op::Kill);
    program.overwrite(16);
    program.ops.extend((1..6).map(|i| Op::Delete(key(i), Buffered)));
    program.ops.push(Op::LosePower(3));
    program.put(1, 120);
    program.overwrite_while_held(COLD_KEYS + 1, 12);
    program.ops.push(Op::Maintain(u64::MAX));
    program.ops.push(Op::Reopen);
    program.put(2, 50);
    program.ops
}

pub(super) fn options() -> Options {
    unpoisoned().poison_freed()
}

/// Options under which freed space stays as it was, as it does in use.
fn unpoisoned() -> Options {
    let options = Options::new().fill_factor(4.0).seed(1).segment_bytes_min(4096);
    with_checkpoints(options.durability(Buffered).live_share(0.9), 2048)
}

fn depth() -> Depth {
    if is_slow() {
        Depth { images: 40, second_every: 20, share: (0, 1) }
    } else {
        Depth { images: 1, second_every: 400, share: (0, 3) }
    }
}

/// Returns the sequence numbers and the kinds of the segments whose headers are in a file.
fn segments(file: &[u8]) -> impl Iterator<Item = (u64, SegmentHeader)> {
    (0..file.len()).step_by(4096).filter_map(|at| {
        let header = file.get(at..)?.get(..SegmentHeader::BYTES as usize)?;
        let is_one = crate::format::u32_at(header, 0) == SEGMENT_MAGIC;
        let decoded = SegmentHeader::decode(header, at as u64, file.len() as u64).ok();
        decoded.filter(|_| is_one).map(|header| (at as u64, header))
    })
}

/// The program is what it says.
#[test]
fn the_program_moves_records_and_uses_their_space_again() {
    let seen = Rc::new(RefCell::new(BTreeMap::<u64, Vec<(u64, SegmentKind)>>::new()));
    let (of_offset, file_bytes) = (seen.clone(), Rc::new(Cell::new(0)));
    let last = file_bytes.clone();
    let visit = move |point: &Point<'_>| {
        let file = point.disk.file();
        for (offset, header) in segments(&file) {
            let mut seen = of_offset.borrow_mut();
            let all = seen.entry(offset).or_default();
            if all.last() != Some(&(header.sequence, header.kind)) {
                all.push((header.sequence, header.kind));
            }
        }
        last.set(file.len());
        Ok(())
    };
    let run = Run { options: options(), ops: program(), seed: seed() };
    let ran = run.on(SimDisk::new(), History::default(), visit);
    let ran = ran.unwrap_or_else(|error| panic!("{error}"));
    let seen = seen.borrow();
    let count = |kind| seen.values().flatten().filter(|segment| segment.1 == kind).count();
    let counts = [SegmentKind::Log, SegmentKind::Compacted, SegmentKind::Big].map(count);
    let reused: usize = seen.values().map(|all| all.len() - 1).sum();
    println!("{ran:?}, {counts:?} segments, {reused} reused, {} bytes", file_bytes.get());
    assert!(counts[1] > 2 && reused > 10, "{counts:?} {reused}");
    assert!(counts[2] >= 2 && file_bytes.get() < 200_000, "{counts:?} {file_bytes:?}");
}

/// A sweep of a program that moves nothing says so.
#[test]
fn a_sweep_under_an_engine_that_never_compacts_is_found() {
    let depth = Depth { images: 0, second_every: 100_000, share: (0, 100) };
    let sweep = || large::sweep(SimDisk::new(), options(), &program(), seed(), depth);
    let counts = with(Mutant::NeverCompacts, sweep).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(counts.moved_bytes, 0, "{counts:?}");
}

#[test]
fn every_crash_point_of_compaction_leaves_a_prefix_with_everything_synced() {
    let swept = large::sweep(SimDisk::new(), options(), &program(), seed(), depth());
    let counts = swept.unwrap_or_else(|error| panic!("{error}"));
    println!("{counts:?}");
    assert!(counts.points > 500 && counts.second > 400, "{counts:?}");
    assert!(counts.moved_bytes > 8_000, "{counts:?}");
}

/// What is left of a store that was cleared goes to the beginning of the file, and records are moved
/// there again.
#[test]
fn a_store_that_was_cleared_and_maintained_keeps_what_comes_then() {
    let mut program = Program::default();
    for i in 0..KEYS {
        program.put(i, 300);
    }
    program.overwrite(60);
    program.ops.push(Op::Maintain(u64::MAX));
    program.ops.extend((0..KEYS).map(|i| Op::Delete(key(i), Buffered)));
    program.ops.push(Op::Sync);
    program.ops.push(Op::Maintain(u64::MAX));
    program.ops.push(Op::Reopen);
    for i in 0..KEYS {
        program.put(i, 100);
    }
    program.overwrite(60);
    program.ops.push(Op::Maintain(700));
    program.ops.push(Op::LosePower(1));
    program.overwrite(20);
    let swept = large::sweep(SimDisk::new(), options(), &program.ops, seed(), depth());
    let counts = swept.unwrap_or_else(|error| panic!("{error}"));
    println!("{counts:?}");
    assert!(counts.points > 300 && counts.moved_bytes > 5_000, "{counts:?}");
}

/// Lengthens the log, then the index, whose last pieces are behind it, and has the front become free.
fn index_at_the_end() -> Vec<Op> {
    let mut program = Program::default();
    (0..60).for_each(|i| program.put(i, 600));
    (0..300).for_each(|i| program.put(1000 + i, 1));
    program.ops.extend((12..60).map(|i| Op::Delete(key(i), Buffered)));
    program.overwrite(24);
    program.ops.extend([Op::Maintain(u64::MAX), Op::SyncInBackground, Op::Maintain(u64::MAX)]);
    program.overwrite(4);
    program.ops.push(Op::Kill);
    program.overwrite(4);
    program.ops.extend([Op::Maintain(u64::MAX), Op::Reopen]);
    program.put(1, 20);
    program.ops
}

#[test]
fn pieces_of_the_index_and_heads_that_move_leave_every_key_at_every_crash_point() {
    let ops = index_at_the_end();
    // It has so many events that a twelfth of them are 780 crash points, and 1,740 in recoveries.
    let depth = if is_slow() { depth() } else { Depth { share: (0, 12), ..depth() } };
    let swept = large::sweep(SimDisk::new(), options(), &ops, seed(), depth);
    let counts = swept.unwrap_or_else(|error| panic!("{error}"));
    println!("{counts:?}");
    assert!(counts.points > 500 && counts.second > 300, "{counts:?}");
    assert!(counts.moved_bytes > 24_000, "{counts:?}");
}

#[test]
fn a_piece_of_the_index_moved_without_its_lines_is_found() {
    let depth = Depth { images: 1, second_every: 1000, share: (0, 20) };
    assert_found_at(&index_at_the_end(), Mutant::MovesPieceUncopied, depth);
}

/// Asserts that the sweep of a program finds a mistake of the engine.
#[track_caller]
fn assert_found_in(ops: &[Op], mutant: Mutant) {
    let depth = Depth { images: 3, second_every: 1000, share: (0, 1) };
    assert_found_at(ops, mutant, depth);
}

#[track_caller]
fn assert_found_at(ops: &[Op], mutant: Mutant, depth: Depth) {
    let swept = with(mutant, || large::sweep(SimDisk::new(), options(), ops, seed(), depth));
    let Err(found) = swept else { panic!("{mutant:?} goes unnoticed") };
    println!("{mutant:?}: {found}");
}

#[track_caller]
fn assert_found(mutant: Mutant) {
    assert_found_in(&program(), mutant);
}

/// The counts of a file without a segment table are means, so that one is 0 while records live.
#[test]
fn a_segment_freed_because_nothing_is_counted_there_is_found() {
    let mut program = Program::default();
    (0..20).for_each(|i| program.put(i, 300));
    (0..9).for_each(|_| program.put(50, 700));
    program.ops.push(Op::Reopen);
    (0..8).for_each(|i| program.put(i, 300));
    for _ in 0..8 {
        (0..4).for_each(|_| program.put(50, 700));
        program.ops.push(Op::SyncInBackground);
    }
    program.ops.push(Op::Maintain(u64::MAX));
    let depth = Depth { images: 1, second_every: 1000, share: (0, 20) };
    let right = large::sweep(SimDisk::new(), options(), &program.ops, seed(), depth);
    right.unwrap_or_else(|error| panic!("{error}"));
    assert_found_in(&program.ops, Mutant::FreesByCount);
}

#[test]
fn space_used_again_before_the_log_is_durable_is_found() {
    assert_found_in_churn(Mutant::ReusesUndurable);
}

#[test]
fn space_used_again_that_a_replay_reads_is_found() {
    assert_found_in_churn(Mutant::ReusesReplayed);
}

/// Only the last of thousands of events show the mistake; a twentieth of them are enough.
#[track_caller]
fn assert_found_in_churn(mutant: Mutant) {
    let (images, share) = if is_slow() { (3, (0, 1)) } else { (1, (0, 20)) };
    let depth = Depth { images, second_every: 1000, share };
    let right = large::sweep(SimDisk::new(), options(), &churn(), seed(), depth);
    right.unwrap_or_else(|error| panic!("{error}"));
    assert_found_at(&churn(), mutant, depth);
}

/// Overwrites again and again, with nothing that keeps space from being used again.
fn churn() -> Vec<Op> {
    let mut program = Program::default();
    for round in 0..14 {
        (0..24).for_each(|i| program.put((i * 7 + round) % 24, 250));
        program.ops.push(Op::SyncInBackground);
    }
    program.ops
}

/// Stores big records where others have died that are still there: as large, and as new to their keys.
fn bigs() -> Vec<Op> {
    let mut program = Program::default();
    for round in 0..12 {
        let new = 200 + 3 * round;
        (new..new + 3).for_each(|i| program.put(i, 5000));
        (0..12).for_each(|i| program.put(i, 150));
        (new..new + 3).for_each(|i| program.put(i, 20));
        program.ops.push(Op::SyncInBackground);
        if round % 4 == 3 {
            // What was lost is stored again, at the numbers in the log that come again.
            program.put(new + 3, 5000);
            program.put(new + 4, 5000);
            program.ops.push(Op::LosePower(round));
            program.put(new + 3, 5000);
        }
    }
    program.ops
}

/// A power loss may take a big record and leave the one before it, which is valid.
#[test]
fn a_big_record_in_the_place_of_another_is_that_one_or_ends_the_log() {
    let depth = Depth { images: 6, second_every: 1000, share: (0, if is_slow() { 1 } else { 8 }) };
    let sweep = || large::sweep(SimDisk::new(), unpoisoned(), &bigs(), seed(), depth);
    sweep().unwrap_or_else(|error| panic!("{error}"));
    let found = with(Mutant::TakesOlderBigs, sweep).expect_err("it takes older ones");
    println!("{found}");
}

#[test]
fn copies_that_the_log_does_not_name_are_found() {
    assert_found(Mutant::MovesUnnamed);
}

#[test]
fn a_sync_without_the_copies_that_the_log_names_is_found() {
    assert_found(Mutant::SyncsWithoutCopies);
}

#[test]
fn a_record_of_a_file_moved_without_a_name_under_a_scan_is_found() {
    assert_found(Mutant::MovesWithoutName);
}

#[test]
fn a_segment_of_a_file_that_was_not_read_to_its_end_is_found() {
    let mut program = Program::default();
    (0..40).for_each(|i| program.put(i, 300));
    program.ops.push(Op::Maintain(u64::MAX));
    for round in 0..8 {
        // Of each segment some records die.
        (0..10).for_each(|i| program.put(4 * i + round % 4, 300));
        program.ops.extend([Op::Maintain(700), Op::SyncInBackground, Op::Maintain(700)]);
    }
    let depth = Depth { images: 1, second_every: 1000, share: (0, 20) };
    let right = large::sweep(SimDisk::new(), options(), &program.ops, seed(), depth);
    right.unwrap_or_else(|error| panic!("{error}"));
    assert_found_at(&program.ops, Mutant::EmptiesUnread, depth);
}

#[test]
fn space_of_a_file_used_again_under_a_value_is_found() {
    assert_found(Mutant::ReusesPinned);
}

#[test]
fn space_of_a_file_used_again_under_a_scan_is_found() {
    assert_found(Mutant::ReusesUnderScan);
}
