//! A real process that is killed in the middle of its work, and a real file.
//!
//! The process is this test binary, started again with an environment variable. It changes the
//! store and reports each change that was acknowledged through a pipe: what is in a pipe survives
//! its writer.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use splitpoint::{Create, Durability, Options, Recovery};

use crate::support::{Rng, assert_sound, bad_hash, content, rounds, seed, tiny, worst_hash};

const CHILD_ENV: &str = "SPLITPOINT_TEST_KILLED";

/// Keys that the process works on.
const KEYS: u64 = 400;

fn options(round: u64) -> Options {
    let hash = match round % 3 {
        0 => worst_hash(),
        1 => bad_hash(),
        _ => splitpoint::hash::HashFunction::rapidhash_v3(),
    };
    let fill_factor = [1.0, 4.5, 7.0][(round / 3 % 3) as usize];
    tiny().hash(hash).fill_factor(fill_factor).create(Create::IfMissing)
}

/// The changes of a round: a number from 1 says which. All of it follows from the seed, so that
/// the parent knows what each number did.
struct Changes {
    rng: Rng,
    number: u64,
}

struct Change {
    number: u64,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
    durability: Durability,
}

impl Changes {
    fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), number: 0 }
    }

    fn next(&mut self) -> Change {
        self.number += 1;
        let key = self.rng.below(KEYS).to_le_bytes().to_vec();
        // For a while the table grows, for a while it shrinks.
        let is_growing = (self.number / 600).is_multiple_of(2);
        let is_put = self.rng.below(10) < if is_growing { 9 } else { 2 };
        let len = [10, 60, 300, 3000][(self.rng.below(40) / 13) as usize];
        let value = is_put.then(|| {
            let mut value = self.number.to_le_bytes().to_vec();
            value.resize(8 + len, self.number as u8);
            value
        });
        let durability =
            if self.rng.below(200) == 0 { Durability::Sync } else { Durability::Buffered };
        Change { number: self.number, key, value, durability }
    }
}

/// Not a test by itself: the process that the test below starts and kills.
#[test]
fn killed_process_changes_the_store_until_it_is_killed() {
    let Some(arguments) = std::env::var_os(CHILD_ENV) else { return };
    let arguments = arguments.into_string().unwrap();
    let [path, round, seed] = arguments.split('|').collect::<Vec<_>>()[..] else {
        panic!("three arguments")
    };
    let db = options(round.parse().unwrap()).open(path).unwrap();
    let mut changes = Changes::new(seed.parse().unwrap());
    let mut report = std::io::stderr().lock();
    loop {
        let Change { number, key, value, durability } = changes.next();
        match value {
            Some(value) => db.put_with(&key, &value, durability).unwrap(),
            None => drop(db.delete_with(&key, durability).unwrap()),
        }
        report.write_all(&number.to_le_bytes()).unwrap();
    }
}

fn start(path: &Path, round: u64, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::killed_process_changes_the_store_until_it_is_killed"])
        .arg("--nocapture")
        .env(CHILD_ENV, format!("{}|{round}|{seed}", path.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads reports until `count` changes are acknowledged, kills the process, and returns how many
/// it had acknowledged in the end.
fn kill_after(mut child: Child, count: u64) -> u64 {
    let mut pipe = child.stderr.take().expect("a pipe");
    let mut report = [0; 8];
    for number in 1..=count {
        pipe.read_exact(&mut report).unwrap();
        assert_eq!(u64::from_le_bytes(report), number, "{:?}", String::from_utf8_lossy(&report));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    let mut rest = Vec::new();
    pipe.read_to_end(&mut rest).unwrap();
    count + rest.len() as u64 / 8
}

/// Kills a process at a random moment of its work and opens the file again, several times for
/// each file. Every acknowledged change must be there, the one under way may be, and the index is
/// taken over without reading the log.
#[test]
fn a_killed_process_loses_no_acknowledged_change() {
    let mut rng = Rng::new(seed());
    let dir = tempfile::tempdir().unwrap();
    let round_count = rounds(30, 300);
    let mut applied_count = 0;
    for round in 0..round_count {
        let path = dir.path().join(format!("{}.spt", round / 5));
        let round_options = options(round / 5);
        let mut model: HashMap<Vec<u8>, Vec<u8>> = if path.exists() {
            content(&round_options.open(&path).unwrap()).into_iter().collect()
        } else {
            HashMap::new()
        };
        let seed = rng.next();
        let limit = if round % 5 == 0 { 10 } else { 4000 };
        let count = kill_after(start(&path, round / 5, seed), rng.below(limit));
        let mut changes = Changes::new(seed);
        let mut apply = |model: &mut HashMap<Vec<u8>, Vec<u8>>| match changes.next() {
            Change { key, value: Some(value), .. } => drop(model.insert(key, value)),
            Change { key, value: None, .. } => drop(model.remove(&key)),
        };
        (0..count).for_each(|_| apply(&mut model));
        let db = round_options.open(&path).unwrap();
        match db.recovery() {
            Recovery::TakenOver { records } => {
                assert!(records <= 2, "round {round}: {records} records applied");
                applied_count += records;
            }
            // Killed before its first change.
            recovery => assert!(count == 0, "round {round}: {recovery:?} after {count} changes"),
        }
        let found: HashMap<_, _> = content(&db).into_iter().collect();
        if found != model {
            apply(&mut model);
            assert!(found == model, "round {round}: not the first {count} changes nor one more");
        }
        assert!(found.iter().all(|(key, value)| db.get(key).unwrap().as_deref() == Some(value)));
        assert_eq!(db.len(), model.len() as u64, "round {round}");
        assert_sound(&db);
        if round % 2 == 0 {
            db.close().unwrap();
        } else {
            db.put(&[0; 8], b"one more change by the parent").unwrap();
        }
    }
    println!("{applied_count} records applied in {round_count} rounds");
}

/// A process that is killed while it waits for durability, again and again on one file: what a
/// synced change stored is there, and the next process goes on in the same log.
#[test]
fn a_store_goes_on_through_many_kills() {
    let mut rng = Rng::new(seed());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("often.spt");
    for round in 0..rounds(8, 100) {
        kill_after(start(&path, 1, rng.next()), rng.below(100));
        if round % 3 == 2 {
            let db = options(1).open(&path).unwrap();
            assert_sound(&db);
            assert_eq!(content(&db).len() as u64, db.len());
        }
    }
}

/// A read-only handle on what a killed process left: it reads everything and leaves it to the
/// next writer to take it over.
#[test]
fn a_read_only_handle_reads_what_a_killed_process_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("left.spt");
    let count = kill_after(start(&path, 0, 77), 300);
    let mut model = HashMap::new();
    let mut changes = Changes::new(77);
    for _ in 0..count {
        match changes.next() {
            Change { key, value: Some(value), .. } => drop(model.insert(key, value)),
            Change { key, value: None, .. } => drop(model.remove(&key)),
        }
    }
    let last = changes.next().key;
    let db = options(0).read_only().open(&path).unwrap();
    for (key, value) in &model {
        if *key != last {
            assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
        }
    }
    drop(db);
    let db = options(0).open(&path).unwrap();
    assert!(matches!(db.recovery(), Recovery::TakenOver { .. }));
    assert_sound(&db);
}
