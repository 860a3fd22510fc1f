//! Crashes at every event of a program, and what must be found afterwards.
//!
//! A program of operations runs on a simulated machine. At each event, which is a store to a mapping,
//! a write, a sync or a change of the file's size, the machine is copied as a killed process leaves
//! it, and as a power loss may leave it; each copy is opened and compared with the [`History`].
//!
//! | sweep | crash points | images of each |
//! |---|---|---|
//! | [`small`] | all | every one a power loss may leave, as far as recovery reads it |
//! | [`large`] | all | some by seed; with `SPLITPOINT_SLOW=1` at least 1,000 |
//! | [`mutants`] | the same sweeps over a broken engine, which they must find | |
//! | [`stale`] | some, with pages of an earlier one | mounted again, or on the same mount |
//! | [`shrink`] | around index pieces that go | some by seed |
//! | [`compact`] | all, while records move and space is used again | some by seed |
//! | [`copies`] | between the copies of moved records and what names them | made for the purpose |
//! | [`turns`] | the same, where each change begins with what the one before has left in the file | |
//! | [`handles`] | all, while several handles change the file; one of them dies and another one goes on | some by seed |
//! | [`neighbours`] | all, while handles with locks change and read the file; one of them dies | some by seed |
//! | [`snapshot`] | all, beside snapshots and in transactions | some by seed |
//! | [`full`] | some, on a full disk on which keys are deleted | some by seed |
//! | [`spilled`] | the same of transactions that are kept in files before they commit | some by seed |
//! | [`fault`] | each call to the storage goes wrong | killed, closed, power lost, cache dropped |
//! | [`beside`] | the same of one handle, while others have the file | the same |
//!
//! Nothing depends on time, processes, threads or chance: a failure says the seed, the operation and the event,
//! and happens again with `SPLITPOINT_SEED` set to that seed.

mod beside;
mod compact;
mod copies;
mod fault;
mod full;
mod handles;
mod keeping;
mod large;
mod mutants;
#[cfg(not(miri))]
mod neighbours;
mod shrink;
mod small;
mod snapshot;
mod spilled;
mod stale;
mod turns;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use crate::atomic::AtomicU64;
use crate::atomic::kill_points::observe;
use crate::batch::Change;
use crate::format::{
    LIVE_BYTES, LIVE_OFFSET, PID_OFFSET, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSETS, Superblock, u64_at,
};
use crate::hash::{HashFunction, HashId};
use crate::live::{Live, WORD_COUNT};
use crate::table::{BatchAtomicity, Table};
use crate::testing::meanwhile;
use crate::{Db, Durability, Options, Recovery, Sharing, SimDisk};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn is_slow() -> bool {
    std::env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1")
}

