//! Helpers of the tests: seeds, small tables, bad hash functions and a watchdog.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use splitpoint::hash::{HashFunction, HashId};
use splitpoint::{Change, Create, Db, Options, SimDisk, Table};

/// What takes longer is stuck: far more than anything takes in a debug build on a slow machine that
/// is busy with something else.
pub(crate) const HANG: Duration = Duration::from_secs(1800);

/// Contents of a table.
pub(crate) type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns whether `SPLITPOINT_SLOW=1` requests more rounds and larger sizes.
pub(crate) fn is_slow() -> bool {
    std::env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1")
}

/// Returns `normal`, or `slow` with `SPLITPOINT_SLOW=1`.
pub(crate) fn rounds(normal: u64, slow: u64) -> u64 {
    if is_slow() { slow } else { normal }
}

/// Returns whether a directory is on a tmpfs, which has no blocks that one could ask about.
pub(crate) fn is_tmpfs(dir: &Path) -> bool {
    const MAGIC: u64 = 0x0102_1994;
    rustix::fs::statfs(dir).is_ok_and(|found| found.f_type as u64 == MAGIC)
}

thread_local! {
    static IS_PRINTED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the seed of this run and prints it, once in each test.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("SPLITPOINT_SEED") {
        Ok(text) => text.parse().expect("SPLITPOINT_SEED is a number"),
        Err(_) => 1991,
    };
    IS_PRINTED.with(|is_printed| {
        if !is_printed.replace(true) {
            println!("SPLITPOINT_SEED={seed}");
        }
    });
    seed
}

/// Random numbers: splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Returns an index below `n`.
    pub(crate) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).expect("below a usize")
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// Returns a batch as the store takes it; a key without a value is a delete.
pub(crate) fn changes(batch: &[(Vec<u8>, Option<Vec<u8>>)]) -> Vec<Change<'_>> {
    batch
        .iter()
        .map(|(key, value)| match value {
            Some(value) => Change::Put { key, value },
            None => Change::Delete { key },
        })
        .collect()
}

/// Options for a table that soon has many segments and buckets.
pub(crate) fn tiny() -> Options {
    Options::new().segment_bytes_min(4096).seed(7)
}

/// [`tiny`], without compaction: the log has every record that was ever written.
pub(crate) fn tiny_with_whole_log() -> Options {
    tiny().keep_dead_records()
}

/// Default options.
pub(crate) fn usual() -> Options {
    Options::new()
}

/// Whether deletes merge buckets.
pub(crate) const IS_MERGED: bool = true;

/// A hash function with few distinct values in few bits: chains grow long, and splits shorten only
/// some of them.
pub(crate) fn bad_hash() -> HashFunction {
    let few_bits = |key: &[u8], _| splitpoint::hash::fnv1a_64(key) & 0b0001_0000_1001_0011;
    HashFunction::user(HashId(0x8000_0bad), "few-bits", few_bits).unwrap()
}

/// A hash function with four values: every chain overflows, and most splits move nothing.
pub(crate) fn worst_hash() -> HashFunction {
    let two_bits = |key: &[u8], _| splitpoint::hash::fnv1a_64(key) & 0b0001_0000_0001;
    HashFunction::user(HashId(0x8000_0bae), "two-bits", two_bits).unwrap()
}

/// Runs `check` with a function that opens an empty file, for each kind of file that a table can
/// have.
pub(crate) fn on_every_file(options: &Options, check: impl Fn(&dyn Fn() -> Box<dyn Table>)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.spt");
    check(&|| splitpoint::open_with(path.to_str().unwrap(), options).unwrap());
}

/// Runs `check` on an empty table of each kind: in memory, in a file, on a simulated disk.
pub(crate) fn on_every_table(options: &Options, check: impl Fn(&dyn Table)) {
    let table = splitpoint::open_with("mem:", options).unwrap();
    check(&*table);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.spt");
    let table = splitpoint::open_with(path.to_str().unwrap(), options).unwrap();
    check(&*table);
    let table: Box<dyn Table> = Box::new(SimDisk::new().open(options).unwrap());
    check(&*table);
}

/// Opens a simulated disk that must hold a store.
pub(crate) fn reopen(disk: &SimDisk, options: &Options) -> splitpoint::Result<Db> {
    disk.open(&options.clone().create(Create::Never))
}

/// Returns everything that a scan returns; fails if it returns a key twice.
pub(crate) fn content(db: &Db) -> Content {
    try_content(db).unwrap()
}

pub(crate) fn try_content(db: &Db) -> splitpoint::Result<Content> {
    let mut content = Content::new();
    for entry in db.scan()? {
        let entry = entry?;
        let earlier = content.insert(entry.key.to_vec(), entry.value.to_vec());
        assert_eq!(earlier, None, "a scan returned {:?} twice", entry.key.to_vec());
    }
    Ok(content)
}

/// Checks that scan, get, len and check agree with `expected`.
pub(crate) fn assert_content(db: &Db, expected: &Content) {
    let found = content(db);
    if found != *expected {
        let missing = expected.keys().find(|key| !found.contains_key(*key));
        let extra = found.keys().find(|key| !expected.contains_key(*key));
        panic!("{} of {} keys; {missing:?}, {extra:?}", found.len(), expected.len());
    }
    assert_eq!(db.len(), expected.len() as u64);
    for (key, value) in expected {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]), "{key:?}");
    }
    assert_sound(db);
}

/// Checks that a check finds nothing.
pub(crate) fn assert_sound(db: &Db) {
    let report = db.check().unwrap();
    assert!(
        report.is_clean(),
        "{} damages, {:?}",
        report.damage_count,
        &report.damages[..report.damages.len().min(3)]
    );
}

/// Has the kernel kill this process when its parent ends, however that happens.
pub(crate) fn end_with_parent() {
    use rustix::process::{Signal, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux has it");
}

/// Runs `what`, and fails if it does not end.
pub(crate) fn within<T: Send + 'static>(
    name: &str,
    what: impl FnOnce() -> T + Send + 'static,
) -> T {
    let limit = if is_slow() { 10 * HANG } else { HANG };
    let (sender, receiver) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what));
        let _ = sender.send(());
        result
    });
    match receiver.recv_timeout(limit) {
        Ok(()) => match worker.join().expect("the panic was caught") {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        },
        Err(error) => panic!("{name}: {error}: no end after {limit:?}"),
    }
}

/// Runs the test `name` in a separate process with `variable` set to `value`, without which that
/// test does nothing. For limits and counts of a whole process.
pub(crate) fn run_alone(name: &str, variable: &str, value: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(variable, value)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    assert!(out.contains("1 passed"), "there is no test `{name}`: {out}");
    println!("{out}");
}

/// Returns the file of a closed store that says what a close says of a large one: no checksum of the index, so
/// that an open uses the index whatever happens to it.
pub(crate) fn closed_as_large(mut file: Vec<u8>) -> Vec<u8> {
    for at in [0, 4096] {
        if file[at + 24] & 2 != 0 {
            file[at + 24] = 1;
            mend_superblock(&mut file, at);
        }
    }
    file
}

/// Writes the right checksum into the superblock at `offset`.
pub(crate) fn mend_superblock(bytes: &mut [u8], offset: usize) {
    let block = &mut bytes[offset..offset + 4096];
    block[12..16].fill(0);
    let crc = crc32c(block);
    block[12..16].copy_from_slice(&crc.to_le_bytes());
}

pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
        })
    })
}
