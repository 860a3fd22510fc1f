//! Several processes over one file: readers beside writers that are killed, stopped, of another user or in
//! another pid namespace.
//!
//! The other processes are this test binary, started again with an environment variable.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use splitpoint::{Db, Error, FileKind, Options, Sharing};

use crate::bank;
use crate::churn;
use crate::support::{HANG, Rng, assert_sound, content, rounds, seed};

const ROLE_ENV: &str = "SPLITPOINT_TEST_ROLE";
const KEYS: u64 = 500;
/// The key of the version that the writers have come to.
const VERSION: &[u8] = b"version";

pub(crate) fn compacting() -> Options {
    Options::new()
        .segment_bytes_min(4096)
        .checkpoint_bytes_min(32 << 10)
        .live_share(0.9)
        .poison_freed()
        .lock_timeout(HANG)
}

/// Returns a value that says whose it is.
pub(crate) fn value_of(key: u64, version: u64) -> Vec<u8> {
    let mut value = [key.to_le_bytes(), version.to_le_bytes()].concat();
    value.resize(16 + (key * 13 + version) as usize % 300, key as u8 ^ version as u8);
    value
}

/// Returns the version of a value, all of which it has looked at.
fn version_of(key: u64, value: &[u8]) -> u64 {
    let version = u64::from_le_bytes(value[8..16].try_into().expect("eight bytes"));
    assert!(value == value_of(key, version), "key {key}, version {version}: {value:?}");
    version
}

fn number_in(db: &Db, key: &[u8]) -> u64 {
    let value = db.get(key).expect("it is sound");
    value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().expect("a number")))
}

/// Not a test by itself: what the other processes do.
#[test]
fn another_process_plays_its_role() {
    let Some(role) = std::env::var_os(ROLE_ENV) else { return };
    let role = role.into_string().expect("text");
    let [name, path, seed] = role.split('|').collect::<Vec<_>>()[..] else { panic!("{role}") };
    let (path, seed) = (Path::new(path), seed.parse().expect("a number"));
    let rng = Rng::new(seed);
    match name {
        "write" => write_on(path, rng),
        "read" => read_on(path, rng),
        "count" => count(path),
        "turns" => take_turns(path, rng),
        "hold" => hold(path),
        "add" => add(path),
        "busy" => be_busy(path),
        "any" => be_anybody(path, rng),
        "tell" => bank::tell(path, seed),
        "audit" => bank::audit(path, seed),
        "keep" => churn::keep(path, seed),
        other => panic!("no role {other}"),
    }
}

/// Writes newer and newer versions of all keys.
fn write_on(path: &Path, mut rng: Rng) {
    loop {
        let db = compacting().open(path).expect("it opens");
        say("open");
        // Some close it, most are killed.
        for _ in 0..rng.below(200) {
            let version = number_in(&db, VERSION) + 1;
            for _ in 0..200 {
                let key = rng.below(KEYS);
                if rng.below(10) == 0 {
                    db.delete(key.to_le_bytes()).expect("it is written");
                } else {
                    let value = value_of(key, version);
                    db.put(key.to_le_bytes(), value).expect("it is written");
                }
            }
            db.put(VERSION, version.to_le_bytes()).expect("it is written");
            if rng.below(20) == 0 {
                db.sync().expect("it is synced");
            }
        }
        db.close().expect("it closes");
    }
}

/// Reads and scans, and holds some values for long.
fn read_on(path: &Path, mut rng: Rng) {
    let db = Options::new().read_only().open(path).expect("it opens");
    say("open");
    let mut reading = Reading::default();
    loop {
        reading.look(&db, &mut rng);
    }
}

/// What a reader has seen of each key, which must not go back. Lookups may see a change a moment before
/// it is committed, which a scan never has.
#[derive(Default)]
struct Reading {
    looked_up: BTreeMap<u64, u64>,
    scanned: BTreeMap<u64, u64>,
}

impl Reading {
    fn look(&mut self, db: &Db, rng: &mut Rng) {
        let mut held = Vec::new();
        for _ in 0..300 {
            let key = rng.below(KEYS);
            let Some(value) = db.get(key.to_le_bytes()).expect("it is sound") else { continue };
            see(&mut self.looked_up, key, version_of(key, &value));
            if held.len() < 50 {
                held.push((key, value));
            }
        }
        let before = number_in(db, VERSION);
        let mut seen = BTreeMap::new();
        for entry in db.scan().expect("it is sound") {
            let entry = entry.expect("it is sound");
            if entry.key.len() != size_of::<u64>() {
                continue;
            }
            let key = u64::from_le_bytes(entry.key[..].try_into().expect("a number"));
            let twice = seen.insert(key, version_of(key, &entry.value));
            assert_eq!(twice, None, "key {key} in one scan");
        }
        for (key, version) in seen {
            see(&mut self.scanned, key, version);
        }
        assert!(before <= number_in(db, VERSION));
        for (key, value) in held {
            version_of(key, &value);
        }
    }
}

