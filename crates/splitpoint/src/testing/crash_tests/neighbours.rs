//! Several handles with locks, each of which knows of the others: they take turns and keep their place between
//! them, have places among the readers, and keep values, scans and snapshots over the reuse of space.
//!
//! One thread plays all of them, and the threads that give up a place which is kept. The locks are those of the
//! real kernel, so a handle that is killed loses them at once, wherever it is in a call.
//!
//! # Not here
//!
//! Nothing waits: who finds a place taken by a living handle that does not give it up fails at once. Readers that
//! keep writers out, handles that exclude others, and the counts of lookups that processes share: tests with
//! processes have those.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use super::handles::{interleave, kill_callers, of_survivor, with_third};
use super::keeping::Keeping;
use super::large::{self, Depth};
use super::turns::{by_turns, ops_of};
use super::{
    Content, Counts, History, Kept, Op, PER_CALL, Point, READER, READER_PER_CALL, Run, compact,
    is_slow, mix, of_number, read, seed,
};
use crate::atomic::kill_points::observe;
use crate::storage::sim::SimDisk;
use crate::testing::mutant::{Mutant, with};
use crate::{Db, Durability, Options, Sharing};

fn options(options: Options) -> Options {
    by_turns(options).lock_timeout(Duration::ZERO)
}

/// Gives each operation to one of three handles, of which one holds no lock between calls, and has readers act
/// between them.
fn spread(ops: Vec<Op>, seed: u64) -> Vec<Op> {
    let mut spread = Vec::new();
    // In a row, so that a handle keeps its place. The first two rows do that with every seed.
    let (mut number, mut left) = (0, 0);
    let mut first_rows = [(0, 22), (1, 22)].into_iter();
    for (i, op) in ops_of(ops).into_iter().enumerate() {
        let random = mix(seed, i as u64);
        if left == 0 {
            (number, left) = first_rows.next().unwrap_or(match random % 7 {
                0 | 1 => (0, 30),
                2 | 3 => (1, 1 + random / 7 % 40),
                4 => (PER_CALL, 1 + random / 7 % 6),
                _ => (random as usize / 7 % 2, 1),
            });
        }
        left -= 1;
        let reader =
            [READER, READER + 1, READER_PER_CALL, 0, PER_CALL][(random >> 20) as usize % 5];
        let of_reader = match random >> 32 & 15 {
            0 => Some(Op::Keep(Kept::Nothing)),
            1 => Some(Op::Keep(Kept::Values(3))),
            2 => Some(Op::Keep(Kept::Scan)),
            3 => Some(Op::Keep(Kept::Snapshot)),
            4 => Some(Op::Release),
            5 => Some(Op::Kill),
            6 => Some(Op::Reopen),
            _ => None,
        };
        spread.extend(of_reader.map(|op| Op::By(reader, Box::new(op))));
        spread.push(Op::By(number, Box::new(op)));
    }
    spread
}

fn depth(share: u64) -> Depth {
    if is_slow() {
        Depth { images: 4, ..Depth::QUICK }
    } else {
        Depth { second_every: 1000, share: (0, share), ..Depth::QUICK }
    }
}

fn try_sweep(of: Options, ops: &[Op], depth: Depth) -> Result<Counts, String> {
    large::sweep(SimDisk::with_locks(), options(of), ops, seed(), depth)
}

#[test]
fn every_crash_point_of_handles_with_locks_leaves_a_prefix_with_everything_synced() {
    let mut handed_over = 0;
    for (of, ops) in [
        (large::checkpointing(1.0), large::program()),
        (compact::options(), [compact::program(), compact::program()].concat()),
    ] {
        let ops = spread(ops, seed());
        let counts = try_sweep(of, &ops, depth(5)).unwrap_or_else(|error| panic!("{error}"));
        println!("{counts:?}");
        assert!(counts.points > 200, "{counts:?}");
        handed_over += counts.handed_over;
    }
    assert!(handed_over > 0, "nobody kept the place");
}

