//! Real processes, killed in the middle of their work, and real files.
//!
//! The process is this test binary, started again with an environment variable: see `victim`. It
//! shares a file with this process that says what must be there after each kill: see `oracle`.

mod oracle;
mod victim;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use splitpoint::Recovery;

use crate::support::{HANG, Rng, assert_sound, content, is_slow, rounds, seed};
use oracle::{Oracle, Phase, Word, value_of};
use victim::{Plan, Round};

const CHILD_ENV: &str = "SPLITPOINT_TEST_KILLED";
/// The signal that no process can handle.
const SIGKILL: i32 = 9;
/// Number of processes that are killed over the same store.
const ROUNDS_PER_STORE: u64 = 20;

/// Not a test by itself: the process that the test below starts and kills.
#[test]
fn killed_process_changes_the_store_until_it_is_killed() {
    let Some(arguments) = std::env::var_os(CHILD_ENV) else { return };
    victim::run(&Round::decode(&arguments.into_string().unwrap()));
}

fn start(round: &Round, log: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", "kill::killed_process_changes_the_store_until_it_is_killed"])
        .arg("--nocapture")
        .env(CHILD_ENV, round.encode())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(log).expect("the directory can be written"))
        .spawn()
        .expect("this program can be started")
}

/// Starts a process over the store of a round, and kills it or waits until it has killed itself.
fn run_and_kill(round: &Round) {
    use std::os::unix::process::ExitStatusExt;
    let log = round.dir.join("victim.log");
    let mut child = start(round, &log);
    let begun = Instant::now();
    if let Plan::After(delay) = round.plan() {
        std::thread::sleep(delay);
        child.kill().expect("a child can be killed");
    }
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if begun.elapsed() > HANG {
            // Leave no process behind.
            let _ = child.kill();
            panic!("{:?} has not come about in {HANG:?}", round.plan());
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    let said = fs::read_to_string(&log).unwrap_or_default();
    assert_eq!(status.signal(), Some(SIGKILL), "{status}: {said}");
}

/// The message and the leftovers of a failure.
struct Scene {
    dir: Option<tempfile::TempDir>,
    seed: u64,
    at: String,
}

impl Scene {
    fn path(&self) -> PathBuf {
        self.dir.as_ref().expect("until it is dropped").path().to_path_buf()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(dir) = self.dir.take().filter(|_| std::thread::panicking()) {
            println!("{}", self.at);
            println!("kept: {}; *.left is the file as the kill left it", dir.keep().display());
            println!(
                "repeat: SPLITPOINT_SEED={} cargo test -p splitpoint --test it kill:: \
                 (the same programs and plans; the moments differ)",
                self.seed
            );
        }
    }
}

/// Counts of events, for the last line and for the assertions that the test covers them.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    kills_in: [u64; Phase::ALL.len()],
    in_flight: u64,
    in_flight_applied: u64,
    copies_replayed: u64,
    copies_from_checkpoint: u64,
    read_only: u64,
    left_to_successor: u64,
    words: [u64; Word::Moves as usize + 1],
}

impl Tally {
    /// Adds what the processes over one store have counted.
    fn add_store(&mut self, oracle: &Oracle) {
        for word in Word::COUNTERS {
            self.words[word as usize] += oracle.get(word);
        }
    }

    fn print(&self) {
        println!("{} kills", self.kills);
        for (phase, count) in Phase::ALL.iter().zip(self.kills_in) {
            println!("  {count} while {phase:?}");
        }
        println!("{} changes under way when killed", self.in_flight);
        println!("  {} of them found", self.in_flight_applied);
        println!("{} left to the next process", self.left_to_successor);
        println!("{} copies replayed", self.copies_replayed);
        println!("  {} of them from a checkpoint first", self.copies_from_checkpoint);
        println!("{} opened for reading only", self.read_only);
        for word in Word::COUNTERS {
            println!("{} {word:?}", self.words[word as usize]);
        }
    }

