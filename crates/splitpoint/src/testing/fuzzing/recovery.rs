//! A program of changes, crashes and faults, all chosen by the input.

use std::collections::BTreeMap;

use super::Source;
use crate::db::Db;
use crate::error::ErrorKind;
use crate::options::{Create, Durability, Options};
use crate::storage::sim::SimDisk;

type Content = BTreeMap<u8, Vec<u8>>;

/// One change: the key, and its value or that it is deleted.
type Change = (u8, Option<Vec<u8>>);

/// Steps of a program, at most.
const STEP_COUNT_MAX: usize = 120;
/// Calls from now on of which one can be made to fail.
const CALL_COUNT_MAX: u8 = 24;
/// `errno` of a full disk and of a broken one.
const ERRNOS: [i32; 2] = [28, 5];

/// Runs the program that `input` is: changes of a store on a simulated machine, syncs, closes,
/// calls that fail, kills and power losses, also while the store recovers.
///
/// After each crash the store must open, be sound, and hold a prefix of the changes: after a kill
/// all that were acknowledged, after a power loss all that were synced.
///
/// # Panics
///
/// If any of this does not hold.
pub fn recovery(input: &[u8]) {
    let mut source = Source::new(input);
    let mut program = Program::new(source.byte());
    for _ in 0..STEP_COUNT_MAX {
        if source.is_empty() {
            break;
        }
        program.step(&mut source);
    }
    program.crash(Crash::Kill);
    program.crash(Crash::PowerLoss(u64::MAX));
}

/// How a process ends without closing its store.
#[derive(Clone, Copy, Debug)]
enum Crash {
    Kill,
    /// With the seed that chooses the sectors that reach the disk.
    PowerLoss(u64),
}

/// A machine, the store on it and what the store must hold.
struct Program {
    disk: SimDisk,
    /// `None` only while the machine is down.
    db: Option<Db>,
    options: Options,
    /// Every change since `base`.
    changes: Vec<Change>,
    /// What a power loss cannot take away.
    base: Content,
    /// So many of `changes` as well.
    synced: usize,
    /// The last change returned an error: it may be there or not.
    is_last_open: bool,
}