#[test]
fn every_crash_point_of_handles_with_locks_that_act_between_turn_and_flush_leaves_a_prefix() {
    for (of, ops) in
        [(large::checkpointing(1.0), large::program()), (compact::options(), compact::program())]
    {
        let ops = with_third(interleave(ops, seed()));
        let counts = try_sweep(of, &ops, depth(9)).unwrap_or_else(|error| panic!("{error}"));
        println!("{counts:?}");
        assert!(counts.points > 150 && counts.acted_meanwhile > 30, "{counts:?}");
    }
}

/// Has a mutant run the sweep of compaction with some seeds, and returns what that finds.
fn found_with(mutant: Mutant) -> String {
    let found = (0..12).find_map(|i| {
        let ops = [compact::program(), compact::program()].concat();
        let ops = spread(ops, mix(seed(), i));
        let depth = Depth { share: (0, 500), ..depth(1) };
        with(mutant, || try_sweep(compact::options(), &ops, depth)).err()
    });
    let found = found.unwrap_or_else(|| "not found".to_string());
    println!("{mutant:?}: {found}");
    found
}

#[test]
fn pins_places_and_moments_of_other_handles_that_are_overlooked_are_found() {
    let mutants = [
        Mutant::OverlooksPins,
        Mutant::ErasesLivingPlaces,
        Mutant::TakesTakenPlace,
        Mutant::MovesWithoutName,
        Mutant::ForgetsMoments,
        Mutant::HidesMoments,
    ];
    for mutant in mutants {
        let found = found_with(mutant);
        let is_of_reader = ["keeps changes", "looks back to changes", "loses", "cannot read"];
        assert!(is_of_reader.iter().any(|what| found.contains(what)), "{mutant:?}: {found}");
    }
}

#[test]
fn a_place_that_is_kept_although_another_handle_wants_it_is_found() {
    let found = found_with(Mutant::KeepsWantedPlace);
    assert!(found.contains("is locked by"), "{found}");
}

/// Kills the handle that is in a call, and has the others go on, of which one may be new. What it keeps goes to
/// `dead`, since a drop may wait for a lock that its call has.
fn survive(
    point: &Point<'_>,
    depth: Depth,
    counts: &Rc<RefCell<Counts>>,
    dead: &RefCell<Keeping>,
) -> Result<(), String> {
    if point.is_handing_over {
        // Two handles are in a call, and only one of them would be killed.
        return Ok(());
    }
    let is_opened_last = |db: &Rc<Db>| point.disk.is_opened_last(db.store().region.storage());
    if point.caller.is_none() && point.handles.values().any(is_opened_last) {
        // The handle that is being opened has nothing yet that could be killed.
        return Ok(());
    }
    let is_caller = |db: &Rc<Db>| point.caller.is_some_and(|caller| Rc::ptr_eq(db, caller));
    let is_free = |number: usize, db: &Rc<Db>| {
        point.waiting != Some(number) && !is_caller(db) && !point.keeping.borrow().has(number)
    };
    point.disk.kill_one(point.caller.map(|db| db.store().region.storage()));
    if let Some(number) = point.caller_number() {
        dead.replace(point.keeping.borrow_mut().take_of(number));
    }
    let free = point.handles.iter().filter(|(number, db)| is_free(**number, db));
    let mut handles: BTreeMap<usize, Rc<Db>> = free.map(|(&n, db)| (n, db.clone())).collect();
    // The threads of those that live and are not asked for anything here.
    for db in point.handles.values().filter(|db| !is_caller(db)) {
        db.store().play_keeper();
    }
    let survivor = if let Some((_, survivor)) = handles.range(..READER).next() {
        survivor.clone()
    } else {
        let opened = point.disk.open_beside(point.options);
        Rc::new(opened.map_err(|error| format!("cannot open: {error}"))?)
    };
    // It completes what the other one has begun.
    drop(survivor.store().lock_out_others().map_err(|error| format!("no turn: {error}"))?);
    survivor.store().play_keeper();
    let content = read(&survivor).map_err(|error| format!("a survivor: {error}"))?;
    let found = point.history.find(&content, point.history.acknowledged);
    let history = point.history.first(found.ok_or("it misses a change")?);
    if point.number.is_multiple_of(3) {
        // Another process opens the file.
        handles.remove(&0);
    }
    drop(survivor);
    let look = |number: usize| Op::By(number, Box::new(Op::Keep(Kept::Nothing)));
    let by = |number: usize| move |op| Op::By(number, Box::new(op));
    // A reader that finds tables which nobody has trusted yet would keep writers out.
    let mut ops: Vec<Op> = of_survivor().into_iter().map(by(0)).collect();
    ops.extend([look(READER + 2), look(READER), look(READER_PER_CALL), look(1)]);
    ops.extend(of_survivor().into_iter().take(5).map(by(1)));
    let run = Run { options: point.options.clone(), ops, seed: point.seed };
    run.on_with(handles, point.disk.same(), history, large::visit(depth, counts.clone()))?;
    // Others that live have all that they keep.
    let kept = point.keeping.borrow_mut().go_on();
    kept.map_err(|error| format!("it survives, and {error}"))
}

