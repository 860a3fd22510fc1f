//! What survives failed calls, killed processes and power losses.
//!
//! A sequence of operations runs on a simulated machine. At each operation, and at each call to the
//! storage, the call fails, the process is killed or the power is lost. Then the store is opened
//! again and compared with what had returned.

use splitpoint::{Create, Db, Durability, ErrorKind, Options, Recovery, SimDisk};

use crate::support::{
    Content, HANG, Rng, assert_content, assert_sound, content, reopen, rounds, seed, tiny,
    worst_hash,
};

const EIO: i32 = 5;
const EINTR: i32 = 4;
const ENOSPC: i32 = 28;

/// One operation of a program.
#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Vec<u8>, Durability),
    Delete(Vec<u8>, Durability),
    Sync,
    Reopen,
}

/// Keys that grow the table, overwrite, delete and shrink it; small, big and empty records; all
/// durabilities; several segments and two sessions.
fn program() -> Vec<Op> {
    use Durability::{Async, Buffered, Sync};
    let key = |i: u64| format!("key {i}").into_bytes();
    let mut ops = vec![
        Op::Delete(key(0), Async),
        Op::Put(key(0), b"zero".to_vec(), Async),
        Op::Put(Vec::new(), Vec::new(), Sync),
        Op::Put(key(1), vec![1; 1500], Buffered),
        Op::Put(key(1), vec![2; 5000], Sync),
        Op::Delete(key(0), Sync),
    ];
    for i in 0..40 {
        let durability = if i % 8 == 0 { Sync } else { Async };
        ops.push(Op::Put(key(i), vec![i as u8; 100 + i as usize], durability));
    }
    ops.push(Op::Sync);
    for i in 0..20 {
        ops.push(Op::Put(key(2 * i), vec![i as u8; 90], Buffered));
    }
    ops.push(Op::Reopen);
    for i in 0..36 {
        let durability = if i % 9 == 4 { Sync } else { Buffered };
        ops.push(Op::Delete(key(i), durability));
    }
    ops.push(Op::Put(key(3), vec![7; 6000], Async));
    ops.push(Op::Reopen);
    ops.push(Op::Put(key(4), vec![8; 10], Sync));
    ops.push(Op::Delete(Vec::new(), Async));
    ops
}

fn options() -> Options {
    tiny().fill_factor(1.0).hash(worst_hash())
}

/// One attempted change.
#[derive(Clone, Debug)]
struct Change {
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    /// Whether the call returned success. A failed change may have been made or not.
    is_certain: bool,
}

/// The attempted changes, and how many must survive everything.
#[derive(Clone, Debug, Default)]
struct History {
    changes: Vec<Change>,
    synced: usize,
}

impl History {
    fn add(&mut self, key: &[u8], value: Option<&[u8]>, is_certain: bool) {
        let (key, value) = (key.to_vec(), value.map(<[u8]>::to_vec));
        self.changes.push(Change { key, value, is_certain });
    }

    /// Returns what the table holds after the first `count` changes without those `left_out`.
    fn content(&self, count: usize, left_out: &[usize]) -> Content {
        let mut content = Content::new();
        for (i, Change { key, value, .. }) in self.changes[..count].iter().enumerate() {
            match value {
                _ if left_out.contains(&i) => {}
                Some(value) => drop(content.insert(key.clone(), value.clone())),
                None => drop(content.remove(key)),
            }
        }
        content
    }

    /// Checks that `found` is the result of some prefix of at least `least` changes, each uncertain
    /// change made or not.
    fn assert_prefix(&self, found: &Content, least: usize, when: &str) {
        let uncertain: Vec<usize> =
            (0..self.changes.len()).filter(|&i| !self.changes[i].is_certain).collect();
        // With many failures only the last few can matter to what is certain.
        assert!(uncertain.len() <= 6, "{when}: {uncertain:?}");
        for choice in 0..1_u32 << uncertain.len() {
            let is_left_out = |bit: usize| choice >> bit & 1 == 1;
            let left_out: Vec<usize> = (0..uncertain.len())
                .filter(|&bit| is_left_out(bit))
                .map(|bit| uncertain[bit])
                .collect();
            let mut candidate = self.content(least, &left_out);
            for i in least..=self.changes.len() {
                if candidate == *found {
                    return;
                }
                let Some(Change { key, value, .. }) = self.changes.get(i) else { break };
                match value {
                    _ if left_out.contains(&i) => {}
                    Some(value) => drop(candidate.insert(key.clone(), value.clone())),
                    None => drop(candidate.remove(key)),
                }
            }
        }
        let last = self.content(self.changes.len(), &[]);
        panic!(
            "{when}: not a prefix with the first {least} of {} changes: found {} keys, all give {}",
            self.changes.len(),
            found.len(),
            last.len()
        );
    }
}

