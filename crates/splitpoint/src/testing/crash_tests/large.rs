//! Large programs: every crash point, with images chosen by seed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::small::check_superblocks;
use super::{
    Counts, History, Op, Point, Run, check_goes_on, is_slow, mix, options, seed, with_checkpoints,
};
use crate::Durability::{Async, Buffered, Sync};
use crate::{Options, SimDisk};

fn key(i: u64) -> Vec<u8> {
    format!("key {i}").into_bytes()
}

/// Grows a table, overwrites, deletes and shrinks it; small, big and empty records; all
/// durabilities; several segments; closes, kills and power losses between.
pub(super) fn program() -> Vec<Op> {
    let put = |i: u64, bytes: usize, durability| {
        Op::Put(key(i), (0..bytes).map(|at| (at as u64 * 7 + i) as u8).collect(), durability)
    };
    let mut ops = vec![
        Op::Delete(key(0), Async),
        put(0, 4, Async),
        Op::Put(Vec::new(), Vec::new(), Sync),
        put(1, 1500, Buffered),
        put(1, 17_000, Sync),
        Op::Delete(key(0), Sync),
    ];
    for i in 0..30 {
        ops.push(put(i, 60 + i as usize, if i % 8 == 0 { Sync } else { Async }));
        if i % 5 == 4 {
            ops.push(Op::SyncInBackground);
        }
    }
    ops.push(Op::Sync);
    for durability in [Buffered, Sync] {
        let pair = |i: u64| (key(60 + i % 9), vec![i as u8; 50]);
        ops.push(Op::PutMany((0..12).map(pair).collect(), durability));
    }
    for i in 0..8 {
        ops.push(put(2 * i, 300, Buffered));
    }
    ops.push(Op::Kill);
    ops.push(put(3, 20, Buffered));
    ops.push(put(50, 20_000, Async));
    ops.push(Op::Batch((0..6).map(|i| (key(i), (i % 2 == 0).then(|| vec![i as u8; 9]))).collect()));
    ops.push(Op::Reopen);
    for i in 6..30 {
        ops.push(Op::Delete(key(i), if i % 9 == 4 { Sync } else { Buffered }));
        if i % 10 == 9 {
            ops.push(Op::SyncInBackground);
        }
    }
    ops.push(Op::LosePower(3));
    ops.push(put(3, 6000, Async));
    ops.push(Op::Reopen);
    ops.push(put(4, 10, Sync));
    ops.push(Op::Delete(Vec::new(), Async));
    ops
}

/// How much the log grows between two checkpoints: several are made in each session.
const CHECKPOINT_BYTES: u64 = 512;

/// Returns options for a store that makes them.
pub(super) fn checkpointing(fill_factor: f64) -> Options {
    with_checkpoints(options(fill_factor), CHECKPOINT_BYTES)
}

/// How many images of each crash point a sweep recovers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    /// Images of a power loss at each event, beside the oldest and the newest.
    pub(super) images: u64,
    /// At each of so many events, one image's recovery is crashed again at each of its events.
    pub(super) second_every: u64,
    /// Which share of the events this run looks at: the first number of the second.
    pub(super) share: (u64, u64),
}

impl Depth {
    pub(super) const QUICK: Self = Self { images: 1, second_every: 100, share: (0, 1) };
}

/// Runs a program; an error says where something was lost.
pub(super) fn sweep(
    disk: SimDisk,
    options: Options,
    ops: &[Op],
    seed: u64,
    depth: Depth,
) -> Result<Counts, String> {
    let run = Run { options, ops: ops.to_vec(), seed };
    let counts = Rc::new(RefCell::new(Counts::default()));
    let ran = run.on(disk, History::default(), visit(depth, counts.clone()))?;
    let counts = *counts.borrow();
    let (moved_bytes, acted_meanwhile) = (ran.moved_bytes, ran.acted_meanwhile);
    Ok(Counts { moved_bytes, acted_meanwhile, handed_over: ran.handed_over, ..counts })
}