#[test]
fn handles_go_on_after_a_neighbour_that_was_killed() {
    for (of, ops, every) in [
        (large::checkpointing(1.0), large::program(), 97),
        (compact::options(), [compact::program(), compact::program()].concat(), 397),
    ] {
        let every = if is_slow() { 1 } else { every };
        let ops = spread(ops, seed());
        let counts = Rc::new(RefCell::new(Counts::default()));
        let of_all = counts.clone();
        let depth = Depth { images: 1, second_every: 1000, share: (0, 61) };
        let dead = Rc::new(RefCell::default());
        let survive = move |point: &Point<'_>| {
            let numbers: Vec<usize> = point.handles.keys().copied().collect();
            let what = format!("handle {:?} of {numbers:?}", point.caller_number());
            survive(point, depth, &of_all, &dead).map_err(|error| format!("{what}: {error}"))
        };
        let killed = kill_callers(SimDisk::with_locks, &options(of), &ops, every, survive);
        let killed_count = killed.unwrap_or_else(|error| panic!("{error}"));
        let counts = *counts.borrow();
        println!("{killed_count} killed, {counts:?}");
        assert!(killed_count > 10 && counts.points > 20, "{killed_count} {counts:?}");
    }
}

/// Overwrites some keys until their space is used again, and returns the bytes that wait for readers.
fn overwrite(db: &Db, round: u8) -> crate::Result<u64> {
    for i in 0..40_u8 {
        db.put([i % 8], vec![round ^ i; 300])?;
    }
    for _ in 0..4 {
        db.sync()?;
        db.maintain(u64::MAX)?;
    }
    Ok(db.stats()?.segments.waiting)
}

/// What became of the space that a reader has held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldSpace {
    /// Whether the reader was killed.
    is_killed: bool,
    /// Bytes that waited when it was alive, as far as it came to that, and at the end.
    while_alive: u64,
    at_end: u64,
}