/// The result of a run.
struct Run {
    db: Option<Db>,
    history: History,
    errors: Vec<splitpoint::Error>,
    /// Whether the handle has reported that it is poisoned, and so refuses changes. The change that
    /// reports it first may have been made.
    is_poisoned: bool,
}

impl Run {
    fn start(disk: &SimDisk) -> Self {
        let (history, errors) = (History::default(), Vec::new());
        let mut run = Self { db: None, history, errors, is_poisoned: false };
        run.open(disk);
        run
    }

    fn open(&mut self, disk: &SimDisk) {
        self.is_poisoned = false;
        match disk.open(&options()) {
            Ok(db) => self.db = Some(db),
            Err(error) => self.errors.push(error),
        }
    }

    fn step(&mut self, disk: &SimDisk, op: &Op) {
        let Some(db) = &self.db else { return self.open(disk) };
        let result = match op {
            Op::Put(key, value, durability) => {
                let result = db.put_with(key, value, *durability);
                if !self.is_poisoned {
                    self.history.add(key, Some(value), result.is_ok());
                }
                result.map(|()| *durability == Durability::Sync)
            }
            Op::Delete(key, durability) => {
                let result = db.delete_with(key, *durability);
                match &result {
                    Ok(true) => self.history.add(key, None, true),
                    Err(_) if !self.is_poisoned => self.history.add(key, None, false),
                    _ => {}
                }
                result.map(|is_made| is_made && *durability == Durability::Sync)
            }
            Op::Sync => db.sync().map(|()| true),
            Op::Reopen => {
                let db = self.db.take().expect("there is a handle");
                let closed = db.close();
                self.open(disk);
                closed
            }
        };
        match result {
            Ok(true) => self.history.synced = self.history.changes.len(),
            Ok(false) => {}
            Err(error) => {
                // That of a close is of the handle that is gone.
                self.is_poisoned |= is_poisoned(&error) && !matches!(op, Op::Reopen);
                self.errors.push(error);
            }
        }
    }
}

fn is_poisoned(error: &splitpoint::Error) -> bool {
    error.kind() == ErrorKind::Poisoned
}

fn open_and_read(disk: &SimDisk, when: &str) -> (Db, Content) {
    let db = match disk.open(&options()) {
        Ok(db) => db,
        Err(error) => panic!("{when}: cannot open: {error}"),
    };
    let found = content(&db);
    assert_eq!(db.len(), found.len() as u64, "{when}");
    for (key, value) in &found {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]), "{when}: {key:?}");
    }
    let report = db.check().unwrap();
    assert!(report.is_clean(), "{when}: {report:?}");
    (db, found)
}

fn power_seeds(more: u64) -> impl Iterator<Item = u64> {
    let mut rng = Rng::new(seed());
    [0, u64::MAX].into_iter().chain((0..more).map(move |_| rng.next()))
}

#[test]
fn the_program_splits_merges_overflows_and_fills_segments() {
    let disk = SimDisk::new();
    let mut run = Run::start(&disk);
    let (mut buckets_max, mut overflow_max, mut buckets) = (0, 0, 0);
    for op in program() {
        run.step(&disk, &op);
        let stats = run.db.as_ref().unwrap().stats().unwrap();
        buckets = stats.geometry.bucket_count();
        buckets_max = buckets_max.max(buckets);
        overflow_max = overflow_max.max(stats.overflow_line_count);
    }
    let stats = run.db.as_ref().unwrap().stats().unwrap();
    assert!(run.errors.is_empty());
    let shape = (buckets_max, buckets, overflow_max);
    assert!(buckets_max > 20 && buckets < buckets_max && overflow_max > 0, "{shape:?}");
    assert!(stats.segments.log >= 3 * 4096 && stats.segments.big > 0);
    let (_, found) = open_and_read(&disk.kill(), "at the end");
    assert_eq!(found, run.history.content(run.history.changes.len(), &[]));
}