    /// Checks that the test covered its cases. The bounds are far from the usual counts.
    fn assert_much_came_about(&self) {
        let at_least = |count: u64, share: u64, what: &str| {
            assert!(count > self.kills / share, "{count} {what} in {} kills", self.kills);
        };
        let word = |word: Word| self.words[word as usize];
        for phase in [Phase::Opening, Phase::Rebuilding, Phase::Working, Phase::Closing] {
            at_least(self.kills_in[phase as usize], 1000, &format!("while {phase:?}"));
        }
        at_least(word(Word::TakenOver), 4, "taken over");
        at_least(word(Word::Clean), 200, "found closed");
        at_least(self.in_flight, 100, "changes under way");
        at_least(self.copies_replayed, 20, "copies");
        if self.kills >= 1000 {
            // Few are in the middle of a log that goes on after its checkpoint.
            at_least(self.copies_from_checkpoint, 1000, "copies with a checkpoint");
        }
        at_least(self.read_only, 20, "for reading");
        at_least(self.left_to_successor, 20, "left to the next");
        at_least(word(Word::Changes), 1, "changes");
        at_least(word(Word::Reads), 1, "reads");
        at_least(word(Word::Scans), 20, "scans");
        at_least(word(Word::Checkpoints), 20, "checkpoints");
        at_least(word(Word::Moves), 20, "sessions that moved records");
        at_least(word(Word::Growths), 20, "growths");
        at_least(word(Word::Shrinks), 20, "shrinks");
    }
}

/// Examines what a kill left in other ways than by opening it: by a copy, whose index is rebuilt
/// from the log, and by a read-only handle. Returns the contents of the copy.
fn visit(round: &Round, oracle: &Oracle, choice: u64, tally: &mut Tally) -> Option<Vec<u64>> {
    let path = round.store_path();
    if oracle.get(Word::Opened) == 0 {
        // The file may not be a store yet.
        return None;
    }
    match choice {
        0 => {
            let db = round.options().read_only().open(&path).expect("it opens for reading");
            let versions =
                oracle.versions(&db).unwrap_or_else(|error| panic!("read only: {error}"));
            let record_count =
                (0..).zip(&versions).filter(|&(key, &version)| value_of(key, version).is_some());
            assert_eq!(db.len(), record_count.count() as u64, "read only");
            assert_sound(&db);
            tally.read_only += 1;
            None
        }
        1 => {
            let copy = path.with_extension("copy");
            fs::copy(path.with_extension("left"), &copy).expect("there is room");
            // It trusts no tables, only the newest checkpoint and the log after it.
            let db = round.options().read_only().open(&copy).expect("the copy opens");
            let from_checkpoint = oracle.versions(&db).unwrap_or_else(|error| panic!("{error}"));
            assert_sound(&db);
            if let Recovery::Replayed { checkpoint_keys, .. } = db.recovery() {
                tally.copies_from_checkpoint += u64::from(checkpoint_keys > 0);
            }
            drop(db);
            let db = round.options().rebuild_index().open(&copy).expect("the log is whole");
            assert!(matches!(db.recovery(), Recovery::Replayed { .. }), "{:?}", db.recovery());
            assert_sound(&db);
            let versions = oracle.versions(&db).unwrap_or_else(|error| panic!("copy: {error}"));
            assert!(versions == from_checkpoint, "checkpoint and log differ");
            let before = content(&db);
            db.close().expect("the copy closes");
            let db = round.options().read_only().open(&copy).expect("the copy opens");
            assert!(content(&db) == before, "the copy has changed by being closed");
            tally.copies_replayed += 1;
            Some(versions)
        }
        _ => None,
    }
}

/// Opens what a kill left and checks it. A change that was in progress has been made or not; from
/// now on, what was found counts.
fn open_and_settle(round: &Round, copied: Option<&[u64]>, is_to_close: bool) {
    let oracle = Oracle::open(&round.oracle_path());
    oracle.begin_open(false);
    let db = round.options().open(round.store_path()).expect("what a kill left opens");
    oracle.end_open(db.recovery());
    let versions = oracle.settle(&db, round.writer_count());
    if let Some(copied) = copied {
        assert!(copied == versions, "index and log differ: {copied:?}, {versions:?}");
    }
    let buckets = db.stats().expect("the store can be counted").geometry.bucket_count();
    oracle.begin_close(buckets);
    if is_to_close {
        db.close().expect("the store closes");
    } else {
        drop(db);
    }
    oracle.end_close();
}

