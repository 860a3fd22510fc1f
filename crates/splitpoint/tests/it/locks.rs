//! Which handles may have a file open beside which others, of every pair of kinds: in one process, and in
//! two. Nobody waits here: what is refused is refused at once.
//!
//! The other process is this test binary, started again with an environment variable.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use splitpoint::{Db, Error, ErrorKind, Options, SharedFile, Sharing};

const KIND_ENV: &str = "SPLITPOINT_TEST_KIND";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    OneWriter,
    Exclusive,
    Shared,
    PerCall,
    Reader,
    ReaderAlone,
    ReaderPerCall,
    /// On a file that the program has opened.
    FileWriter,
    FileReader,
    /// On such a file, by turns.
    FileTurns,
    FileLooks,
}
use Kind::*;

const KINDS: [Kind; 11] = [
    OneWriter,
    Exclusive,
    Shared,
    PerCall,
    Reader,
    ReaderAlone,
    ReaderPerCall,
    FileWriter,
    FileReader,
    FileTurns,
    FileLooks,
];

/// What becomes of the second of two handles, and what both can do then.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Beside {
    is_open: bool,
    /// Whether the first one, and the second one, can read; whether they can write.
    first: Option<(bool, bool)>,
    second: Option<(bool, bool)>,
}

impl Kind {
    fn may_write(self) -> bool {
        !matches!(self, Reader | ReaderAlone | ReaderPerCall | FileReader | FileLooks)
    }

    /// Whether it holds no lock between calls.
    fn is_idle(self) -> bool {
        matches!(self, PerCall | ReaderPerCall | FileTurns | FileLooks)
    }

    /// Whether nobody writes while it is open, and whether nobody else has the file open.
    fn keeps_out(self) -> (bool, bool) {
        match self {
            OneWriter | ReaderAlone | FileReader => (true, false),
            Exclusive | FileWriter => (true, true),
            Shared | PerCall | Reader | ReaderPerCall | FileTurns | FileLooks => (false, false),
        }
    }

    fn open(self, path: &Path) -> Result<Open, Error> {
        let options = Options::new().lock_timeout(Duration::ZERO);
        let by_path = |options: Options| options.open(path).map(|db| Open { db, _file: None });
        let file = |is_writer: bool| {
            let open = File::options().read(true).write(true).open(path).expect("it is there");
            let file = if is_writer {
                SharedFile::for_writer(open, path)?
            } else {
                SharedFile::for_reader(open, path)?
            };
            let options = if is_writer { options.clone() } else { options.clone().read_only() };
            Ok(Open { db: options.open_shared(&file)?, _file: Some(file) })
        };
        let by_turns = |options: Options| {
            let open = File::options().read(true).write(self.may_write()).open(path);
            let file = SharedFile::by_turns(open.expect("it is there"), path)?;
            Ok(Open { db: options.open_shared(&file)?, _file: Some(file) })
        };
        match self {
            OneWriter => by_path(options.clone()),
            Exclusive => by_path(options.clone().sharing(Sharing::Exclusive)),
            Shared => by_path(options.clone().sharing(Sharing::Shared)),
            PerCall => by_path(options.clone().sharing(Sharing::PerCall)),
            Reader => by_path(options.clone().read_only()),
            ReaderAlone => by_path(options.clone().read_only().sharing(Sharing::Exclusive)),
            FileWriter => file(true),
            FileReader => file(false),
            FileTurns => by_turns(options.clone()),
            FileLooks => by_turns(options.clone().read_only()),
            ReaderPerCall => by_path(options.clone().read_only().sharing(Sharing::PerCall)),
        }
    }
}

struct Open {
    db: Db,
    _file: Option<SharedFile>,
}

impl Open {
    /// Returns whether it can read, and whether it can write.
    fn can(&self, kind: Kind) -> (bool, bool) {
        let is_locked = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
            false
        };
        let reads = self.db.get("key").map_or_else(is_locked, |value| {
            assert_eq!(value.expect("it was stored"), "value");
            true
        });
        let writes =
            kind.may_write() && self.db.put("other key", "value").map_or_else(is_locked, |()| true);
        (reads, writes)
    }
}

/// Says what docs/format.md's table of locks means for two handles.
fn expected(first: Kind, second: Kind) -> Beside {
    let refused = Beside { is_open: false, first: None, second: None };
    // What holds no lock between calls keeps nobody out.
    let (no_writer, nobody) = if first.is_idle() { (false, false) } else { first.keeps_out() };
    if nobody || no_writer && second.may_write() {
        return refused;
    }
    let (second_no_writer, second_nobody) = second.keeps_out();
    let is_idle = first.is_idle();
    let is_between_turns = first == Shared && !second.may_write();
    if second_nobody && !is_idle
        || second_no_writer && first.may_write() && !is_idle && !is_between_turns
    {
        return refused;
    }
    let can =
        |kind: Kind, (no_writer, nobody): (bool, bool)| (!nobody, kind.may_write() && !no_writer);
    Beside {
        is_open: true,
        first: Some(can(first, (second_no_writer, second_nobody))),
        second: Some(can(second, (no_writer, nobody))),
    }
}

fn store(path: &Path) {
    let db = Db::open(path).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
}

#[test]
fn every_pair_of_kinds_in_one_process_is_as_the_table_says() {
    for first in KINDS {
        for second in KINDS {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.spt");
            store(&path);
            let one = first.open(&path).unwrap();
            let found = match second.open(&path) {
                Ok(other) => Beside {
                    is_open: true,
                    first: Some(one.can(first)),
                    second: Some(other.can(second)),
                },
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Locked, "{first:?}, {second:?}: {error}");
                    Beside { is_open: false, first: None, second: None }
                }
            };
            assert_eq!(found, expected(first, second), "{first:?}, then {second:?}");
        }
    }
}

/// Not a test by itself: the other process, which opens the file in each way that it is told.
#[test]
fn another_process_opens_the_file() {
    let Some(path) = std::env::var_os(KIND_ENV) else { return };
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (kind, file) = line.split_once(' ').expect("a kind and a name");
        let kind = *KINDS.iter().find(|it| format!("{it:?}") == kind).expect("a kind");
        let opened = kind.open(&Path::new(&path).join(file));
        match &opened {
            Ok(open) => println!("{KIND_ENV} {:?}", Some(open.can(kind))),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
                println!("{KIND_ENV} None");
            }
        }
        // It stays open until the parent has looked.
        std::io::stdout().flush().unwrap();
        std::mem::forget(opened);
    }
}

#[test]
fn every_pair_of_kinds_in_two_processes_is_as_the_table_says() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "locks::another_process_opens_the_file", "--nocapture"])
        .env(KIND_ENV, dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut stdin = child.stdin.take().unwrap();
    for first in KINDS {
        for second in KINDS {
            let name = format!("{first:?}-{second:?}.spt");
            let path = dir.path().join(&name);
            store(&path);
            let one = first.open(&path).unwrap();
            writeln!(stdin, "{second:?} {name}").unwrap();
            let line = said.find(|line| line.contains(KIND_ENV)).expect("it answers");
            let expected = expected(first, second);
            let answer = format!("{:?}", expected.second);
            assert!(line.ends_with(&answer), "{first:?}, then {second:?}: {line}, not {answer}");
            if expected.is_open {
                assert_eq!(Some(one.can(first)), expected.first, "{first:?}, then {second:?}");
            }
        }
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}