fn see(versions: &mut BTreeMap<u64, u64>, key: u64, version: u64) {
    let last = versions.entry(key).or_default();
    assert!(*last <= version, "key {key} goes back from {last} to {version}");
    *last = version;
}

/// Adds to a number, one handle after the other.
fn count(path: &Path) {
    for _ in 0..25 {
        let db = compacting().open(path).expect("it waits for its turn");
        let number = number_in(&db, b"number") + 1;
        db.put(b"number", number.to_le_bytes()).expect("it is written");
        if number.is_multiple_of(2) {
            db.close().expect("it closes");
        }
    }
}

/// Changes keys by turns with others, and says how often it has come to its own counter.
fn take_turns(path: &Path, mut rng: Rng) {
    let own = format!("counter of {}", std::process::id());
    loop {
        let sharing = if rng.below(3) == 0 { Sharing::PerCall } else { Sharing::Shared };
        let db = compacting().sharing(sharing).open(path).expect("it opens");
        for _ in 0..rng.below(200) {
            for _ in 0..rng.below(4) {
                db.increment("all counters", 1).expect("it is counted");
                say(&format!("{own}: {}", db.increment(&own, 1).expect("it is counted")));
            }
            for _ in 0..rng.below(40) {
                let key = rng.below(KEYS);
                let next = |old: Option<&[u8]>| {
                    Some(value_of(key, old.map_or(0, |old| version_of(key, old)) + 1))
                };
                db.update(key.to_le_bytes(), next).expect("it is written");
            }
            if rng.below(30) == 0 {
                db.sync().expect("it is synced");
            }
        }
        if rng.below(2) == 0 {
            db.close().expect("it closes");
        }
    }
}

/// Adds to a number by turns with others: in a turn of each, and with handles that come and go.
fn add(path: &Path) {
    for _ in 0..5 {
        let db = compacting().sharing(Sharing::Shared).open(path).expect("it waits for its turn");
        for _ in 0..50 {
            db.increment(b"number", 1).expect("its turn comes");
        }
        db.close().expect("it closes");
    }
}

/// Opens the file in every way, one after the other, and adds to a number where it may; the last handle is left
/// as a kill leaves it. Whoever comes waits until the others let it in.
fn be_anybody(path: &Path, mut rng: Rng) {
    let mut seen = 0;
    for turn in 0..12 {
        let sharings = [Sharing::OneWriter, Sharing::Exclusive, Sharing::Shared, Sharing::PerCall];
        let sharing = sharings[rng.index(4)];
        match rng.below(6) {
            0 => {
                let copy = path.with_extension(format!("{}-{turn}", std::process::id()));
                match splitpoint::backup::backup(path, &copy) {
                    Err(error) if is_not_there(&error) => continue,
                    copied => copied.expect("it is copied"),
                };
                let db = Options::new().read_only().open(&copy).expect("the copy opens");
                see_more(&mut seen, &db);
            }
            1 | 2 => {
                let options = compacting().read_only().sharing(sharing);
                let db = match options.open(path) {
                    Err(error) if is_not_there(&error) => continue,
                    opened => opened.expect("it waits until it may read"),
                };
                see_more(&mut seen, &db);
                match db.check() {
                    // It waits for turns alone, and for no other writer.
                    Err(Error::Locked { .. }) if sharing != Sharing::Exclusive => {}
                    checked => assert!(checked.expect("nobody writes").is_clean()),
                }
                see_more(&mut seen, &db);
            }
            _ => {
                let opened = compacting().sharing(sharing).open(path);
                let db = opened.expect("it waits until it may write");
                see_more(&mut seen, &db);
                for _ in 0..rng.below(5) {
                    let number = db.increment(b"number", 1).expect("its turn comes");
                    say("added");
                    assert!(number > seen, "{number} after {seen}");
                    seen = number;
                }
                if rng.below(8) == 0 {
                    std::mem::forget(db);
                    return;
                }
                if rng.below(2) == 0 {
                    db.close().expect("it closes");
                }
            }
        }
    }
}