/// Returns the seed of this run.
fn seed() -> u64 {
    std::env::var("SPLITPOINT_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1991)
}

/// Returns the `i`th number of a sequence begun by `seed`, never one with a meaning of its own.
fn mix(seed: u64, i: u64) -> u64 {
    let mixed = (seed ^ i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 32).clamp(1, u64::MAX - 1)
}

/// Most records that a takeover applies: the copies of a step of compaction, which are more than the
/// largest batch, what names them and a link.
const TAKEN_OVER_MAX: u64 = 34;

/// One operation of a program.
#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Vec<u8>, Durability),
    Delete(Vec<u8>, Durability),
    /// Puts that are made in one call, one after the other.
    PutMany(Vec<(Vec<u8>, Vec<u8>)>, Durability),
    /// Puts and deletes that commit together, where the store can.
    Batch(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Sync,
    /// What the thread in the background does: a sync, then the end of a checkpoint that is written.
    SyncInBackground,
    /// Compacts by reading so many bytes; if that is all, makes a checkpoint and uses space again.
    Maintain(u64),
    /// Puts and deletes of a transaction that has read them.
    Transaction(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    /// Operations while a snapshot is open that was taken before them.
    WhileSnapshot(Vec<Op>),
    /// Operations while a value is held and a scan goes on that began before them.
    WhileHeld(Vec<u8>, Vec<Op>),
    Reopen,
    /// The process is killed, and the next one opens the store.
    Kill,
    /// The power goes, with an image chosen by this seed.
    LosePower(u64),
    /// A handle looks at the file, and keeps what it has found up to `Release`.
    Keep(Kept),
    /// A handle lets go of all that it keeps, if that is still there.
    Release,
    /// An operation of another handle than the first, which is number 0.
    By(usize, Box<Op>),
    /// An operation, and those of other handles of which one comes before and behind each of its flushes.
    Meanwhile(Box<Op>, Vec<Op>),
}

/// What a handle keeps.
#[derive(Clone, Debug)]
enum Kept {
    /// Nothing: the look was all.
    Nothing,
    /// The values of so many keys.
    Values(usize),
    /// A scan that goes on with each operation.
    Scan,
    /// A snapshot.
    Snapshot,
}

/// From this number on, handles hold no lock between their calls.
const PER_CALL: usize = 5;
/// From this number on, handles only read.
const READER: usize = 10;
/// From this number on, they hold no lock between their calls either.
const READER_PER_CALL: usize = 15;

/// Returns the options of a handle by its number.
fn of_number(number: usize, options: &Options) -> Options {
    let per_call = || options.clone().sharing(Sharing::PerCall);
    match number {
        READER_PER_CALL.. => per_call().read_only(),
        READER.. => options.clone().sharing(Sharing::OneWriter).read_only(),
        PER_CALL.. => per_call(),
        _ => options.clone(),
    }
}

/// Changes that are there together or not at all.
type Commit = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// What was tried, how much of it a killed process keeps, and how much of it anything keeps.
#[derive(Clone, Debug)]
struct History {
    /// The content after each number of commits, with a digest to find it by. What follows a crash has the same ones.
    states: Vec<(u64, Rc<Content>)>,
    acknowledged: usize,
    synced: usize,
    /// Whether a close or a sync has promised that there is a store, if only an empty one.
    is_promised: bool,
}

impl Default for History {
    fn default() -> Self {
        let states = vec![(0, Rc::default())];
        Self { states, acknowledged: 0, synced: 0, is_promised: false }
    }
}

fn digest(content: &Content) -> u64 {
    content.iter().fold(0, |sum: u64, (key, value)| {
        let key = u64::from(crc32c::crc32c(key)) << 32;
        sum.wrapping_add(mix(key | u64::from(crc32c::crc32c(value)), 1))
    })
}

impl History {
    fn tried(&self) -> usize {
        self.states.len() - 1
    }

    fn newest(&self) -> &Content {
        &self.states[self.tried()].1
    }

    fn attempt(&mut self, commit: &Commit) {
        let mut content = Content::clone(self.newest());
        for (key, value) in commit {
            match value {
                Some(value) => drop(content.insert(key.clone(), value.clone())),
                None => drop(content.remove(key)),
            }
        }
        self.states.push((digest(&content), Rc::new(content)));
    }

    /// Returns the history of these commits alone.
    fn first(&self, count: usize) -> Self {
        let states = self.states[..=count].to_vec();
        let (acknowledged, synced) = (count, self.synced.min(count));
        Self { states, acknowledged, synced, is_promised: self.is_promised }
    }

    /// Returns the newest number of commits, at least `least`, after which `content` was there.
    fn find(&self, content: &Content, least: usize) -> Option<usize> {
        let digest = digest(content);
        let is_it = |i: &usize| self.states[*i].0 == digest && *self.states[*i].1 == *content;
        (least..=self.tried()).rev().find(is_it)
    }
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Events after which the machine may stop.
    points: u64,
    /// Killed processes whose store was opened.
    kills: u64,
    /// Images of a power loss that were recovered.
    images: u64,
    /// Images of a second crash, during the recovery of one of those.
    second: u64,
    /// Bytes of records that compaction moved in the program itself, not in what opens its images.
    moved_bytes: u64,
    /// Operations of a handle within one of another handle.
    acted_meanwhile: u64,
    /// How often a handle gave up the place that it had kept, for another one.
    handed_over: u64,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.points += other.points;
        self.kills += other.kills;
        self.images += other.images;
        self.second += other.second;
        self.moved_bytes += other.moved_bytes;
        self.acted_meanwhile += other.acted_meanwhile;
        self.handed_over += other.handed_over;
    }
}

/// Opens what a crash has left and returns the number of commits found there; an error says what is
/// wrong with it. The machine goes on with the handle that is returned.
fn examine(
    disk: &SimDisk,
    options: &Options,
    history: &History,
    least: usize,
) -> Result<(usize, Db), String> {
    let examined = catch_unwind(AssertUnwindSafe(|| {
        let db = disk.open(options).map_err(|error| format!("cannot open: {error}"))?;
        let content = read(&db)?;
        // Damage would switch it off.
        if options.live_share.is_some() && !db.store().may_ever_compact() {
            return Err("nothing will be compacted".to_string());
        }
        let report = db.check().map_err(|error| format!("cannot check: {error}"))?;
        if !report.is_clean() {
            return Err(format!("damage: {:?}", report.damages.first()));
        }
        let found = history.find(&content, least).ok_or_else(|| {
            let any = history.find(&content, 0);
            let what = any.map_or("no prefix".to_string(), |count| format!("the first {count}"));
            let keys = content.len();
            format!("{keys} keys: {what} of {} commits, not the first {least}", history.tried())
        })?;
        Ok((found, db))
    }));
    examined.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Makes a synced change with a handle that has opened what a crash has left, and cuts the power: the commits of
/// `history` and the change must be there.
fn check_goes_on(
    disk: &SimDisk,
    db: &Db,
    options: &Options,
    history: &History,
    seed: u64,
) -> Result<(), String> {
    let mut history = history.clone();
    history.attempt(&vec![(b"later".to_vec(), Some(b"change".to_vec()))]);
    db.put_with(b"later", b"change", Durability::Sync)
        .map_err(|error| format!("a later put: {error}"))?;
    for seed in [0, seed, u64::MAX] {
        examine(&disk.lose_power(seed), options, &history, history.tried())
            .map_err(|error| format!("after a later put, power lost, image {seed}: {error}"))?;
    }
    Ok(())
}

/// Returns whether the newest superblock names a checkpoint.
fn names_checkpoint(disk: &SimDisk) -> bool {
    let file = disk.file();
    let blocks = SUPERBLOCK_OFFSETS.into_iter().filter_map(|offset| {
        let block = file.get(offset as usize..)?.get(..SUPERBLOCK_BYTES as usize)?;
        Superblock::decode(block).ok()
    });
    let newest = blocks.max_by_key(|block| block.generation);
    newest.is_some_and(|block| block.checkpoint.is_some())
}

/// Returns whether the live header says that a writer of this boot has the store open.
fn is_left(disk: &SimDisk) -> bool {
    let file = disk.file();
    let blocks = SUPERBLOCK_OFFSETS.into_iter().filter_map(|offset| {
        let block = file.get(offset as usize..)?.get(..SUPERBLOCK_BYTES as usize)?;
        Superblock::decode(block).ok()
    });
    let newest = blocks.max_by_key(|block| block.generation);
    let end = (LIVE_OFFSET + LIVE_BYTES) as usize;
    let Some(words) = file.get(LIVE_OFFSET as usize..end) else { return false };
    let words: [AtomicU64; WORD_COUNT] =
        std::array::from_fn(|word| AtomicU64::new(u64_at(words, 8 * word)));
    Live(&words).is_of(disk.identity()) && newest.is_some_and(|block| !block.is_clean)
}

/// Reads everything, by a scan and by lookups.
fn read(db: &Db) -> Result<Content, String> {
    let mut content = Content::new();
    for entry in db.scan().map_err(|error| format!("cannot scan: {error}"))? {
        let entry = entry.map_err(|error| format!("cannot scan: {error}"))?;
        if content.insert(entry.key.to_vec(), entry.value.to_vec()).is_some() {
            return Err(format!("{:?} is there twice", entry.key.to_vec()));
        }
    }
    if db.len() != content.len() as u64 {
        return Err(format!("{} keys are counted, {} are there", db.len(), content.len()));
    }
    for (key, value) in &content {
        let found = db.get(key).map_err(|error| format!("cannot get: {error}"))?;
        if found.as_deref() != Some(&value[..]) {
            return Err(format!("a lookup of {key:?} finds {found:?}"));
        }
    }
    Ok(content)
}

/// A machine at an event of a program.
struct Point<'a> {
    disk: &'a SimDisk,
    options: &'a Options,
    history: &'a History,
    /// What may be left now may be left later as well, until the sync that comes next.
    is_before_sync: bool,
    /// Number of the event in the run.
    number: u64,
    seed: u64,
    /// The handle that is in a call; `None` while it is being opened.
    caller: Option<&'a Rc<Db>>,
    /// The number of the handle whose flush waits for that call to end.
    waiting: Option<usize>,
    /// Whether another handle hands over the place that it kept, for which that call waits.
    is_handing_over: bool,
    /// What handles keep.
    keeping: &'a RefCell<keeping::Keeping>,
    handles: &'a BTreeMap<usize, Rc<Db>>,
}

impl Point<'_> {
    /// Returns the number of the handle that is in a call, if it is open.
    #[cfg(not(miri))]
    fn caller_number(&self) -> Option<usize> {
        let is_caller = |db: &Rc<Db>| self.caller.is_some_and(|caller| Rc::ptr_eq(db, caller));
        self.handles.iter().find(|(_, db)| is_caller(db)).map(|(number, _)| *number)
    }

    /// Checks what a killed process leaves: all that was acknowledged, by the quick way in.
    fn check_kill(&self) -> Result<(), String> {
        let killed = self.disk.kill();
        let least = self.history.acknowledged;
        let is_left = is_left(&killed);
        let (_, db) = examine(&killed, self.options, self.history, least)
            .map_err(|error| format!("killed: {error}"))?;
        if is_left && !matches!(db.recovery(), Recovery::WarmRestart { .. }) {
            return Err(format!("killed: {:?} of tables that are whole", db.recovery()));
        }
        if let Recovery::WarmRestart { records } = db.recovery()
            && records > TAKEN_OVER_MAX
        {
            return Err(format!("killed: {records} records were applied"));
        }
        Ok(())
    }

    /// Kills the process, makes one change in the next, and shows `check` the machine then: what
    /// the next process found in the cache need not be durable.
    fn check_next_process(
        &self,
        check: impl FnOnce(&Point<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let killed = self.disk.kill();
        let (found, db) = examine(&killed, self.options, self.history, self.history.acknowledged)
            .map_err(|error| format!("killed: {error}"))?;
        let mut history = self.history.first(found);
        history.attempt(&vec![(b"next".to_vec(), Some(b"process".to_vec()))]);
        let put = db.put_with(b"next", b"process", Durability::Buffered);
        put.map_err(|error| format!("killed, cannot put: {error}"))?;
        let next = Point { disk: &killed, history: &history, ..*self };
        check(&next).map_err(|error| format!("killed, a change, {error}"))
    }

    /// Checks one image that a power loss leaves and returns how many commits it has.
    fn check_image(&self, lost: &SimDisk, what: &str) -> Result<(usize, Db), String> {
        let names_checkpoint = names_checkpoint(lost);
        let (found, db) = examine(lost, self.options, self.history, self.history.synced)
            .map_err(|error| format!("power lost, {what}: {error}"))?;
        // One that is damaged is left out, which costs time and no content: only this shows it.
        let writer = db.store().lock().map_err(|error| error.to_string())?;
        if names_checkpoint && writer.superblock.checkpoint.is_none() {
            return Err(format!("power lost, {what}: the checkpoint is named and not whole"));
        }
        drop(writer);
        Ok((found, db))
    }

    /// Recovers the image of `image_seed` and crashes again at each event of that, killed and with
    /// `images` images of a power loss: the same commits must be found.
    fn check_second_crash(&self, image_seed: u64, images: u64) -> Result<u64, String> {
        let outcomes = self.disk.outcomes();
        let lost = outcomes.seeded(image_seed);
        let (found, _) = self.check_image(&lost.kill(), "in peace")?;
        let history = History { synced: found, ..self.history.first(found) };
        let (seed, count) = (self.seed, Rc::new(Cell::new(0)));
        let sum = count.clone();
        let visit = move |point: &Point<'_>| {
            point.check_kill()?;
            for i in 0..images {
                let lost = point.disk.lose_power(mix(seed ^ image_seed, point.number * images + i));
                point.check_image(&lost, "again")?;
            }
            sum.set(sum.get() + images + 1);
            Ok(())
        };
        let ops = [Op::Put(b"second".to_vec(), b"crash".to_vec(), Durability::Sync)];
        let run = Run { options: self.options.clone(), seed, ops: ops.to_vec() };
        run.on(lost, history, visit)
            .map_err(|error| format!("image {image_seed}, recovered, and then {error}"))?;
        Ok(count.get())
    }
}

