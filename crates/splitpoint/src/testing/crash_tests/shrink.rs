//! A table that shrinks gives index pieces back: every crash point around that.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::{History, Op, Point, Run, mix, seed, with_checkpoints};
use crate::Durability::{Buffered, Sync};
use crate::format::LIVE_OFFSET;
use crate::testing::mutant::{Mutant, with};
use crate::{Options, SimDisk};

/// Keys that fill three pieces of buckets.
const KEYS: u64 = 600;
/// Events that are looked at after each that changed which granules are whose.
const EVENTS_AFTER: u64 = 3;

fn key(i: u64) -> Vec<u8> {
    i.to_le_bytes().to_vec()
}

/// Fills a table, empties it, and fills the space that it gave back with segments of the log.
fn program() -> Vec<Op> {
    let mut ops: Vec<Op> = (0..KEYS).map(|i| Op::Put(key(i), Vec::new(), Buffered)).collect();
    ops.push(Op::Sync);
    ops.extend((0..KEYS).map(|i| Op::Delete(key(i), if i % 100 == 99 { Sync } else { Buffered })));
    ops.extend((0..8).map(|i| Op::Put(key(i), vec![7; 2000], Buffered)));
    ops.push(Op::Reopen);
    ops.push(Op::Put(key(1), vec![8; 9], Sync));
    ops
}

/// Returns the words of the live header that say where the index is, and which granules are free.
fn places(disk: &SimDisk) -> Vec<u8> {
    let file = disk.file();
    let at = |range: std::ops::Range<usize>| file.get(range).unwrap_or_default().to_vec();
    let live = LIVE_OFFSET as usize;
    [at(live + 320..live + 344), at(live + 384..live + 440)].concat()
}

fn options() -> Options {
    let options = Options::new().fill_factor(4.0).seed(1).segment_bytes_min(4096);
    with_checkpoints(options.durability(Buffered), 8192)
}

/// Returns how many crash points were looked at; an error says where something was lost.
fn sweep(options: Options) -> Result<u64, String> {
    let (last, until) = (RefCell::new(Vec::new()), Cell::new(0));
    let visited = Rc::new(Cell::new(0_u64));
    let count = visited.clone();
    let visit = move |point: &Point<'_>| {
        let now = places(point.disk);
        if *last.borrow() != now {
            last.replace(now);
            until.set(point.number + EVENTS_AFTER);
        }
        // The table that grows does so in every other sweep.
        let is_shrinking = point.history.tried() as u64 > KEYS;
        if !is_shrinking || point.number > until.get() {
            return Ok(());
        }
        count.set(count.get() + 1);
        point.check_kill()?;
        let outcomes = point.disk.outcomes();
        for image_seed in [0, mix(point.seed, point.number), u64::MAX] {
            point.check_image(&outcomes.seeded(image_seed), "one image")?;
        }
        if point.number.is_multiple_of(16) {
            point.check_next_process(|next| {
                let lost = next.disk.lose_power(mix(next.seed, next.number));
                next.check_image(&lost, "one image").map(drop)
            })?;
        }
        Ok(())
    };
    let run = Run { options, ops: program(), seed: seed() };
    run.on(SimDisk::new(), History::default(), visit)?;
    Ok(visited.get())
}

#[test]
fn every_crash_point_at_which_index_pieces_go_leaves_a_prefix_with_everything_synced() {
    let count = sweep(options()).unwrap_or_else(|error| panic!("{error}"));
    println!("{count} crash points");
    assert!(count > 50, "{count} crash points");
}

#[test]
fn granules_that_are_free_while_their_piece_is_listed_are_found_by_killing() {
    // Where the segment table is in the file, nobody reads the list of the live header.
    let options = options().segment_bytes_min(64 << 10).keep_dead_records();
    let swept = with(Mutant::FreesPieceFirst, || sweep(options));
    let found = swept.expect_err("it goes unnoticed");
    println!("{found}");
    assert!(found.contains("killed: "), "{found}");
}