/// Returns whether a file is missing, or nobody has come further than to make it.
fn is_not_there(error: &Error) -> bool {
    match error {
        Error::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        Error::NotAStore { found, .. } => *found == FileKind::Empty,
        _ => false,
    }
}

/// Looks at a number that must not go back.
fn see_more(seen: &mut i64, db: &Db) {
    let value = db.get(b"number").expect("it is sound");
    let number =
        value.map_or(0, |value| i64::from_le_bytes(value[..].try_into().expect("a number")));
    assert!(number >= *seen, "{number} after {seen}");
    *seen = number;
}

/// Changes the file by turns without a pause, and so keeps its place between them.
fn be_busy(path: &Path) {
    let db = compacting().sharing(Sharing::Shared).open(path).expect("it opens");
    for version in 0.. {
        for key in 0..KEYS {
            db.put(key.to_le_bytes(), value_of(key, version)).expect("its turn comes");
        }
        if version == 10 {
            say("busy");
        }
    }
}

/// Holds a value until it is told to let go, and looks at it then.
fn hold(path: &Path) {
    let db = Options::new().read_only().open(path).expect("it opens");
    let value = db.get(7_u64.to_le_bytes()).expect("it is sound").expect("it was stored");
    let mut reading = Reading::default();
    reading.look(&db, &mut Rng::new(1));
    let version = version_of(7, &value);
    say("hold");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent lives");
    assert_eq!(version_of(7, &value), version);
    reading.look(&db, &mut Rng::new(2));
    drop(value);
    say("let go");
    std::io::stdin().read_line(&mut line).expect("the parent lives");
}

pub(crate) fn say(word: &str) {
    println!("{word}");
    std::io::stdout().flush().expect("the parent lives");
}

/// A process with a role, killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Process {
    fn command(program: Option<&[&str]>, name: &str, path: &Path, seed: u64) -> Command {
        let test = std::env::current_exe().expect("this program has a path");
        let mut command = match program {
            Some([program, arguments @ ..]) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(test);
                command
            }
            _ => Command::new(test),
        };
        command
            .args(["--exact", "processes::another_process_plays_its_role", "--nocapture"])
            // With one, a panic takes so long that the process is killed before it has failed.
            .env("RUST_BACKTRACE", "0")
            .env(ROLE_ENV, format!("{name}|{}|{seed}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        command
    }

    pub(crate) fn start(name: &str, path: &Path, seed: u64) -> Self {
        Self::run(&mut Self::command(None, name, path, seed)).expect("this program can be started")
    }

    fn run(command: &mut Command) -> std::io::Result<Self> {
        let mut child = command.spawn()?;
        let said = BufReader::new(child.stdout.take().expect("it was asked for"));
        Ok(Self { child, said })
    }

    /// Waits until it says a word; returns whether it did before its end.
    pub(crate) fn says(&mut self, word: &str) -> bool {
        let lines = (&mut self.said).lines().map_while(Result::ok);
        lines.into_iter().any(|line| line.ends_with(word))
    }

    /// Waits until it says one of some words; returns the number of that word.
    pub(crate) fn says_which(&mut self, words: &[&str]) -> usize {
        let mut lines = (&mut self.said).lines().map_while(Result::ok);
        let said = |line: String| words.iter().position(|word| line.ends_with(word));
        lines.find_map(said).expect("it says one of them")
    }

    pub(crate) fn tell(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("it was asked for");
        stdin.write_all(b"go\n").expect("it lives");
    }

    /// Kills it, unless it has ended by itself: with an error, if it had a role without an end.
    pub(crate) fn kill(mut self) {
        let ended = self.child.try_wait().expect("it can be waited for");
        assert!(ended.is_none(), "it has ended by itself: {ended:?}");
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it can be waited for");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal by its name.
fn signal(process: &Process, name: &str) {
    let pid = process.child.id().to_string();
    let sent = Command::new("kill").args([name, &pid]).status().expect("there is a `kill`");
    assert!(sent.success());
}

#[test]
fn readers_survive_every_writer_and_no_value_goes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let mut rng = Rng::new(seed());
    let db = compacting().open(&path).unwrap();
    for key in 0..KEYS {
        db.put(key.to_le_bytes(), value_of(key, 0)).unwrap();
    }
    db.close().unwrap();
    let reader = Options::new().read_only().open(&path).unwrap();
    let (mut reading, mut early_count) = (Reading::default(), 0);
    // In half of which a version is written, however slow the machine is.
    let mut span_us = 40_000;
    let round_count = rounds(30, 2_500);
    for round in 0..round_count {
        let begun = Instant::now();
        let mut writer = Process::start("write", &path, rng.below(u64::MAX));
        let mut readers = [0, 1].map(|_| Process::start("read", &path, rng.below(u64::MAX)));
        if !opens_beside(&mut writer, &mut readers) {
            early_count += 1;
            writer.kill();
            continue;
        }
        for other in &mut readers {
            assert!(other.says("open"), "round {round}");
        }
        let held = reader.get(1_u64.to_le_bytes()).unwrap();
        reading.look(&reader, &mut rng);
        while number_in(&reader, VERSION) == 0 && begun.elapsed() < Duration::from_secs(600) {
            std::thread::sleep(Duration::from_millis(1));
            span_us = span_us.max(2 * begun.elapsed().as_micros() as u64);
        }
        std::thread::sleep(Duration::from_micros(rng.below(span_us)));
        let [first, second] = readers;
        if rng.below(2) == 0 {
            first.kill();
            writer.kill();
        } else {
            writer.kill();
            first.kill();
        }
        // Beside nobody, or behind a change that was not finished.
        reading.look(&reader, &mut rng);
        if let Some(value) = &held {
            version_of(1, value);
        }
        second.kill();
        if round % 5 == 0 {
            let db = compacting().open(&path).unwrap();
            reading.look(&db, &mut rng);
            assert_sound(&db);
            assert!(db.stats().unwrap().readers.len() <= 1, "the dead are forgotten");
        }
    }
    assert!(early_count <= round_count / 2, "{early_count} of {round_count} rounds");
    let db = compacting().open(&path).unwrap();
    assert!(number_in(&db, VERSION) > 0, "nothing was written");
    assert_sound(&db);
}

/// Waits until the writer has opened the file; returns whether it did so beside the readers. If they open before
/// it what a killed writer left in the middle of a change, they have an index of their own and keep it out: then
/// they are killed.
fn opens_beside(writer: &mut Process, readers: &mut [Process]) -> bool {
    let (has_opened, opened) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let is_in_time = opened.recv_timeout(Duration::from_secs(20)).is_ok();
            if !is_in_time {
                for reader in readers {
                    reader.child.kill().expect("it was not waited for");
                    reader.child.wait().expect("it can be waited for");
                }
            }
            is_in_time
        });
        assert!(writer.says("open"), "it has ended");
        // Nobody listens if it took too long.
        let _ = has_opened.send(());
        watch.join().expect("it only kills")
    })
}