/// A program and how its store is made.
#[derive(Clone, Debug)]
struct Run {
    options: Options,
    ops: Vec<Op>,
    seed: u64,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ran {
    /// Events at which the machine may stop.
    events: u64,
    /// Operations of a handle within one of another handle.
    acted_meanwhile: u64,
    /// How often a handle gave up the place that it had kept, for another one.
    handed_over: u64,
    /// Bytes of records that compaction moved.
    moved_bytes: u64,
}

/// What the observer of events and the program share.
struct Shared {
    disk: RefCell<Rc<SimDisk>>,
    history: RefCell<History>,
    failure: RefCell<Option<String>>,
    op: Cell<usize>,
    number: Cell<u64>,
    last_event: Cell<(u64, bool)>,
    moved_bytes: Cell<u64>,
    /// The handles of the machine by number.
    handles: RefCell<BTreeMap<usize, Rc<Db>>>,
    /// The number of the one that is in a call.
    caller: Cell<usize>,
    /// The number of the one whose flush waits for that call to end.
    waiting: Cell<Option<usize>>,
    /// How many commits had been tried when it began.
    tried_before: Cell<usize>,
    acted_meanwhile: Cell<u64>,
    is_handing_over: Cell<bool>,
    handed_over: Cell<u64>,
    keeping: RefCell<keeping::Keeping>,
    /// Whether handles read on that are not called, which is no event.
    is_quiet: Cell<bool>,
    /// Whether the machine is looked at, and what is opened are copies of it.
    is_visited: Cell<bool>,
}

impl Run {
    /// Runs the program and shows `visit` each event; an error says where.
    fn on(
        &self,
        disk: SimDisk,
        history: History,
        visit: impl FnMut(&Point<'_>) -> Result<(), String> + 'static,
    ) -> Result<Ran, String> {
        self.on_with(BTreeMap::new(), disk, history, visit)
    }

    /// Does the same on a machine that has these handles.
    fn on_with(
        &self,
        handles: BTreeMap<usize, Rc<Db>>,
        disk: SimDisk,
        history: History,
        visit: impl FnMut(&Point<'_>) -> Result<(), String> + 'static,
    ) -> Result<Ran, String> {
        let shared = Rc::new(Shared::new(disk, history, handles));
        let observer = {
            let (shared, options, seed) = (shared.clone(), self.options.clone(), self.seed);
            let mut visit = visit;
            move || shared.see(&options, seed, &mut visit)
        };
        let driven = catch_unwind(AssertUnwindSafe(|| observe(observer, || self.drive(&shared))));
        let at = format!(
            "event {} in operation {} of {}, SPLITPOINT_SEED={}",
            shared.number.get(),
            shared.op.get(),
            self.ops.len(),
            self.seed
        );
        let failure = shared.failure.replace(Some("it has ended".to_string()));
        // After a panic the observer is still there.
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            drop(shared.keeping.take());
            drop(shared.handles.take());
        }));
        let driven = dropped.and(driven);
        match (failure, driven) {
            (Some(failure), _) => Err(format!("{at}: {failure}")),
            (None, Ok(Ok(()))) => {
                let (events, moved_bytes) = (shared.number.get(), shared.moved_bytes.get());
                let acted_meanwhile = shared.acted_meanwhile.get();
                let handed_over = shared.handed_over.get();
                Ok(Ran { events, acted_meanwhile, handed_over, moved_bytes })
            }
            (None, Ok(Err(error))) => Err(format!("{at}: {error}")),
            (None, Err(_)) => Err(format!("{at}: panic")),
        }
    }

