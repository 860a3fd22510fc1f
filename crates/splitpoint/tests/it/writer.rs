//! A process that makes the changes of a series until it is killed, and notes what was
//! acknowledged.
//!
//! The process is this test binary, started again with an environment variable.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use splitpoint::{Db, Durability, Options};

use crate::series::{Kind, Series};
use crate::support::{Rng, changes, tiny};

const CHILD_ENV: &str = "SPLITPOINT_TEST_WRITER";
/// Who has not come so far by then never will.
const HANG: Duration = Duration::from_secs(120);
const SIGBUS: i32 = 7;
const SIGKILL: i32 = 9;

/// How durable the changes of a writer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Levels {
    /// Each when it returns.
    Sync,
    /// By turns; and now and then there is a `sync`.
    Mixed,
}

/// What a writer does, and where.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) store: PathBuf,
    /// A directory that outlives the writer and its file system.
    pub(crate) notes: PathBuf,
    pub(crate) series: Series,
    /// Number of its first change.
    pub(crate) first: u64,
    pub(crate) levels: Levels,
}

impl Job {
    /// Returns how the store is made and opened: it soon has many segments and buckets.
    pub(crate) fn options(&self) -> Options {
        let fill_factor = match self.series.kind {
            Kind::Growing => 1.0,
            _ => 4.5,
        };
        tiny().fill_factor(fill_factor).checkpoint_bytes_min(256 << 10)
    }

    fn encode(&self) -> String {
        let Self { store, notes, series: Series { kind, seed }, first, levels } = self;
        let (store, notes, kind) = (store.display(), notes.display(), *kind as u8);
        format!("{store}|{notes}|{kind}|{seed}|{first}|{}", *levels as u8)
    }

    fn decode(text: &str) -> Self {
        let [store, notes, kind, seed, first, levels] = text.split('|').collect::<Vec<_>>()[..]
        else {
            panic!("not six words: {text}")
        };
        let number = |text: &str| text.parse().expect("a number");
        let kind = Kind::ALL[number(kind) as usize];
        let levels = [Levels::Sync, Levels::Mixed][number(levels) as usize];
        let series = Series { kind, seed: number(seed) };
        let (store, notes) = (store.into(), notes.into());
        Self { store, notes, series, first: number(first), levels }
    }

    fn level(&self, number: u64) -> Durability {
        if self.levels == Levels::Sync {
            return Durability::Sync;
        }
        match Rng::new(self.series.seed ^ number << 20).below(16) {
            0 => Durability::Sync,
            1..9 => Durability::Async,
            _ => Durability::Buffered,
        }
    }

    fn notes_path(&self) -> PathBuf {
        self.notes.join("notes")
    }
}

/// What a writer noted after each call that returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// Changes that were acknowledged.
    pub(crate) made: u64,
    /// Those of them that nothing may take back any more.
    pub(crate) durable: u64,
}

impl Note {
    const BYTES: usize = 16;

    fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.made.to_le_bytes());
        bytes[8..].copy_from_slice(&self.durable.to_le_bytes());
        bytes
    }

    fn decode(bytes: [u8; Self::BYTES]) -> Self {
        let [made, durable] =
            [0, 8].map(|at| u64::from_le_bytes(*bytes[at..].first_chunk().expect("8 bytes")));
        Self { made, durable }
    }
}

/// Not a test by itself: the process that tests start and kill.
#[test]
fn writer_process_makes_changes_until_it_is_killed() {
    let Some(arguments) = std::env::var_os(CHILD_ENV) else { return };
    let error = run(&Job::decode(&arguments.into_string().expect("our own words")));
    println!("stopped: {error}: {:?}", std::error::Error::source(&error));
}

/// Makes changes until one fails.
fn run(job: &Job) -> splitpoint::Error {
    let notes = File::create(job.notes_path()).expect("the directory can be written");
    let mut note = Note::default();
    let say = |note: Note| notes.write_all_at(&note.encode(), 0).expect("there is room");
    let mut write = || -> splitpoint::Result<()> {
        let db = job.options().open(&job.store)?;
        for number in job.first.. {
            let level = job.level(number);
            make(&db, &job.series, number, level)?;
            note.made = number;
            if level == Durability::Sync {
                note.durable = number;
            }
            say(note);
        }
        unreachable!("there are enough numbers")
    };
    write().expect_err("there is no end")
}

/// Makes one change of a series.
pub(crate) fn make(
    db: &Db,
    series: &Series,
    number: u64,
    level: Durability,
) -> splitpoint::Result<()> {
    let batch = series.change(number);
    match &batch[..] {
        [(key, Some(value))] => db.put_with(key, value, level),
        [(key, None)] => db.delete_with(key, level).map(drop),
        batch => db.apply_with(&changes(batch), level),
    }
}

/// A running writer; it is killed with the value.
#[derive(Debug)]
pub(crate) struct Writer {
    child: Child,
    job: Job,
}

impl Writer {
    pub(crate) fn start(job: &Job) -> Self {
        // An earlier one's notes are not this one's.
        let _ = std::fs::remove_file(job.notes_path());
        let output = File::create(job.notes.join("writer.log")).expect("a directory of ours");
        let child = Command::new(std::env::current_exe().expect("this program has a path"))
            .args(["--exact", "writer::writer_process_makes_changes_until_it_is_killed"])
            .arg("--nocapture")
            .env(CHILD_ENV, job.encode())
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file"))
            .stderr(output)
            .spawn()
            .expect("this program can be started");
        Self { child, job: job.clone() }
    }

    /// Returns what the writer noted last.
    pub(crate) fn note(&self) -> Note {
        let mut bytes = [0; Note::BYTES];
        match File::open(self.job.notes_path()).and_then(|file| file.read_exact_at(&mut bytes, 0)) {
            Ok(()) => Note::decode(bytes),
            Err(_) => Note::default(),
        }
    }

    /// Waits until so many changes have been acknowledged.
    pub(crate) fn wait_until_made(&mut self, count: u64) {
        let begun = Instant::now();
        while self.note().made < count {
            let ended = self.child.try_wait().expect("a child can be waited for");
            let is_late = begun.elapsed() > HANG;
            assert!(ended.is_none() && !is_late, "{ended:?}, {:?}: {}", self.note(), self.said());
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.job.notes.join("writer.log")).unwrap_or_default()
    }

    /// Kills the writer and returns what it noted last.
    pub(crate) fn kill(mut self) -> Note {
        self.child.kill().expect("a child can be killed");
        let status = self.child.wait().expect("a child can be waited for");
        // A device that has gone may have ended it before: by an error, or see docs/durability.md.
        let is_expected = status.success() || matches!(status.signal(), Some(SIGKILL | SIGBUS));
        assert!(is_expected, "{status}: {}", self.said());
        self.note()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