/// Four writers and four readers, one of which dies after the other. The counters of the writers are what
/// they have said or one more, and together what all have counted, or one less for each that was killed.
#[test]
fn writers_by_turns_survive_each_other_and_count_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let mut rng = Rng::new(seed());
    let db = compacting().sharing(Sharing::Shared).open(&path).unwrap();
    for key in 0..KEYS {
        db.put(key.to_le_bytes(), value_of(key, 0)).unwrap();
    }
    let mut reading = Reading::default();
    let (mut counted, mut killed) = (0, 0);
    for round in 0..rounds(8, 1_250) {
        let writers: Vec<_> =
            (0..4).map(|_| Process::start("turns", &path, rng.below(u64::MAX))).collect();
        let readers: Vec<_> =
            (0..4).map(|_| Process::start("read", &path, rng.below(u64::MAX))).collect();
        let mut all: Vec<Process> = writers.into_iter().chain(readers).collect();
        while !all.is_empty() {
            std::thread::sleep(Duration::from_micros(rng.below(20_000)));
            reading.look(&db, &mut rng);
            db.increment("counter of the parent", 1).unwrap();
            let next = rng.index(all.len());
            let mut dying = all.swap_remove(next);
            let ended = dying.child.try_wait().unwrap();
            assert!(ended.is_none(), "round {round}: it has ended by itself: {ended:?}");
            dying.child.kill().unwrap();
            dying.child.wait().unwrap();
            let mut said = None;
            for line in (&mut dying.said).lines().map_while(Result::ok) {
                let Some((start, count)) = line.split_once(": ") else { continue };
                if start.starts_with("counter of ") {
                    said = count.parse::<i64>().ok().map(|count| (start.to_owned(), count));
                }
            }
            killed += 1;
            let own = format!("counter of {}", dying.child.id());
            let count = db.increment(&own, 0).unwrap();
            if let Some((start, last)) = said {
                assert_eq!(start, own);
                assert!((last..=last + 1).contains(&count), "round {round}: {count}, said {last}");
            }
            counted += count;
            db.delete(&own).unwrap();
        }
        let total = db.increment("all counters", 0).unwrap();
        assert!((counted..=counted + killed).contains(&total), "{total}, {counted} by {killed}");
        assert!(db.check().unwrap().is_clean());
    }
    assert!(counted > 0, "nothing was counted");
    drop(db);
    assert_sound(&Db::open(&path).unwrap());
}