/// Kills the process after each operation, and again right after the next one has recovered.
/// Everything must be there each time, with at most two records applied.
#[test]
fn a_kill_at_any_operation_loses_nothing() {
    let disk = SimDisk::new();
    let mut run = Run::start(&disk);
    for (i, op) in program().iter().enumerate() {
        run.step(&disk, op);
        let when = format!("killed after operation {i}");
        let expected = run.history.content(run.history.changes.len(), &[]);
        let killed = disk.kill();
        let (db, found) = open_and_read(&killed, &when);
        assert_eq!(found, expected, "{when}");
        if let Recovery::Replayed { .. } = db.recovery() {
            panic!("{when}: {:?}", db.recovery());
        }
        if let Recovery::WarmRestart { records } = db.recovery() {
            assert!(records <= 2, "{when}: {records}");
        }
        let again = killed.kill();
        drop(db);
        assert_eq!(open_and_read(&again, &when).1, expected, "{when} twice");
        assert_eq!(open_and_read(&killed, &when).1, expected, "{when} and closed");
    }
}

/// Cuts the power after each operation, with different parts of the unsynced sectors written. The
/// store must hold a prefix of the history with everything that was synced, and still hold it if
/// the power is lost again after recovery and after one more synced change.
#[test]
fn a_power_loss_at_any_operation_keeps_a_prefix_with_everything_synced() {
    let disk = SimDisk::new();
    let mut run = Run::start(&disk);
    for (i, op) in program().iter().enumerate() {
        run.step(&disk, op);
        for power in power_seeds(rounds(20, 200)) {
            let when = format!("power lost after operation {i}, seed {power}");
            let after = disk.lose_power(power);
            let (db, found) = open_and_read(&after, &when);
            run.history.assert_prefix(&found, run.history.synced, &when);
            if power % 4 != 0 {
                continue;
            }
            let (_, twice) = open_and_read(&after.lose_power(power ^ 1), &when);
            assert_eq!(twice, found, "{when}, and again after recovery");
            db.put_with(b"one more", b"change", Durability::Sync).unwrap();
            let mut expected = found;
            expected.insert(b"one more".to_vec(), b"change".to_vec());
            let (db, twice) = open_and_read(&after.lose_power(power ^ 2), &when);
            assert_eq!(twice, expected, "{when}, and again after a synced change");
            db.close().unwrap();
        }
    }
}

/// Fails each call to the storage in turn, once, while the program goes on. The error must be
/// returned or be harmless, no change that returned may be lost, and the store must open
/// afterwards.
#[test]
fn any_single_failed_call_loses_nothing() {
    for errno in [EIO, ENOSPC, EINTR] {
        for call in 1.. {
            let disk = SimDisk::new();
            disk.fail_call(call, errno, false);
            let mut run = Run::start(&disk);
            for op in program() {
                run.step(&disk, &op);
                if let Some(db) = &run.db {
                    assert_readable(db, &run.history, &format!("call {call}, errno {errno}"));
                }
            }
            if disk.call_count() < call {
                assert!(call > 60, "the program makes {call} calls");
                break;
            }
            let when = format!("call {call} failed with {errno}");
            for error in &run.errors {
                assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned), "{error}");
            }
            assert_survives(&disk, run, &when);
        }
    }
}

/// Fails each call to the storage and all later ones, as if the machine stopped during an
/// operation; then the process is killed, or the power is lost.
#[test]
fn a_crash_at_any_call_keeps_a_prefix_with_everything_synced() {
    for call in 1.. {
        let disk = SimDisk::new();
        disk.fail_call(call, EIO, true);
        let mut run = Run::start(&disk);
        for op in program() {
            if !run.errors.is_empty() {
                break;
            }
            run.step(&disk, &op);
        }
        if disk.call_count() < call {
            break;
        }
        let when = format!("crash at call {call}");
        let killed = disk.kill();
        let (db, found) = open_and_read(&killed, &when);
        run.history.assert_prefix(&found, certain(&run.history), &when);
        drop(db);
        for power in power_seeds(rounds(8, 100)) {
            let when = format!("{when}, power lost with seed {power}");
            let (_, found) = open_and_read(&disk.lose_power(power), &when);
            run.history.assert_prefix(&found, run.history.synced, &when);
        }
    }
}

/// Returns how many changes at the beginning of a history are certain.
fn certain(history: &History) -> usize {
    history.changes.iter().position(|change| !change.is_certain).unwrap_or(history.changes.len())
}