/// Kills a process at a random moment: while it starts, opens, recovers, reads, writes, syncs,
/// closes. This process, or the next one that is killed, opens what it left. Then every change that
/// returned must be there, each one in progress may be, nothing else is, and the open is a warm
/// restart. Readers check the same while the process lives.
#[test]
fn a_killed_process_loses_no_acknowledged_change() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut scene = Scene { dir: Some(dir), seed, at: String::new() };
    let mut tally = Tally::default();
    let round_count = rounds(210, 10_000);
    for number in 0..round_count {
        let store = number / ROUNDS_PER_STORE;
        let round = Round { dir: scene.path(), store, seed: rng.next() };
        scene.at = format!("round {number}, {round:?}, {:?}", round.plan());
        let is_first = number % ROUNDS_PER_STORE == 0;
        let is_last = (number + 1) % ROUNDS_PER_STORE == 0 || number + 1 == round_count;
        if is_first {
            Oracle::create(&round.oracle_path());
        }
        Oracle::open(&round.oracle_path()).enter(Phase::Starting);
        run_and_kill(&round);

        let oracle = Oracle::open(&round.oracle_path());
        oracle.set(Word::IsLeft, 1);
        tally.kills += 1;
        tally.kills_in[oracle.phase() as usize] += 1;
        let in_flight = oracle.in_flight();
        tally.in_flight += in_flight.len() as u64;
        let intended: Vec<u64> = in_flight.iter().map(|&key| oracle.intended(key)).collect();
        if round.store_path().exists() {
            let left = round.store_path().with_extension("left");
            fs::copy(round.store_path(), left).unwrap();
        }
        let copied = visit(&round, &oracle, rng.below(4), &mut tally);
        if !is_last && rng.below(3) == 0 {
            tally.left_to_successor += 1;
            continue;
        }
        open_and_settle(&round, copied.as_deref(), rng.below(2) == 0);
        let settled = Oracle::open(&round.oracle_path());
        let applied = in_flight.iter().zip(intended).filter(|&(&key, intended)| {
            value_of(key, intended).is_some() && settled.acknowledged(key) == intended
        });
        tally.in_flight_applied += applied.count() as u64;
        if is_last {
            tally.add_store(&settled);
            for file in fs::read_dir(scene.path()).unwrap() {
                fs::remove_file(file.unwrap().path()).unwrap();
            }
        }
    }
    tally.print();
    if is_slow() {
        // A few rounds on a busy machine may miss a case.
        tally.assert_much_came_about();
    }
}

/// Shows that the checks of this test fail: for a missing or old change that returned, for one that
/// was never begun, for a foreign key, for a kind of open that is not allowed.
#[test]
fn the_oracle_notices_what_is_missing_stale_early_or_foreign() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.oracle");
    Oracle::create(&path);
    let oracle = Oracle::open(&path);
    let db = splitpoint::Db::in_memory().unwrap();
    let version_with = |is_put: bool, from: u64| {
        (from..1000).find(|&version| value_of(7, version).is_some() == is_put).unwrap()
    };
    let first = version_with(true, 1);
    let second = version_with(true, first + 1);
    let store = |version| db.put(&oracle::key_bytes(7), &value_of(7, version).unwrap()).unwrap();
    let intend_until = |version| while oracle.intend(7) < version {};
    oracle.versions(&db).expect("nothing is there and nothing was begun");

    store(first);
    assert!(oracle.versions(&db).unwrap_err().contains("not one of 0..=0"), "early");
    intend_until(first);
    oracle.versions(&db).expect("it was begun");
    oracle.acknowledge(7);
    oracle.versions(&db).expect("it was acknowledged");
    intend_until(second);
    oracle.versions(&db).expect("the next one may be missing");
    oracle.acknowledge(7);
    assert!(oracle.versions(&db).unwrap_err().contains("version"), "stale");
    db.delete(&oracle::key_bytes(7)).unwrap();
    assert!(oracle.versions(&db).unwrap_err().contains("is missing"));
    store(second);
    oracle.versions(&db).expect("it is as it should be");
    db.put(b"somebody", b"else's").unwrap();
    assert!(oracle.versions(&db).unwrap_err().contains("a scan returned key"), "foreign");

    for (recovery, is_allowed) in [
        (Recovery::Replayed { checkpoint_keys: 0, records: 1, dropped_bytes: 0 }, false),
        (Recovery::Clean, false),
        (Recovery::WarmRestart { records: oracle::APPLIED_MAX + 1 }, false),
        (Recovery::WarmRestart { records: oracle::APPLIED_MAX }, true),
    ] {
        oracle.set(Word::Ways, oracle::way::TAKEN_OVER);
        let checked = std::panic::catch_unwind(|| Oracle::open(&path).end_open(recovery));
        assert_eq!(checked.is_ok(), is_allowed, "{recovery:?}");
    }
}