#[test]
fn a_number_to_which_processes_add_by_turns_is_exact() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let processes: Vec<_> = (0..4).map(|i| Process::start("count", &path, i)).collect();
    for mut process in processes {
        assert!(process.child.wait().unwrap().success());
    }
    assert_eq!(number_in(&Db::open(&path).unwrap(), b"number"), 100);
}

#[test]
fn handles_of_every_kind_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(seed());
    for round in 0..rounds(4, 400) {
        let path = dir.path().join(format!("{round}.spt"));
        let mut added = 0;
        if rng.below(2) == 0 {
            let db = Db::open(dir.path().join("first")).unwrap();
            added = db.increment(b"number", 1).unwrap();
            // As a power loss leaves it.
            std::fs::copy(dir.path().join("first"), &path).unwrap();
        }
        let processes: Vec<_> =
            (0..4).map(|_| Process::start("any", &path, rng.below(u64::MAX))).collect();
        for mut process in processes {
            let lines = (&mut process.said).lines().map_while(Result::ok);
            added += lines.map(|line| i64::from(line.ends_with("added"))).sum::<i64>();
            assert!(process.child.wait().unwrap().success(), "round {round}");
        }
        let db = Db::open(&path).unwrap();
        assert_eq!(db.increment(b"number", 0).unwrap(), added, "round {round}");
        assert_sound(&db);
    }
}

#[test]
fn a_number_to_which_processes_of_several_pid_namespaces_add_by_turns_is_exact() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    if !can_unshare() {
        return;
    }
    let start = |i| match i {
        0 | 1 => Process::start("add", &path, i),
        _ => Process::run(&mut Process::command(Some(&UNSHARE), "add", &path, i)).unwrap(),
    };
    for mut process in (0..4).map(start).collect::<Vec<_>>() {
        assert!(process.child.wait().unwrap().success());
    }
    assert_eq!(Db::open(&path).unwrap().increment(b"number", 0).unwrap(), 1_000);
}

/// A check, a repair and a reader that keeps writers out wait until it is their turn.
#[test]
fn whoever_keeps_writers_out_gets_the_place_that_a_busy_writer_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    store_of_all_keys(&path);
    let mut busy: Vec<_> = (0..2).map(|i| Process::start("busy", &path, i)).collect();
    assert!(busy.iter_mut().all(|process| process.says("busy")));
    let options = Options::new().read_only().lock_timeout(HANG);
    let reader = options.clone().open(&path).unwrap();
    for i in 0..5 {
        assert!(reader.check().unwrap().is_clean(), "round {i}");
        let alone = options.clone().sharing(Sharing::Exclusive).open(&path).unwrap();
        assert_eq!(content(&alone), content(&alone), "nobody writes beside it");
        drop(alone);
        let saved = dir.path().join(format!("{i}"));
        let report = splitpoint::repair::repair(&path, &saved).unwrap();
        assert_eq!((report.key_count, report.damaged.len()), (KEYS, 0), "{report:?}");
    }
    busy.into_iter().for_each(Process::kill);
    drop(reader);
    assert_sound(&Db::open(&path).unwrap());
}

/// More than the reader table has places for: the others lock a byte while they read.
#[test]
fn two_hundred_reader_processes_read_beside_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    store_of_all_keys(&path);
    let db = compacting().open(&path).unwrap();
    let mut readers: Vec<_> = (0..200).map(|i| Process::start("hold", &path, i)).collect();
    assert!(readers.iter_mut().all(|reader| reader.says("hold")));
    for version in 1..5 {
        for key in 0..KEYS {
            db.put(key.to_le_bytes(), value_of(key, version)).unwrap();
        }
    }
    let stats = db.stats().unwrap();
    assert!(stats.is_pinned && stats.readers.len() > 50, "{}", stats.readers.len());
    for reader in &mut readers {
        reader.tell();
        assert!(reader.says("let go"), "its value has changed");
        reader.tell();
    }
    drop(readers);
    assert_sound(&db);
}