/// Returns what looks at an event, and counts.
pub(super) fn visit(
    depth: Depth,
    counts: Rc<RefCell<Counts>>,
) -> impl FnMut(&Point<'_>) -> Result<(), String> {
    move |point| {
        if point.number % depth.share.1 != depth.share.0 {
            return Ok(());
        }
        let counts = &mut *counts.borrow_mut();
        counts.points += 1;
        counts.kills += 1;
        point.check_kill()?;
        if point.is_before_sync {
            check_superblocks(point)?;
            point.check_next_process(|next| {
                let lost = next.disk.lose_power(mix(next.seed, next.number));
                next.check_image(&lost, "one image").map(drop)
            })?;
        }
        let outcomes = point.disk.outcomes();
        let seeds = (0..depth.images).map(|i| mix(point.seed, point.number << 20 | i));
        for image_seed in [0, u64::MAX].into_iter().chain(seeds) {
            let lost = outcomes.seeded(image_seed);
            let what = format!("image {image_seed}");
            let (found, db) = point.check_image(&lost, &what)?;
            counts.images += 1;
            if image_seed % 16 == 5 {
                let history = point.history.first(found);
                check_goes_on(&lost, &db, point.options, &history, point.seed)
                    .map_err(|error| format!("{what}: {error}"))?;
            }
        }
        if (point.number / depth.share.1).is_multiple_of(depth.second_every) {
            let image_seed = mix(point.seed, !point.number);
            counts.second += point.check_second_crash(image_seed, 1 + depth.images / 128)?;
        }
        Ok(())
    }
}

#[test]
fn every_crash_point_of_a_large_program_leaves_a_prefix_with_everything_synced() {
    for fill_factor in [1.0, 7.0] {
        match sweep(SimDisk::new(), checkpointing(fill_factor), &program(), seed(), Depth::QUICK) {
            Ok(counts) => {
                println!("fill factor {fill_factor}: {counts:?}");
                assert!(counts.points > 500 && counts.second > 1000, "{counts:?}");
            }
            Err(error) => panic!("fill factor {fill_factor}: {error}"),
        }
    }
}

/// The program is what it says.
#[test]
fn the_large_program_splits_merges_overflows_and_fills_segments() {
    let shape = Rc::new(RefCell::new((0, 0, 0, 0)));
    let last = shape.clone();
    let checkpoint_count = Rc::new(Cell::new(0));
    let from_checkpoint = checkpoint_count.clone();
    let visit = move |point: &Point<'_>| {
        if point.number.is_multiple_of(3) {
            let lost =
                point.disk.lose_power(0).open(point.options).map_err(|error| error.to_string())?;
            if let crate::Recovery::Replayed { checkpoint_keys, .. } = lost.recovery() {
                from_checkpoint.set(from_checkpoint.get() + u64::from(checkpoint_keys > 0));
            }
            let db = point.disk.kill().open(point.options).map_err(|error| error.to_string())?;
            let stats = db.stats().map_err(|error| error.to_string())?;
            let (most, _, overflow, segments) = *last.borrow();
            let now = stats.geometry.bucket_count();
            let lines = stats.overflow_line_count;
            last.replace((
                now.max(most),
                now,
                lines.max(overflow),
                stats.segments.log.max(segments),
            ));
        }
        Ok(())
    };
    let run = Run { options: checkpointing(1.0), ops: program(), seed: seed() };
    run.on(SimDisk::new(), History::default(), visit).expect("nothing fails here");
    let checkpoint_count = checkpoint_count.get();
    assert!(checkpoint_count > 10, "{checkpoint_count} recoveries began with a checkpoint");
    let (most, last, overflow, log_bytes) = *shape.borrow();
    assert!(most > 15 && last < most / 2 && overflow > 0, "{most} {last} {overflow}");
    assert!(log_bytes >= 3 * 4096, "{log_bytes}");
}

/// With `SPLITPOINT_SLOW=1`: a thousand images of each crash point, on two threads.
#[test]
fn a_thousand_images_of_every_crash_point_are_prefixes_with_everything_synced() {
    let (images, threads) = if is_slow() { (1000, 2) } else { (8, 2) };
    let share_count = if is_slow() { threads } else { 20 * threads };
    let sum = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|thread| {
                let depth = Depth { images, second_every: 4, share: (thread, share_count) };
                scope.spawn(move || {
                    sweep(SimDisk::new(), checkpointing(2.0), &program(), seed(), depth)
                })
            })
            .collect();
        let mut sum = Counts::default();
        for run in runs {
            match run.join() {
                Ok(Ok(counts)) => sum.add(counts),
                Ok(Err(error)) => panic!("{error}"),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        sum
    });
    println!("{images} images each: {sum:?}");
    assert!(sum.images >= sum.points * images && sum.points > 0, "{sum:?}");
}