/// Kills a reader that keeps a value, a scan and a snapshot at an event of its life, while another handle
/// changes the file before and behind that.
fn kill_reader(number: usize, at: u64) -> crate::Result<HeldSpace> {
    let options = options(compact::options());
    let disk = Rc::new(SimDisk::with_locks());
    let writer = disk.open_beside(&options)?;
    let before = overwrite(&writer, 1)?;
    assert_eq!(before, 0, "nobody reads");
    let (is_writing, is_killed) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let while_alive = Cell::new(0);
    let live = || -> crate::Result<()> {
        let reader = disk.open_beside(&of_number(number, &options))?;
        let value = reader.get([1])?;
        let snapshot = reader.snapshot()?;
        let mut scan = reader.scan()?;
        scan.next().transpose()?;
        is_writing.set(true);
        while_alive.set(overwrite(&writer, 2)?);
        is_writing.set(false);
        drop((value, snapshot));
        Ok(())
    };
    let (machine, mut left) = (disk.clone(), at);
    let (of_writer, was_killed) = (is_writing.clone(), is_killed.clone());
    let observer = move || {
        left = left.saturating_sub(1);
        if left == 0 && !was_killed.replace(true) {
            machine.kill_one(None);
            if !of_writer.get() {
                resume_unwind(Box::new("killed"));
            }
        }
    };
    let lived = catch_unwind(AssertUnwindSafe(|| observe(observer, live)));
    lived.unwrap_or(Ok(()))?;
    let (is_killed, at_end) = (is_killed.get(), overwrite(&writer, 3)?);
    Ok(HeldSpace { is_killed, while_alive: while_alive.get(), at_end })
}

/// Returns an event at whose death a reader leaves space that nobody gets.
fn find_lost_space(number: usize, every: usize) -> Option<(u64, HeldSpace)> {
    for at in (1..).step_by(every) {
        let held =
            kill_reader(number, at).unwrap_or_else(|error| panic!("killed at {at}: {error}"));
        if held.at_end > 0 {
            return Some((at, held));
        }
        if !held.is_killed {
            assert!(held.while_alive > 0 && at > 20, "{at}: {held:?}");
            return None;
        }
    }
    unreachable!("the events end")
}

#[test]
fn space_that_a_dead_reader_held_is_used_again() {
    for number in [READER, READER_PER_CALL] {
        assert_eq!(find_lost_space(number, if is_slow() { 1 } else { 17 }), None);
    }
}

#[test]
fn a_dead_reader_that_counts_as_living_is_found() {
    let found = with(Mutant::SparesDeadPlaces, || find_lost_space(READER, 17));
    assert!(found.is_some(), "its space is lost");
}

/// Has the handles that are in no call look at the file, in the middle of a call of another one.
fn look_between(point: &Point<'_>) -> Result<(), String> {
    let is_caller = |db: &Rc<Db>| point.caller.is_some_and(|caller| Rc::ptr_eq(db, caller));
    // Those without a lock between calls would wait here.
    let is_free = |number: usize| {
        point.waiting != Some(number)
            && !(PER_CALL..READER).contains(&number)
            && number < READER_PER_CALL
    };
    let states = &point.history.states[point.history.acknowledged..];
    for (number, db) in
        point.handles.iter().filter(|(number, db)| is_free(**number) && !is_caller(db))
    {
        let failed = |error: crate::Error| format!("handle {number} looks: {error}");
        let entries = db.scan().map_err(failed)?;
        let entries = entries.map(|entry| entry.map(|it| (it.key.to_vec(), it.value.to_vec())));
        let content: Content = entries.collect::<crate::Result<_>>().map_err(failed)?;
        let found = point.history.find(&content, point.history.acknowledged);
        found.ok_or_else(|| format!("a scan of handle {number} is no prefix"))?;
        for key in states.iter().flat_map(|(_, content)| content.keys()) {
            let found = db.get(key).map_err(failed)?;
            let is_it = |content: &Content| content.get(key).map(Vec::as_slice) == found.as_deref();
            if !states.iter().any(|(_, content)| is_it(content)) {
                return Err(format!("handle {number} finds {found:?} at {key:?}"));
            }
        }
    }
    Ok(())
}

/// Has them look at one of so many events of a program; returns how often they did.
fn look_during(of: Options, ops: Vec<Op>, every: u64) -> Result<u64, String> {
    let mut ops = spread(ops, seed());
    ops.insert(0, Op::By(READER, Box::new(Op::Keep(Kept::Nothing))));
    let count = Rc::new(Cell::new(0));
    let counted = count.clone();
    let visit = move |point: &Point<'_>| {
        if !point.number.is_multiple_of(every) {
            return Ok(());
        }
        counted.set(counted.get() + 1);
        look_between(point)
    };
    let run = Run { options: options(of), ops, seed: seed() };
    run.on(SimDisk::with_locks(), History::default(), visit)?;
    Ok(count.get())
}