/// Checks that the handle shows every certain change, and of the others the old or the new value.
fn assert_readable(db: &Db, history: &History, when: &str) {
    history.assert_prefix(&content(db), history.changes.len(), when);
}

/// Checks the store after a run with failures: as the handle shows it, after a kill, after a
/// close, after power losses.
fn assert_survives(disk: &SimDisk, run: Run, when: &str) {
    let all = run.history.changes.len();
    let killed = disk.kill();
    let (_, found) = open_and_read(&killed, &format!("{when}, killed"));
    run.history.assert_prefix(&found, all, when);
    for power in power_seeds(4) {
        let when = format!("{when}, power lost with seed {power}");
        let (_, found) = open_and_read(&disk.lose_power(power), &when);
        run.history.assert_prefix(&found, run.history.synced, &when);
    }
    drop(run.db);
    let (db, found) = open_and_read(disk, &format!("{when}, closed"));
    run.history.assert_prefix(&found, all, when);
    db.put(b"more", b"value").unwrap();
    db.close().unwrap();
}

/// Recovers from a power loss while each call to the storage in turn fails, once or permanently
/// with another power loss; then recovers without faults. The contents must be the same every time.
#[test]
fn a_failure_during_recovery_loses_nothing() {
    let disk = SimDisk::new();
    let mut run = Run::start(&disk);
    for op in &program()[..60] {
        run.step(&disk, op);
    }
    for power in power_seeds(6) {
        let lost = disk.lose_power(power);
        let expected = open_and_read(&lost.kill(), "without failure").1;
        run.history.assert_prefix(&expected, run.history.synced, "without failure");
        for is_permanent in [false, true] {
            for call in 1.. {
                let when = format!("seed {power}, call {call}, permanent {is_permanent}");
                let lost = disk.lose_power(power);
                lost.fail_call(call, EIO, is_permanent);
                let opened = reopen(&lost, &options());
                if lost.call_count() < call {
                    break;
                }
                if let Ok(db) = &opened {
                    assert_eq!(content(db), expected, "{when}");
                }
                let twice = lost.lose_power(power ^ 5);
                let killed = lost.kill();
                drop(opened);
                lost.fail_call(u64::MAX / 2, 0, false);
                assert_eq!(open_and_read(&lost, &when).1, expected, "{when}, opened again");
                assert_eq!(open_and_read(&killed, &when).1, expected, "{when}, killed");
                assert_eq!(open_and_read(&twice, &when).1, expected, "{when}, power lost");
            }
        }
    }
}

#[test]
fn sync_changes_survive_a_power_loss_and_buffered_ones_need_not() {
    let disk = SimDisk::new();
    let db = disk.open(&tiny().durability(Durability::Buffered)).unwrap();
    db.put_with(b"sync", b"1", Durability::Sync).unwrap();
    db.put(b"buffered", b"2").unwrap();
    let after = disk.lose_power(0).open(&tiny()).unwrap();
    assert!(after.contains(b"sync").unwrap());
    assert!(!after.contains(b"buffered").unwrap());
    db.sync().unwrap();
    let after = disk.lose_power(0).open(&tiny()).unwrap();
    assert!(after.contains(b"buffered").unwrap());
    assert!(db.delete_with(b"sync", Durability::Sync).unwrap());
    let after = disk.lose_power(0).open(&tiny()).unwrap();
    assert!(!after.contains(b"sync").unwrap());
}

#[test]
fn a_transaction_is_as_durable_as_its_commit_asks_and_all_of_it_or_none() {
    for durability in [Durability::Sync, Durability::Buffered] {
        let disk = SimDisk::new();
        let db = disk.open(&Options::new().durability(Durability::Buffered)).unwrap();
        let mut tx = db.begin().unwrap();
        tx.put("one", "1").unwrap();
        tx.put("two", "2").unwrap();
        tx.commit_with(durability).unwrap();
        for seed in 0..20 {
            let db = disk.lose_power(seed).open(&Options::new()).unwrap();
            let found = ["one", "two"].map(|key| db.contains(key).unwrap());
            assert_eq!(found[0], found[1], "{durability:?}, seed {seed}");
            assert!(found[0] || durability == Durability::Buffered, "seed {seed}");
        }
    }
}

