//! Each call to the storage goes wrong, once, in each manner; the program runs on.
//!
//! An error is returned, or the engine tries again where that is right; nothing acknowledged is
//! lost; the store can still be used or says that it is poisoned; what a crash then leaves opens.

use super::{Commit, History, Op, check_goes_on, compact, examine, hold, large, mix, seed};
use crate::{Batch, Db, Durability, Error, ErrorKind, Options, SimDisk, SimFault};

pub(super) const EIO: i32 = 5;
const EINTR: i32 = 4;
pub(super) const ENOSPC: i32 = 28;

/// A program that runs on after errors.
struct Run {
    disk: SimDisk,
    options: Options,
    db: Option<Db>,
    history: History,
    /// Keys and values that may be there or not: of changes that have failed.
    doubts: Vec<Commit>,
    errors: Vec<Error>,
    /// Whether the handle is poisoned, so that it can promise nothing more.
    is_poisoned: bool,
}

impl Run {
    fn new(disk: SimDisk, options: Options) -> Self {
        let mut run = Self {
            disk,
            options,
            db: None,
            history: History::default(),
            doubts: Vec::new(),
            errors: Vec::new(),
            is_poisoned: false,
        };
        run.open();
        run
    }

    fn open(&mut self) {
        self.is_poisoned = false;
        match self.disk.open(&self.options) {
            Ok(db) => self.db = Some(db),
            Err(error) => self.errors.push(error),
        }
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        let Some(db) = &self.db else {
            self.open();
            return self.settle_reopened();
        };
        let (commits, result, is_synced): (Vec<Commit>, crate::Result<()>, bool) = match op {
            Op::Put(key, value, durability) => {
                let result = db.put_with(key, value, *durability);
                let commit = vec![(key.clone(), Some(value.clone()))];
                (vec![commit], result, *durability == Durability::Sync)
            }
            Op::PutMany(pairs, durability) => {
                let result = db.put_many_with(pairs, *durability);
                let commit =
                    |(key, value): &(Vec<u8>, Vec<u8>)| vec![(key.clone(), Some(value.clone()))];
                let commits = pairs.iter().map(commit).collect();
                (commits, result, *durability == Durability::Sync)
            }
            Op::Delete(key, durability) => {
                let was_there = self.history.newest().contains_key(key);
                let result = db.delete_with(key, *durability).map(drop);
                let commits = was_there.then(|| vec![(key.clone(), None)]).into_iter().collect();
                (commits, result, was_there && *durability == Durability::Sync)
            }
            Op::Sync => (Vec::new(), db.sync(), true),
            Op::SyncInBackground => {
                // Nobody hears of its error: the next promise must.
                let synced = db.store().sync_in_background();
                let failed = synced.and_then(|()| db.store().finish_checkpoint()).is_err();
                if failed && db.sync().is_ok() {
                    return Err(
                        "a sync after a failed background sync says all is well".to_string()
                    );
                }
                self.is_poisoned |= failed;
                (Vec::new(), Ok(()), !failed)
            }
            Op::Reopen => {
                // The error, if any, is of the handle that is gone.
                let closed = self.db.take().expect("there is a handle").close();
                let is_synced = closed.is_ok();
                self.errors.extend(closed.err());
                self.open();
                self.settle_reopened()?;
                (Vec::new(), Ok(()), is_synced)
            }
            Op::Maintain(bytes) => (Vec::new(), db.maintain(*bytes).map(drop), false),
            Op::WhileHeld(key, ops) => return self.step_while_held(key, ops),
            // Crashes are the sweeps' affair, and so are batches, transactions and snapshots.
            Op::Batch(_)
            | Op::Transaction(_)
            | Op::WhileSnapshot(_)
            | Op::Keep(_)
            | Op::Release
            | Op::By(..)
            | Op::Meanwhile(..)
            | Op::Kill
            | Op::LosePower(_) => return Ok(()),
        };
        match result {
            Ok(()) if self.is_poisoned && !commits.is_empty() => {
                return Err("a change succeeds on a poisoned handle".to_string());
            }
            Ok(()) => {
                for commit in &commits {
                    self.history.attempt(commit);
                }
                self.history.acknowledged = self.history.tried();
                if is_synced {
                    self.history.synced = self.history.tried();
                    self.doubts.clear();
                }
            }
            Err(error) => {
                if !self.is_poisoned && !commits.is_empty() {
                    // The first of them are made and not durable, the others are not made.
                    self.settle_doubts(&commits)?;
                    self.doubts.extend(commits);
                }
                self.is_poisoned |= error.kind() == ErrorKind::Poisoned;
                self.errors.push(error);
            }
        }
        Ok(())
    }