impl Program {
    fn new(how: u8) -> Self {
        let fill_factor = if how & 1 == 0 { 1.0 } else { 7.0 };
        let checkpoint_bytes = if how & 2 == 0 { 1500 } else { 64 << 20 };
        let options = Options::new().segment_bytes_min(4096).fill_factor(fill_factor).seed(7);
        let live_share = if how & 4 == 0 { 0.9 } else { 0.5 };
        let options = options.live_share(live_share).poison_freed();
        let options = options.checkpoint_bytes_min(checkpoint_bytes);
        let disk = SimDisk::new();
        let db = disk.open(&options).expect("a new store");
        Self {
            disk,
            db: Some(db),
            options: options.create(Create::Never),
            changes: Vec::new(),
            base: Content::new(),
            synced: 0,
            is_last_open: false,
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("the machine is up")
    }

    fn step(&mut self, source: &mut Source<'_>) {
        let what = source.byte();
        match what % 16 {
            // So that what follows compacts.
            0 if what >= 128 => self.maintain(),
            0..=5 => self.put(source, Durability::Buffered),
            6 => self.put(source, Durability::Sync),
            7 | 8 => self.delete(source.byte()),
            9 => self.put_run(source),
            10 => {
                if self.db().sync().is_ok() {
                    self.synced = self.changes.len();
                } else {
                    self.after_error(ErrorKind::Poisoned);
                }
            }
            11 => self.close(),
            12 => self.crash(Crash::Kill),
            13 => self.crash(Crash::PowerLoss(source.u64())),
            14 => self.crash_in_recovery(source),
            _ => {
                let (call, how) = (source.byte() % CALL_COUNT_MAX, source.byte());
                let errno = ERRNOS[usize::from(how & 1)];
                self.disk.fail_call(u64::from(call) + 1, errno, how & 2 != 0);
            }
        }
    }

    /// Compacts and makes checkpoints; that may fail as any change.
    fn maintain(&mut self) {
        if let Err(error) = self.db().maintain(u64::MAX) {
            self.after_error(error.kind());
        }
    }

    fn put(&mut self, source: &mut Source<'_>, durability: Durability) {
        let (key, len) = (source.byte() % 64, source.byte());
        // Some are long, and some get a segment of their own.
        let len = if len >= 250 { 600 * usize::from(len - 249) } else { usize::from(len) };
        let value = vec![key ^ self.changes.len() as u8; len];
        let result = self.db().put_with(&[key], &value, durability);
        self.changes.push((key, Some(value)));
        match result {
            Ok(()) if durability == Durability::Sync => self.synced = self.changes.len(),
            Ok(()) => {}
            Err(error) => self.after_open_change(error.kind()),
        }
    }

    fn delete(&mut self, key: u8) {
        let key = key % 64;
        let is_there = self.content_after(self.changes.len()).contains_key(&key);
        let result = self.db().delete(&[key]);
        self.changes.push((key, None));
        match result {
            Ok(was_there) => assert_eq!(was_there, is_there, "delete of {key}"),
            Err(error) => self.after_open_change(error.kind()),
        }
    }

    /// Puts many keys at once, so that buckets split.
    fn put_run(&mut self, source: &mut Source<'_>) {
        let (first, count) = (source.byte(), source.byte() % 40);
        for i in 0..count {
            let key = first.wrapping_add(i) | 64;
            let result = self.db().put_with(&[key], &[i], Durability::Buffered);
            self.changes.push((key, Some(vec![i])));
            if let Err(error) = result {
                return self.after_open_change(error.kind());
            }
        }
    }

    /// A change returned an error: either it is there or nothing of it, and the store goes on or is
    /// poisoned.
    fn after_open_change(&mut self, kind: ErrorKind) {
        self.is_last_open = true;
        self.after_error(kind);
    }

    fn after_error(&mut self, kind: ErrorKind) {
        let mut failed = self.changes.last().filter(|_| self.is_last_open).cloned();
        self.settle(self.changes.len());
        if kind != ErrorKind::Poisoned {
            // Does it take another change?
            let change = (63, Some(vec![self.changes.len() as u8; 3]));
            let value = change.1.as_deref().unwrap_or_default();
            let result = self.db().put_with(&[63], value, Durability::Buffered);
            self.changes.push(change.clone());
            self.is_last_open = result.is_err();
            self.settle(self.changes.len());
            let Err(error) = result else { return };
            if error.kind() != ErrorKind::Poisoned {
                failed = Some(change);
            }
        }
        // Behind a failure of the device nothing is stored, so the change that failed may be in the log.
        if let Some(change) = failed.filter(|change| self.changes.last() != Some(change)) {
            self.changes.push(change);
            self.is_last_open = true;
        }
        self.crash(Crash::Kill);
    }

    fn close(&mut self) {
        let db = self.db.take().expect("the machine is up");
        if db.close().is_ok() {
            self.synced = self.changes.len();
        }
        self.boot(self.changes.len());
    }

    fn crash(&mut self, crash: Crash) {
        let Some(db) = self.db.take() else { return };
        let least = match crash {
            Crash::Kill => {
                self.disk = self.disk.kill();
                self.changes.len()
            }
            Crash::PowerLoss(seed) => {
                self.disk = self.disk.lose_power(seed);
                self.synced
            }
        };
        // Its destructor works on the machine as it was.
        drop(db);
        self.boot(least);
        if matches!(crash, Crash::PowerLoss(_)) {
            self.synced = self.changes.len();
        }
    }

    /// Crashes, then crashes again while the store recovers: a call fails there, and what it left
    /// is killed or loses its power.
    fn crash_in_recovery(&mut self, source: &mut Source<'_>) {
        let (how, call) = (source.byte(), source.byte() % CALL_COUNT_MAX);
        let seeds = [source.u64(), source.u64()];
        let db = self.db.take().expect("the machine is up");
        let mut least = self.changes.len();
        let mut crash = |disk: &SimDisk, is_power_loss: bool, seed: u64, synced: usize| {
            if is_power_loss {
                least = least.min(synced);
                disk.lose_power(seed)
            } else {
                disk.kill()
            }
        };
        self.disk = crash(&self.disk, how & 1 != 0, seeds[0], self.synced);
        drop(db);
        self.disk.fail_call(u64::from(call) + 1, ERRNOS[1], true);
        let recovering = self.disk.open(&self.options);
        let machine = crash(&self.disk, how & 2 != 0, seeds[1], self.synced);
        drop(recovering);
        self.disk = machine;
        self.boot(least);
    }

    /// Opens the store, which must hold at least the first `least` changes.
    fn boot(&mut self, least: usize) {
        // Until its first change a store is not durable: a power loss may leave any part of it.
        let create = if self.changes.is_empty() { Create::IfMissing } else { Create::Never };
        let options = self.options.clone().create(create);
        let opened = match self.disk.open(&options) {
            // A call was to fail, and has: once more.
            Err(error) if error.kind() == ErrorKind::Io => {
                self.disk = self.disk.kill();
                self.disk.open(&options)
            }
            opened => opened,
        };
        self.db = Some(opened.expect("a store opens after a crash"));
        self.settle(least);
        let report = self.db().check().expect("a check reads only");
        assert!(report.is_clean(), "{:?}", report.damages);
    }

    /// Compares the store with what it may hold, at least the first `least` changes, and forgets
    /// those that are gone.
    fn settle(&mut self, least: usize) {
        let mut found = Content::new();
        for entry in self.db().scan().expect("a scan begins") {
            let entry = entry.expect("an entry is read");
            assert_eq!(entry.key.len(), 1, "a key that was never stored");
            let earlier = found.insert(entry.key[0], entry.value.to_vec());
            assert_eq!(earlier, None, "a scan returned {} twice", entry.key[0]);
        }
        let least = least - usize::from(self.is_last_open && least == self.changes.len());
        let kept = (least..=self.changes.len()).rev().find(|&n| self.content_after(n) == found);
        let Some(kept) = kept else {
            panic!("{} keys, which are no prefix with {least} changes or more", found.len());
        };
        assert_eq!(self.db().len(), found.len() as u64, "record count");
        self.changes.truncate(kept);
        self.synced = self.synced.min(kept);
        self.is_last_open = false;
    }

    /// Returns what the store holds after the first `count` changes.
    fn content_after(&self, count: usize) -> Content {
        let mut content = self.base.clone();
        for (key, value) in &self.changes[..count] {
            match value {
                Some(value) => content.insert(*key, value.clone()),
                None => content.remove(key),
            };
        }
        content
    }
}