    fn drive(&self, shared: &Rc<Shared>) -> Result<(), String> {
        shared.handle(0, &self.options)?;
        for (i, op) in self.ops.iter().enumerate() {
            if shared.failure.borrow().is_some() {
                break;
            }
            shared.op.set(i);
            shared.act_beside_keepers(op, &self.options)?;
        }
        shared.release(None)?;
        let numbers: Vec<usize> = shared.handles.borrow().keys().copied().collect();
        for number in numbers.into_iter().rev() {
            shared.caller.set(number);
            shared.play_keepers();
            let db = shared.handle(number, &self.options)?;
            shared.close(number, &db).map_err(|error| format!("cannot close: {error}"))?;
        }
        // Images are made before a sync, and what a close has written last need not be synced.
        let db = shared.handle(0, &self.options)?;
        let synced = db.store().region.sync_range(0, LIVE_OFFSET);
        synced.map_err(|error| format!("cannot sync: {error}"))
    }
}

/// Makes one change and returns whether it is synced.
fn step(db: &Db, op: &Op, shared: &Shared) -> crate::Result<bool> {
    let attempt = |commit: Commit| shared.history.borrow_mut().attempt(&commit);
    let is_there = |key: &[u8]| shared.history.borrow().newest().contains_key(key);
    match op {
        Op::Put(key, value, durability) => {
            attempt(vec![(key.clone(), Some(value.clone()))]);
            db.put_with(key, value, *durability)?;
            Ok(*durability == Durability::Sync)
        }
        Op::PutMany(pairs, durability) => {
            for (key, value) in pairs {
                attempt(vec![(key.clone(), Some(value.clone()))]);
            }
            db.put_many_with(pairs, *durability)?;
            Ok(*durability == Durability::Sync)
        }
        Op::Delete(key, durability) => {
            let was_there = is_there(key);
            if was_there {
                attempt(vec![(key.clone(), None)]);
            }
            assert_eq!(db.delete_with(key, *durability)?, was_there);
            // A delete that finds nothing waits for nothing of others.
            Ok(was_there && *durability == Durability::Sync)
        }
        Op::Batch(commit) => {
            let is_whole = db.capabilities().batch == BatchAtomicity::Atomic;
            for part in commit.chunks(if is_whole { commit.len() } else { 1 }) {
                attempt(part.to_vec());
                let changes: Vec<Change<'_>> = part.iter().map(change).collect();
                Table::apply_bytes(db, &changes, None)?;
                shared.settle(false);
            }
            Ok(false)
        }
        Op::Sync => db.sync().map(|()| true),
        Op::SyncInBackground => {
            db.store().sync_in_background()?;
            // Nothing has changed since: what follows makes no change durable.
            shared.settle(true);
            db.store().finish_checkpoint().map(|()| true)
        }
        Op::Maintain(bytes) => db.maintain(*bytes).map(|_| false),
        Op::Transaction(commit) => {
            let mut transaction = db.begin()?;
            for (key, value) in commit {
                let found = transaction.get(key)?.map(crate::Value::into_vec);
                assert_eq!(found, shared.history.borrow().newest().get(key).cloned(), "{value:?}");
            }
            for (key, value) in commit {
                match value {
                    Some(value) => transaction.put(key, value)?,
                    None => transaction.delete(key)?,
                }
            }
            attempt(commit.clone());
            transaction.commit().map(|()| false)
        }
        Op::WhileSnapshot(ops) => {
            let before = shared.history.borrow().newest().clone();
            let snapshot = db.snapshot()?;
            for op in ops {
                let is_synced = step(db, op, shared)?;
                shared.settle(is_synced);
                for (key, value) in shared.history.borrow().newest().iter().chain(&before) {
                    let found = snapshot.get(key)?;
                    assert_eq!(found.as_deref(), before.get(key).map(Vec::as_slice), "{value:?}");
                }
            }
            let entries =
                snapshot.scan()?.map(|entry| entry.map(|it| (it.key.to_vec(), it.value.to_vec())));
            let found: Vec<_> = entries.collect::<crate::Result<_>>()?;
            assert_eq!(found.len() as u64, snapshot.len(), "each key once");
            assert!(found.into_iter().collect::<Content>() == before);
            Ok(false)
        }
        Op::WhileHeld(key, ops) => {
            let before = shared.history.borrow().newest().clone();
            let step_of = |op: &Op| {
                let is_synced = step(db, op, shared)?;
                shared.settle(is_synced);
                Ok(())
            };
            hold(db, &before, key, ops, step_of).map(|()| false)
        }
        Op::Reopen
        | Op::Kill
        | Op::LosePower(_)
        | Op::Keep(_)
        | Op::Release
        | Op::By(..)
        | Op::Meanwhile(..) => {
            unreachable!("the caller does these")
        }
    }
}