    /// Does operations while a value and a scan are held.
    fn step_while_held(&mut self, key: &[u8], ops: &[Op]) -> Result<(), String> {
        let Some(db) = self.db.clone() else { return Ok(()) };
        let before = self.history.newest().clone();
        let mut failure = Ok(());
        let held = hold(&db, &before, key, ops, |op| {
            if failure.is_ok() {
                failure = self.step(op);
            }
            Ok(())
        });
        self.errors.extend(held.err());
        failure
    }

    /// Asks the handle which of the changes that failed have been made: none behind one that was not.
    fn settle_doubts(&mut self, doubts: &[Commit]) -> Result<(), String> {
        let Some(db) = &self.db else { return Ok(()) };
        let content = super::read(db)?;
        for doubt in doubts {
            if content == *self.history.newest() {
                return Ok(());
            }
            self.history.attempt(doubt);
        }
        if content != *self.history.newest() {
            return Err("a change that failed has changed something else".to_string());
        }
        Ok(())
    }

    /// Asks a handle that was opened after a failure whether the change that failed was made after all: its
    /// write may have come to its last byte that matters.
    fn settle_reopened(&mut self) -> Result<(), String> {
        let Some(db) = &self.db else { return Ok(()) };
        let content = super::read(db)?;
        for doubt in &self.doubts {
            if content == *self.history.newest() {
                return Ok(());
            }
            let mut history = self.history.clone();
            history.attempt(doubt);
            if content == *history.newest() {
                self.history = history;
            }
        }
        if content != *self.history.newest() {
            return Err("a change that failed, and another, are there".to_string());
        }
        Ok(())
    }

    /// Checks what the handle shows, then what a kill, power losses and a close leave.
    fn check_end(mut self, call: u64, fault: SimFault) -> Result<(), String> {
        if let Some(db) = &self.db {
            let content = super::read(db).map_err(|error| format!("the handle: {error}"))?;
            if content != *self.history.newest() {
                return Err("the handle shows something else".to_string());
            }
        }
        for error in &self.errors {
            if !matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned) {
                return Err(format!("a strange error: {error}"));
            }
        }
        let acknowledged = self.history.acknowledged;
        self.examine(&self.disk.kill(), acknowledged, "killed")?;
        for i in 0..6 {
            let seed = [0, u64::MAX].get(i).copied().unwrap_or(mix(seed() ^ call, i as u64));
            let what = format!("power lost, image {seed}");
            self.examine(&self.disk.lose_power(seed), self.history.synced, &what)?;
            // What a failed sync gave up, the cache may give up too.
            if matches!(fault, SimFault::Error(_)) {
                let dropped = self.disk.kill_and_drop_clean_pages(seed);
                let what = format!("killed and pages dropped, image {seed}");
                self.examine(&dropped, self.history.synced, &what)?;
            }
        }
        self.db = None;
        self.examine(&self.disk, acknowledged, "closed")
    }

    /// Opens a machine; then makes a synced change and cuts the power, which must keep both.
    fn examine(&self, disk: &SimDisk, least: usize, what: &str) -> Result<(), String> {
        examine_and_go_on(disk, &self.options, &self.history, least)
            .map_err(|error| format!("{what}: {error}"))
    }
}

/// Opens a machine, and goes on with it.
pub(super) fn examine_and_go_on(
    disk: &SimDisk,
    options: &Options,
    history: &History,
    least: usize,
) -> Result<(), String> {
    let (found, db) = examine(disk, options, history, least)?;
    check_goes_on(disk, &db, options, &history.first(found), seed())
}

/// Runs a program with each call going wrong in this manner, or one of `one_in`, and returns how many
/// calls there were and how many errors.
fn sweep(
    options: &Options,
    ops: &[Op],
    fault: SimFault,
    one_in: usize,
) -> Result<(u64, u64), String> {
    let mut error_count = 0;
    for call in (1..).step_by(one_in) {
        let disk = SimDisk::new();
        disk.fail_once(call, fault);
        let mut run = Run::new(disk, options.clone());
        let when = |error: String| {
            format!("call {call} goes wrong with {fault:?}, SPLITPOINT_SEED={}: {error}", seed())
        };
        for (i, op) in ops.iter().enumerate() {
            run.step(op).map_err(|error| when(format!("operation {i}: {error}")))?;
        }
        if run.disk.call_count() < call {
            return Ok((call - 1, error_count));
        }
        error_count += run.errors.len() as u64;
        run.check_end(call, fault).map_err(when)?;
    }
    unreachable!("a program ends")
}