#[test]
fn close_makes_everything_durable_and_the_next_open_finds_it_closed() {
    for durability in [Durability::Buffered, Durability::Async, Durability::Sync] {
        for (value_bytes, is_small) in [(40, true), (4000, false)] {
            let disk = SimDisk::new();
            let options = tiny().durability(durability);
            let db = disk.open(&options).unwrap();
            assert_eq!(db.recovery(), Recovery::Created);
            for i in 0..500_u32 {
                db.put(&i.to_le_bytes(), &vec![i as u8; value_bytes]).unwrap();
            }
            let expected = content(&db);
            db.close().unwrap();
            for after in [disk.lose_power(0), disk.kill(), disk.lose_power(77)] {
                let db = reopen(&after, &options).unwrap();
                // The mark of a small one may be in the cache alone.
                let is_replayed = is_small
                    && matches!(db.recovery(), Recovery::Replayed { dropped_bytes: 0, .. });
                assert!(is_replayed || db.recovery() == Recovery::Clean, "{:?}", db.recovery());
                assert_content(&db, &expected);
            }
            let found = reopen(&disk, &options).unwrap().recovery();
            assert_eq!(found, Recovery::Clean, "{value_bytes} bytes");
        }
    }
}

/// A thread syncs an `Async` change within a second: polls the store until it has, since a busy
/// machine takes longer.
#[test]
fn asynchronous_changes_become_durable_by_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let db = tiny().create(Create::New).open(dir.path().join("async.spt")).unwrap();
    for key in [b"first", b"later"] {
        db.put(key, b"value").unwrap();
        let begin = std::time::Instant::now();
        loop {
            let stats = db.stats().unwrap();
            if stats.durable_bytes == stats.log_bytes {
                break;
            }
            assert!(begin.elapsed() < HANG, "not durable after {HANG:?}");
            std::thread::yield_now();
        }
    }
}

/// On a simulated machine no background thread acts, so a run can be repeated.
#[test]
fn a_simulated_machine_syncs_only_when_it_is_told_to() {
    let disk = SimDisk::new();
    let db = disk.open(&tiny()).unwrap();
    let calls = disk.call_count();
    db.put(b"key", b"value").unwrap();
    db.put(b"key", b"other").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(900));
    let stats = db.stats().unwrap();
    assert_eq!(stats.durable_bytes, 0);
    assert!(disk.call_count() > calls);
}

#[test]
fn a_failed_sync_poisons_changes_and_leaves_reads() {
    let disk = SimDisk::new();
    let db = disk.open(&tiny()).unwrap();
    db.put_with(b"before", b"1", Durability::Sync).unwrap();
    db.put(b"unsynced", b"2").unwrap();
    disk.fail_call(1, EIO, false);
    assert_eq!(db.sync().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(db.sync().unwrap_err().kind(), ErrorKind::Poisoned);
    for durability in [Durability::Buffered, Durability::Async, Durability::Sync] {
        let error = db.put_with(b"after", b"3", durability).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
        assert!(error.to_string().contains(":sim:"), "{error}");
        let error = db.delete_with(b"before", durability).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned);
    }
    assert_eq!(db.get(b"unsynced").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(content(&db).len(), 2);
    assert_sound(&db);
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Poisoned);
    let db = reopen(&disk, &tiny()).unwrap();
    assert!(db.contains(b"unsynced").unwrap());
    db.put_with(b"after", b"3", Durability::Sync).unwrap();
}

/// Opens what a killed process left unsynced, by each way that reads the log again, makes one
/// synced change and cuts the power. The sync must cover all that the change builds on.
#[test]
fn a_sync_after_recovery_covers_what_the_killed_process_left_unsynced() {
    for rebuild in [false, true] {
        let disk = SimDisk::new();
        let db = disk.open(&tiny().durability(Durability::Buffered)).unwrap();
        for i in 0..300_u32 {
            db.put(&i.to_le_bytes(), &[1; 100]).unwrap();
        }
        let mut expected = content(&db);
        let killed = disk.kill();
        let mut options = tiny();
        if rebuild {
            options = options.rebuild_index();
        }
        let db = reopen(&killed, &options).unwrap();
        db.put_with(b"synced", b"change", Durability::Sync).unwrap();
        expected.insert(b"synced".to_vec(), b"change".to_vec());
        for power in power_seeds(5) {
            let db = reopen(&killed.lose_power(power), &tiny()).unwrap();
            assert_content(&db, &expected);
        }
    }
}