/// Does operations while the value of a key is held and, up to the first maintenance, a scan goes on.
/// Both must show the content `before` the operations.
fn hold(
    db: &Db,
    before: &Content,
    key: &[u8],
    ops: &[Op],
    mut step: impl FnMut(&Op) -> crate::Result<()>,
) -> crate::Result<()> {
    let held = db.get(key)?;
    let mut scan = Some(db.scan()?);
    let mut found = Content::new();
    let mut note = |entry: crate::Entry<'_>| {
        let earlier = found.insert(entry.key.to_vec(), entry.value.to_vec());
        assert_eq!(earlier, None, "a scan returns a key twice");
    };
    for (i, op) in ops.iter().enumerate() {
        if i.is_multiple_of(4)
            && let Some(entry) = scan.as_mut().and_then(Iterator::next)
        {
            note(entry?);
        }
        step(op)?;
        if matches!(op, Op::Maintain(_)) {
            for entry in scan.take().into_iter().flatten() {
                note(entry?);
            }
        }
    }
    for entry in scan.into_iter().flatten() {
        note(entry?);
    }
    assert!(found == *before, "a scan shows changes that were made after its beginning");
    assert!(held.as_deref() == before.get(key).map(|value| &value[..]), "a held value changes");
    Ok(())
}

fn change((key, value): &(Vec<u8>, Option<Vec<u8>>)) -> Change<'_> {
    match value {
        Some(value) => Change::Put { key, value },
        None => Change::Delete { key },
    }
}

