//! A process that makes the changes of a series until it is killed, and notes which have returned.
//!
//! The process is this test binary, started again with an environment variable.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use splitpoint::{Db, Durability, Options};

use crate::series::{Kind, Series};
use crate::support::{HANG, Rng, changes, end_with_parent, tiny};

const CHILD_ENV: &str = "SPLITPOINT_TEST_WRITER";
const SIGBUS: i32 = 7;
const SIGKILL: i32 = 9;

/// How durable the changes of a writer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Levels {
    /// Each change is durable when it returns.
    Sync,
    /// Levels by turns; now and then a `sync`, or a close and an open.
    Mixed,
}

/// The task of a writer, and its paths.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) store: PathBuf,
    /// A directory that outlives the writer and its file system.
    pub(crate) notes: PathBuf,
    pub(crate) series: Series,
    /// The number of its first change.
    pub(crate) first: u64,
    pub(crate) levels: Levels,
}

impl Job {
    /// Returns the options of the store, under which it soon has many segments and buckets.
    pub(crate) fn options(&self) -> Options {
        let fill_factor = match self.series.kind {
            Kind::Growing => 1.0,
            _ => 4.5,
        };
        tiny().fill_factor(fill_factor).checkpoint_bytes_min(8 << 10)
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

    /// Returns the log of the device, if there is one.
    pub(crate) fn device_log_path(&self) -> PathBuf {
        self.notes.join("device.log")
    }
}

/// The note of a writer after a call that returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// The number of changes that have returned.
    pub(crate) made: u64,
    /// The number of those that nothing may undo any more.
    pub(crate) durable: u64,
    /// Bytes in the log of the device, if there is one.
    pub(crate) device_position: u64,
}

impl Note {
    const BYTES: usize = 24;

    fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = [self.made, self.durable, self.device_position];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let [made, durable, device_position] = [0, 8, 16]
            .map(|at| u64::from_le_bytes(*bytes[at..].first_chunk().expect("three words")));
        Self { made, durable, device_position }
    }
}

/// Not a test by itself: the process that tests start and kill.
#[test]
fn writer_process_makes_changes_until_it_is_killed() {
    let Some(arguments) = std::env::var_os(CHILD_ENV) else { return };
    end_with_parent();
    let error = run(&Job::decode(&arguments.into_string().expect("our own words")));
    println!("stopped: {error}");
}

/// Makes changes until one fails.
fn run(job: &Job) -> splitpoint::Error {
    let mut notes = Notes {
        file: File::create(job.notes_path()).expect("the directory can be written"),
        device_log: job.device_log_path(),
        last: Note { made: job.first - 1, durable: job.first - 1, device_position: 0 },
    };
    notes.write(job).expect_err("there is no end")
}

/// The notes of the process.
struct Notes {
    file: File,
    device_log: PathBuf,
    last: Note,
}

impl Notes {
    fn write(&mut self, job: &Job) -> splitpoint::Result<()> {
        let mut db = job.options().open(&job.store)?;
        let mut rng = Rng::new(job.series.seed);
        for number in job.first.. {
            let level = job.level(number);
            make(&db, &job.series, number, level)?;
            self.add(number, level == Durability::Sync);
            if job.levels == Levels::Mixed {
                match rng.below(300) {
                    0 => {
                        db.close()?;
                        self.add(number, true);
                        db = job.options().open(&job.store)?;
                    }
                    1..8 => {
                        db.sync()?;
                        self.add(number, true);
                    }
                    _ => {}
                }
            }
        }
        unreachable!("there are enough numbers")
    }

    /// Notes that changes have been made, and whether they are durable.
    fn add(&mut self, made: u64, is_durable: bool) {
        // A durable change is in the log already, at or before its current end.
        let device_log = std::fs::metadata(&self.device_log);
        self.last = Note {
            made,
            durable: if is_durable { made } else { self.last.durable },
            device_position: device_log.map_or(0, |metadata| metadata.len()),
        };
        self.file.write_all(&self.last.encode()).expect("there is room");
    }
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

/// A running writer, killed on drop.
#[derive(Debug)]
pub(crate) struct Writer {
    child: Child,
    job: Job,
}

impl Writer {
    pub(crate) fn start(job: &Job) -> Self {
        // Drop the notes of an earlier writer.
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
        let read = || -> std::io::Result<Note> {
            let file = File::open(self.job.notes_path())?;
            let count = file.metadata()?.len() / Note::BYTES as u64;
            let mut bytes = [0; Note::BYTES];
            let at = count.checked_sub(1).ok_or(std::io::ErrorKind::NotFound)? * Note::BYTES as u64;
            file.read_exact_at(&mut bytes, at)?;
            Ok(Note::decode(&bytes))
        };
        read().unwrap_or_default()
    }

    /// Waits until `count` changes have returned.
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
        // The loss of its device may have ended it before: by an error, or see docs/durability.md.
        let is_expected = status.success() || matches!(status.signal(), Some(SIGKILL | SIGBUS));
        assert!(is_expected, "{status}: {}", self.said());
        self.note()
    }
}

/// Returns all that the writer of a job noted, in order.
pub(crate) fn notes(job: &Job) -> Vec<Note> {
    let bytes = std::fs::read(job.notes_path()).expect("a writer was started");
    bytes.chunks_exact(Note::BYTES).map(Note::decode).collect()
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