/// The segment after the tail is prepared in advance and not yet in use. A store that continues
/// after a kill, a power loss or a pass over its log must neither lose it nor use it twice.
#[test]
fn a_store_goes_on_for_many_segments_however_it_was_opened() {
    for (rebuild, loses_power) in [(false, false), (true, false), (false, true)] {
        let mut disk = SimDisk::new();
        let mut expected = Content::new();
        for round in 0..4_u32 {
            let mut options = tiny().durability(Durability::Sync);
            if rebuild {
                options = options.rebuild_index();
            }
            let db = disk.open(&options).unwrap();
            assert_content(&db, &expected);
            for i in 0..200_u32 {
                let key = [round.to_le_bytes(), i.to_le_bytes()].concat();
                db.put(&key, &[7; 100]).unwrap();
                expected.insert(key, vec![7; 100]);
            }
            assert_sound(&db);
            let killed = disk.kill();
            disk = if loses_power { killed.lose_power(u64::from(round)) } else { killed };
        }
        let db = reopen(&disk, &tiny()).unwrap();
        assert_content(&db, &expected);
        db.close().unwrap();
        assert_content(&reopen(&disk, &tiny()).unwrap(), &expected);
    }
}

/// Segments large enough for the thread to prepare, in a file and in memory: it must never clear
/// bytes that have been stored, and closing frees what it prepared.
#[test]
fn segments_made_ready_ahead_keep_every_record_and_are_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ahead.spt");
    let value = |i: u32| [&i.to_le_bytes()[..], &vec![i as u8; (i % 700) as usize]].concat();
    for db in [tiny().open(&path).unwrap(), tiny().in_memory().unwrap()] {
        for i in 0..20_000_u32 {
            db.put(&i.to_le_bytes(), &value(i)).unwrap();
            // What was stored last is in the segment that the thread made ready last.
            let last = i - i % 7;
            assert_eq!(db.get(&last.to_le_bytes()).unwrap().as_deref(), Some(&value(last)[..]));
        }
        assert_sound(&db);
        db.close().unwrap();
    }
    let db = tiny().open(&path).unwrap();
    for i in 0..20_000_u32 {
        assert_eq!(db.get(&i.to_le_bytes()).unwrap().as_deref(), Some(&value(i)[..]));
    }
    let stats = db.stats().unwrap();
    assert!(stats.segments.log > 32 * 8 * 4096, "{:?}", stats.segments);
    // Of segments of 256 KiB at most none is left over behind the last.
    assert!(stats.segments.free < 256 << 10, "{:?}", stats.segments);
}

#[test]
fn a_store_closed_after_nothing_but_a_missing_delete_keeps_what_comes_later() {
    let disk = SimDisk::new();
    let db = disk.open(&tiny()).unwrap();
    assert!(!db.delete(b"missing").unwrap());
    db.close().unwrap();
    let db = reopen(&disk, &tiny()).unwrap();
    db.put_with(b"key", b"value", Durability::Sync).unwrap();
    let expected = Content::from([(b"key".to_vec(), b"value".to_vec())]);
    assert_content(&db, &expected);
    assert_content(&reopen(&disk.kill(), &tiny()).unwrap(), &expected);
    assert_content(&reopen(&disk.lose_power(0), &tiny()).unwrap(), &expected);
    db.close().unwrap();
    assert_content(&reopen(&disk, &tiny()).unwrap(), &expected);
}

/// Eight threads make synced changes in a file. Each must be durable when its call returns, which
/// the store itself reports, and the threads must share flushes.
#[test]
fn threads_that_wait_for_durability_share_flushes_on_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("group.spt");
    let options = Options::new().durability(Durability::Sync).create(Create::New);
    let db = options.open(&path).unwrap();
    let per_thread = rounds(50, 1000);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let db = &db;
            scope.spawn(move || {
                for i in 0..per_thread {
                    let key = [thread.to_le_bytes(), i.to_le_bytes()].concat();
                    db.put(&key, &i.to_le_bytes()).unwrap();
                    if i % 10 == 9 {
                        let stats = db.stats().unwrap();
                        assert!(stats.durable_bytes > 0);
                    }
                }
            });
        }
    });
    let stats = db.stats().unwrap();
    assert_eq!(stats.record_count, 8 * per_thread);
    assert_eq!(stats.durable_bytes, stats.log_bytes);
    assert_sound(&db);
}