impl Shared {
    fn new(disk: SimDisk, history: History, handles: BTreeMap<usize, Rc<Db>>) -> Self {
        Self {
            disk: RefCell::new(Rc::new(disk)),
            history: RefCell::new(history),
            failure: RefCell::default(),
            op: Cell::new(0),
            number: Cell::new(0),
            last_event: Cell::new((u64::MAX, false)),
            moved_bytes: Cell::new(0),
            handles: RefCell::new(handles),
            caller: Cell::new(0),
            waiting: Cell::new(None),
            tried_before: Cell::new(0),
            acted_meanwhile: Cell::new(0),
            is_handing_over: Cell::new(false),
            handed_over: Cell::new(0),
            keeping: RefCell::default(),
            is_quiet: Cell::new(false),
            is_visited: Cell::new(false),
        }
    }

    /// Returns a handle, which is opened if it is not there.
    fn handle(&self, number: usize, options: &Options) -> Result<Rc<Db>, String> {
        self.caller.set(number);
        if self.disk.borrow().has_locks() {
            // What another handle has stored is in the page cache.
            let _ = self.disk.borrow().event_count();
        }
        if let Some(db) = self.handles.borrow().get(&number) {
            return Ok(db.clone());
        }
        self.play_keepers();
        let disk = self.disk.borrow().clone();
        let options = of_number(number, options);
        let db = disk.open_beside(&options).map_err(|error| format!("cannot open: {error}"))?;
        let db = Rc::new(db);
        self.handles.borrow_mut().insert(number, db.clone());
        Ok(db)
    }