/// Has a process hold a value while the store is overwritten, and returns how large the file became.
fn overwrite_beside(mut holder: Process, path: &Path, in_the_middle: impl FnOnce(&Process, &Db)) {
    let db = compacting().open(path).unwrap();
    assert!(holder.says("hold"), "it was to hold a value");
    in_the_middle(&holder, &db);
    for version in 1..40 {
        for key in 0..KEYS {
            if (key + version) % 3 == 0 {
                db.put(key.to_le_bytes(), value_of(key, version)).unwrap();
            }
        }
        db.sync().unwrap();
        if version % 10 == 9 {
            db.maintain(u64::MAX).unwrap();
        }
    }
    let stats = db.stats().unwrap();
    assert!(stats.is_pinned && stats.moved_bytes > 0, "{stats:?}");
    holder.tell();
    assert!(holder.says("let go"), "its value has changed");
    let held_bytes = db.stats().unwrap().segments.waiting;
    for _ in 0..4 {
        db.put(2_u64.to_le_bytes(), value_of(2, 50)).unwrap();
        db.maintain(u64::MAX).unwrap();
    }
    let stats = db.stats().unwrap();
    assert!(!stats.is_pinned && stats.segments.waiting < held_bytes, "{held_bytes}, {stats:?}");
    assert_sound(&db);
}

fn store_of_all_keys(path: &Path) {
    let db = compacting().open(path).unwrap();
    for key in 0..KEYS {
        db.put(key.to_le_bytes(), value_of(key, 0)).unwrap();
    }
    db.close().unwrap();
}

#[test]
fn a_reader_that_is_stopped_holds_back_what_it_holds_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    store_of_all_keys(&path);
    let writer = compacting().open(&path).unwrap();
    let holder = Process::start("hold", &path, 0);
    let pid = holder.child.id();
    // It is to open the store beside a writer.
    while !writer.stats().unwrap().readers.iter().any(|reader| reader.pid == pid) {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(writer);
    overwrite_beside(holder, &path, |holder, db| {
        signal(holder, "-STOP");
        db.put(1_u64.to_le_bytes(), value_of(1, 1)).unwrap();
        let stats = db.stats().unwrap();
        assert!(
            stats.readers.iter().any(|reader| reader.pid == pid && reader.is_pinned),
            "{stats:?}"
        );
        signal(holder, "-CONT");
    });
}

#[test]
fn a_reader_of_another_user_without_permission_to_write_holds_what_it_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    store_of_all_keys(&path);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let nobody = 65_534;
    let mut command = Process::command(None, "hold", &path, 0);
    let Ok(mut holder) = Process::run(command.uid(nobody).gid(nobody)) else {
        // Only root may start a process of another user.
        return;
    };
    if !holder.says("hold") {
        // Another user may not even look into the directory of this program.
        return;
    }
    holder.kill();
    let before = fs::read(&path).unwrap();
    let mut command = Process::command(None, "hold", &path, 0);
    let holder = Process::run(command.uid(nobody).gid(nobody)).unwrap();
    overwrite_beside(holder, &path, |_, db| {
        let stats = db.stats().unwrap();
        assert!(stats.is_pinned && stats.readers.is_empty(), "it has no place: {stats:?}");
    });
    assert!(fs::read(&path).unwrap() != before);
}

const UNSHARE: [&str; 4] = ["unshare", "--pid", "--fork", "--kill-child"];

/// Returns whether processes can have a pid namespace of their own: only root may make one, and not in
/// every container.
fn can_unshare() -> bool {
    let made = Command::new("unshare").args(["--pid", "--fork", "true"]).status();
    made.is_ok_and(|status| status.success())
}

#[test]
fn a_reader_in_another_pid_namespace_is_as_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    store_of_all_keys(&path);
    if !can_unshare() {
        return;
    }
    let mut command = Process::command(Some(&UNSHARE), "hold", &path, 0);
    overwrite_beside(Process::run(&mut command).unwrap(), &path, |_, _| ());
}

#[test]
fn reading_a_closed_store_leaves_its_file_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    store_of_all_keys(&path);
    let state = || (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
    let before = state();
    let reader = Options::new().read_only().open(&path).unwrap();
    // More lookups, and the handle notes itself in the header.
    Reading::default().look(&reader, &mut Rng::new(seed()));
    assert!(reader.check().unwrap().is_clean());
    reader.stats().unwrap();
    assert!(state() == before);
    drop(reader);
    assert!(state() == before);
}