#[test]
fn a_look_between_any_two_stores_of_another_handle_sees_a_prefix() {
    let every = if is_slow() { 1 } else { 3 };
    for (of, ops) in [
        (large::checkpointing(1.0), large::program()),
        (compact::options(), [compact::program(), compact::program()].concat()),
    ] {
        let count = look_during(of, ops, every).unwrap_or_else(|error| panic!("{error}"));
        println!("{count} looks");
        assert!(count > 300, "{count}");
    }
}

#[test]
fn a_slot_that_is_stored_before_its_record_is_seen_between() {
    let look = || look_during(large::checkpointing(1.0), large::program(), 1);
    let found = with(Mutant::SlotBeforeRecord, look).expect_err("it is a mistake");
    println!("{found}");
    assert!(found.contains("handle"), "{found}");
}

/// Kills a handle at an event of its first change, while another one is idle, and opens the store once more.
/// Returns whether the change has such an event.
fn open_after_first_change(disk: SimDisk, opened: usize, at: u64) -> crate::Result<bool> {
    let (options, disk) = (options(large::checkpointing(1.0)), Rc::new(disk));
    let idle = disk.open_beside(&options)?;
    let before = idle.len();
    let writer = Rc::new(disk.open_beside(&options)?);
    let is_killed = Rc::new(Cell::new(false));
    let (machine, killed, was_killed) = (disk.clone(), writer.clone(), is_killed.clone());
    let mut left = at;
    let observer = move || {
        left = left.saturating_sub(1);
        if left == 0 && !was_killed.replace(true) {
            machine.kill_one(Some(killed.store().region.storage()));
            resume_unwind(Box::new("killed"));
        }
    };
    let put = || writer.put_with("first", "value", Durability::Sync);
    catch_unwind(AssertUnwindSafe(|| observe(observer, put))).unwrap_or(Ok(()))?;
    let opened = disk.open_beside(&of_number(opened, &options))?;
    assert!((before..=before + 1).contains(&opened.len()));
    idle.put_with("second", "value", Durability::Sync)?;
    assert_eq!(opened.get("second")?.as_deref(), Some(&b"value"[..]));
    let lost = disk.lose_power(mix(seed(), at)).open(&options)?;
    assert!(lost.contains("second")? && lost.len() == idle.len() && lost.check()?.is_clean());
    Ok(is_killed.get())
}

/// The superblock says "not clean" before the live header names the boot.
#[test]
fn a_store_opens_beside_an_idle_handle_after_the_death_of_another_in_its_first_change() {
    let of_earlier_boot = || {
        let disk = SimDisk::with_locks();
        let db = disk.open_beside(&options(large::checkpointing(1.0)).sharing(Sharing::Exclusive));
        let db = db.expect("a new store");
        (0..20_u8).for_each(|key| db.put([key], "value").expect("there is room"));
        db.close().expect("nothing fails");
        disk.lose_power(u64::MAX)
    };
    for (what, machine) in [
        ("a new store", &SimDisk::with_locks as &dyn Fn() -> SimDisk),
        ("one of an earlier boot", &of_earlier_boot),
    ] {
        for opened in [1, PER_CALL, READER, READER_PER_CALL] {
            let is_killed_at = |&at: &u64| {
                let opens = open_after_first_change(machine(), opened, at);
                opens.unwrap_or_else(|error| panic!("{what}, handle {opened}, {at}: {error}"))
            };
            let event_count = (1..1000).take_while(is_killed_at).count();
            assert!((20..900).contains(&event_count), "{event_count} events");
        }
    }
}