    /// Does an operation.
    fn act(self: &Rc<Self>, op: &Op, options: &Options) -> Result<(), String> {
        match op {
            Op::By(number, op) => self.act_by(*number, op, options),
            Op::Meanwhile(op, ops) => self.act_while(op, ops.clone(), options),
            op => self.act_by(0, op, options),
        }
    }

    /// Does an operation of a program, for whose handle others give up the place that they keep.
    fn act_beside_keepers(self: &Rc<Self>, op: &Op, options: &Options) -> Result<(), String> {
        if matches!(op, Op::Meanwhile(..)) || !self.disk.borrow().has_locks() {
            return self.act(op, options);
        }
        // A row of turns is over after some operations.
        self.disk.borrow().pass(Duration::from_micros(100));
        self.act_while(op, Vec::new(), options)
    }

    /// Does what the threads of other handles do that keep the place of the writer.
    fn play_keepers(&self) {
        let handles = self.handles.borrow().clone();
        let others = handles.iter().filter(|(number, _)| **number != self.caller.get());
        self.is_handing_over.set(true);
        let count = others.filter(|(_, db)| db.store().play_keeper()).count();
        self.is_handing_over.set(false);
        self.handed_over.set(self.handed_over.get() + count as u64);
    }

    /// Does an operation, and one of `ops` at each of its points between turns, if the handle stays there.
    fn act_while(self: &Rc<Self>, op: &Op, ops: Vec<Op>, options: &Options) -> Result<(), String> {
        let (shared, mut ops) = (self.clone(), ops.into_iter());
        let of_others = options.clone();
        let change = move |point| {
            if point == meanwhile::Point::PlaceWanted {
                return shared.play_keepers();
            }
            let is_flush =
                matches!(point, meanwhile::Point::BeforeFlush | meanwhile::Point::BehindFlush);
            if !is_flush || shared.is_visited.get() || shared.failure.borrow().is_some() {
                return;
            }
            let Some(op) = ops.next() else { return };
            let caller = shared.caller.get();
            shared.waiting.set(Some(caller));
            shared.tried_before.set(shared.history.borrow().tried());
            if let Err(error) = shared.act_beside_keepers(&op, &of_others) {
                shared.failure.borrow_mut().get_or_insert(format!("meanwhile, {op:?}: {error}"));
            }
            shared.caller.set(caller);
            shared.waiting.set(None);
            shared.acted_meanwhile.set(shared.acted_meanwhile.get() + 1);
        };
        meanwhile::with(change, || self.act(op, options))
    }

    /// Has a handle do an operation.
    fn act_by(&self, number: usize, op: &Op, options: &Options) -> Result<(), String> {
        let db = self.handle(number, options)?;
        let failed = |error: crate::Error| format!("{op:?}: {error}");
        match op {
            Op::Keep(kept) => return self.keep(number, &db, kept),
            Op::Release => return self.release(Some(number)),
            Op::Reopen => {
                self.release(Some(number))?;
                self.close(number, &db).map_err(failed)?;
                self.handles.borrow_mut().remove(&number);
                drop(db);
            }
            Op::Kill => {
                self.count_moves(&db);
                if self.handles.borrow().len() == 1 {
                    let killed = self.disk.borrow().kill();
                    self.become_machine(killed);
                } else {
                    self.disk.borrow().kill_one(Some(db.store().region.storage()));
                }
                let left = self.keeping.borrow_mut().take_of(number);
                drop(left);
                self.handles.borrow_mut().remove(&number);
                drop(db);
            }
            Op::LosePower(seed) => {
                self.handles.borrow().values().for_each(|db| self.count_moves(db));
                let lost = self.disk.borrow().lose_power(*seed);
                let history = self.history.borrow().clone();
                let (found, _) = examine(&lost.kill(), options, &history, history.synced)
                    .map_err(|error| format!("power lost: {error}"))?;
                self.become_machine(lost);
                self.history.replace(History { synced: found, ..history.first(found) });
                let left = self.keeping.take();
                self.handles.take();
                drop(left);
                drop(db);
            }
            _ => {
                let is_synced = step(&db, op, self).map_err(failed)?;
                self.settle(is_synced);
                return self.go_on_keeping();
            }
        }
        self.handle(number, options).map(drop)
    }