#[track_caller]
fn check(fault: SimFault, errors: std::ops::Range<u64>) {
    match sweep(&large::checkpointing(1.0), &large::program(), fault, 1) {
        Ok((calls, error_count)) => {
            println!("{fault:?}: {calls} calls, {error_count} errors");
            assert!(calls > 60 && errors.contains(&error_count), "{calls} {error_count}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_full_disk_at_any_call_loses_nothing() {
    check(SimFault::Error(ENOSPC), 60..u64::MAX);
}

/// Among the calls are the syncs: pages that a failed one gave up are not written by a later one.
#[test]
fn an_input_output_error_at_any_call_loses_nothing() {
    check(SimFault::Error(EIO), 60..u64::MAX);
}

/// Only syncs are not tried again.
#[test]
fn a_signal_at_any_call_is_an_error_of_syncs_only() {
    check(SimFault::Error(EINTR), 10..u64::MAX);
}

#[test]
fn a_short_write_at_any_call_is_written_in_full() {
    check(SimFault::ShortWrite, 0..1);
}

/// Runs the program that compacts, in the same manners.
#[track_caller]
fn check_compacting(fault: SimFault) {
    let one_in = if super::is_slow() { 1 } else { 5 };
    match sweep(&compact::options(), &compact::program(), fault, one_in) {
        Ok((calls, error_count)) => {
            println!("{fault:?}: {calls} calls, {error_count} errors");
            assert!(calls > 150 && (error_count > 0) == (fault != SimFault::ShortWrite));
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_full_disk_at_any_call_of_compaction_loses_nothing() {
    check_compacting(SimFault::Error(ENOSPC));
}

#[test]
fn an_input_output_error_at_any_call_of_compaction_loses_nothing() {
    check_compacting(SimFault::Error(EIO));
}

#[test]
fn a_signal_or_a_short_write_at_any_call_of_compaction_loses_nothing() {
    check_compacting(SimFault::Error(EINTR));
    check_compacting(SimFault::ShortWrite);
}

/// Each call of a change fails: a page of the file may answer the next store with a signal, so there is none.
#[track_caller]
fn assert_nothing_is_stored_behind_a_failure(
    change: impl Fn(&Db) -> crate::Result<()>,
    is_new: bool,
) {
    for call in 1..60 {
        let disk = SimDisk::new();
        let db = disk.open(&compact::options()).expect("a new store");
        if !is_new {
            db.put(b"key", b"value").expect("nothing fails");
        }
        let before = disk.call_count();
        disk.fail_call(call, EIO, false);
        // It may go on without what failed.
        let _ = change(&db);
        if let Some(then) = disk.take_file_at_failure() {
            let now = disk.file();
            let stored = (0..now.len()).find(|&at| now.get(at) != then.get(at));
            assert_eq!(stored, None, "call {call}");
        }
        if disk.call_count() - before < call {
            assert!(call > 4, "{call} calls");
            return;
        }
    }
    panic!("a change has few calls");
}

#[test]
fn the_first_put_stores_nothing_behind_a_failure_of_the_device() {
    assert_nothing_is_stored_behind_a_failure(|db| db.put(b"key", b"value"), true);
}

#[test]
fn a_batch_stores_nothing_behind_a_failure_of_the_device() {
    let change =
        |db: &Db| db.apply(&Batch::new().put(b"small", b"value").put(b"big", vec![7; 20_000]));
    assert_nothing_is_stored_behind_a_failure(change, false);
}

/// The device fails any call of a run of puts, also that of a split behind it, which needs space.
#[test]
fn a_step_of_compaction_that_a_failed_split_leaves_due_is_not_counted_again() {
    // More than one step, in a table that outgrows its first piece.
    let pairs: Vec<_> = (0..200_u8).map(|key| ([key], [])).collect();
    for call in 1..60 {
        let disk = SimDisk::new();
        let db = disk.open(&compact::options().fill_factor(1.0)).expect("a new store");
        db.put(b"key", b"value").expect("nothing fails");
        let before = disk.call_count();
        disk.fail_call(call, EIO, true);
        let _ = db.put_many(&pairs);
        if disk.call_count() - before < call {
            assert!(call > 3, "{call} calls");
            return;
        }
    }
    panic!("a run of puts has few calls");
}