    fn close(&self, number: usize, db: &Db) -> crate::Result<()> {
        self.count_moves(db);
        // One by turns that has changed nothing promises nothing of what others have.
        let promises = !db.store().takes_turns() || db.store().lock()?.change_count > 0;
        let promises = promises && number < READER;
        db.store().close()?;
        self.settle(promises);
        Ok(())
    }

    /// Says that all that was tried has been acknowledged, as synced or not; but not what has failed meanwhile.
    fn settle(&self, is_synced: bool) {
        let mut history = self.history.borrow_mut();
        let has_failed = self.failure.borrow().is_some();
        let tried = if has_failed { self.tried_before.get() } else { history.tried() };
        history.acknowledged = history.acknowledged.max(tried);
        if is_synced {
            history.synced = history.synced.max(tried);
            history.is_promised = true;
        }
    }

    /// Counts what a session has moved, before it ends.
    fn count_moves(&self, db: &Db) {
        let moved_bytes = db.store().lock().map_or(0, |writer| writer.moved_bytes());
        self.moved_bytes.set(self.moved_bytes.get() + moved_bytes);
    }

    fn become_machine(&self, disk: SimDisk) {
        self.disk.replace(Rc::new(disk));
        self.last_event.set((u64::MAX, false));
    }

    /// Shows `visit` the machine, if an event has changed it since the last time.
    fn see(
        &self,
        options: &Options,
        seed: u64,
        visit: &mut impl FnMut(&Point<'_>) -> Result<(), String>,
    ) {
        if self.failure.borrow().is_some() || self.is_quiet.get() {
            return;
        }
        let disk = self.disk.borrow().clone();
        let event = (disk.event_count(), disk.is_before_sync());
        if self.last_event.replace(event) == event {
            return;
        }
        self.number.set(self.number.get() + 1);
        let handles = self.handles.borrow();
        let point = Point {
            disk: &disk,
            options,
            history: &self.history.borrow(),
            is_before_sync: event.1,
            number: self.number.get(),
            seed,
            caller: handles.get(&self.caller.get()),
            waiting: self.waiting.get(),
            is_handing_over: self.is_handing_over.get(),
            keeping: &self.keeping,
            handles: &handles,
        };
        let kept = self.keeping.try_borrow().map_or(Ok(()), |keeping| keeping.check_values());
        if let Err(failure) = kept {
            self.failure.replace(Some(failure));
            return;
        }
        self.is_visited.set(true);
        let visited = visit(&point);
        self.is_visited.set(false);
        if let Err(failure) = visited {
            self.failure.replace(Some(failure));
        }
    }
}

/// Options for a table that soon has many segments, with a hash function of few values, so that
/// chains overflow.
fn options(fill_factor: f64) -> Options {
    let few_bits = |key: &[u8], _| crate::hash::fnv1a_64(key) & 0b0001_0011;
    let hash =
        HashFunction::user(HashId(0x8000_0001), "few-bits", few_bits).expect("an id of ours");
    let options = Options::new().hash(hash).fill_factor(fill_factor).seed(1);
    options.segment_bytes_min(4096).durability(Durability::Buffered)
}

/// Options for a store that makes a checkpoint whenever the log has grown by this many bytes.
fn with_checkpoints(options: Options, bytes_min: u64) -> Options {
    options.checkpoint_bytes_min(bytes_min)
}

/// What a power loss leaves is chosen from the words that have changed, also those of the live header.
#[test]
fn a_simulated_machine_leaves_the_same_bytes_in_every_run() {
    let [(one, _open), (two, _also_open)] = [(), ()].map(|()| {
        let disk = SimDisk::new();
        let db = disk.open(&options(1.0)).unwrap();
        db.put(b"a", b"1").unwrap();
        (disk, db)
    });
    let writer = u64_at(&one.file(), PID_OFFSET as usize);
    let (pid, since) = (writer as u32, writer >> 32);
    assert_eq!((pid, since), (1991, 3600), "the process and the clock are those of the machine");
    assert!(one.file() == two.file());
    assert!((0..20).all(|seed| one.lose_power(seed).file() == two.lose_power(seed).file()));
}
