//! Whole workloads, once each, with every answer checked.
//!
//! - W1, a dictionary: the first 24,474 words of a list and all of them, each with its number, made,
//!   synced, read, verified and scanned: the table of Seltzer and Yigit 1991.
//! - W2: 10,000,000 records of 16 + 100 bytes; W3: of 8 + 8 bytes.
//! - W4: one put per durable commit.
//! - W5: the first open and get of the W2 store after a close, a `kill -9` and a power loss. The last
//!   is a copy of what the killed process left, made before it is opened: another file, so that
//!   nothing but superblocks, checkpoint and log is believed; the copy is in the page cache.
//!
//! ```text
//! cargo bench -p splitpoint --bench workloads -- [W1|W2|W3|W4|W5]... [--records N] [--memory]
//!     [--words FILE] [--dir DIR]
//! ```
//!
//! Keys and values are made before the clock starts. A figure is nanoseconds per operation unless
//! it says otherwise.

#![expect(clippy::print_stdout, reason = "a program that prints its measurements")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use splitpoint::{Db, Durability, Options};

type Run = Result<(), Box<dyn std::error::Error>>;

/// The end of one step in a timed loop.
const DONE: splitpoint::Result<()> = Ok(());

fn main() -> Run {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut plan = Plan::default();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--records" => plan.record_count = value()?.replace('_', "").parse()?,
            "--words" => plan.words = Some(value()?.into()),
            "--dir" => plan.dir = Some(value()?.into()),
            "--memory" => plan.in_memory = true,
            "--leave" => return leave(&plan, Path::new(&value()?)),
            "W1" | "W2" | "W3" | "W4" | "W5" => plan.workloads.push(arg),
            _ => return Err(format!("unknown argument {arg}").into()),
        }
    }
    if plan.workloads.is_empty() {
        plan.workloads = ["W1", "W2", "W3", "W4", "W5"].map(String::from).into();
    }
    for workload in &plan.workloads {
        match workload.as_str() {
            "W1" => words(&plan)?,
            "W2" => random_keys(&plan, "W2", 16, 100)?,
            "W4" => commits(&plan)?,
            "W5" => recoveries(&plan)?,
            _ => random_keys(&plan, "W3", 8, 8)?,
        }
    }
    Ok(())
}

struct Plan {
    workloads: Vec<String>,
    record_count: usize,
    in_memory: bool,
    words: Option<PathBuf>,
    dir: Option<PathBuf>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            workloads: Vec::new(),
            record_count: 10_000_000,
            in_memory: false,
            words: None,
            dir: None,
        }
    }
}

impl Plan {
    /// Closes a store in a file, with the time it takes; a table in memory is dropped.
    fn close(&self, db: Db) -> splitpoint::Result<()> {
        if self.in_memory { Ok(()) } else { timed("sync + close", 1, || db.close().map(drop)) }
    }

    fn dir(&self) -> Result<tempfile::TempDir, std::io::Error> {
        match &self.dir {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir_in("."),
        }
    }
}

fn splitmix64(i: u64) -> u64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Writes key `i` of a workload.
fn write_key(i: u64, key: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bits = splitmix64(i);
    if key.len() == 8 {
        key.copy_from_slice(&bits.to_le_bytes());
        return;
    }
    for (digit, byte) in key.iter_mut().enumerate() {
        *byte = DIGITS[(bits >> (60 - 4 * digit) & 15) as usize];
    }
}

/// Keys one after the other in memory.
struct Keys {
    bytes: Vec<u8>,
    len: usize,
}

impl Keys {
    fn new(indices: impl Iterator<Item = u64>, len: usize) -> Self {
        let mut bytes = Vec::new();
        let mut key = vec![0; len];
        for i in indices {
            write_key(i, &mut key);
            bytes.extend_from_slice(&key);
        }
        Self { bytes, len }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.len)
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.len
    }
}

/// Runs `work`, prints nanoseconds per operation and returns what it returns.
fn timed<T>(name: &str, count: usize, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let elapsed = start.elapsed();
    println!(
        "  {name:<22} {:>10.1} ns/op   {:>8.3} s",
        elapsed.as_nanos() as f64 / count.max(1) as f64,
        elapsed.as_secs_f64()
    );
    result
}

fn open(plan: &Plan, path: &Path) -> splitpoint::Result<Db> {
    if plan.in_memory { Options::new().in_memory() } else { Db::open(path) }
}

/// A workload over random keys, and the data it needs, made before the clock starts.
struct RandomKeys<'a> {
    plan: &'a Plan,
    keys: Keys,
    values: Vec<u8>,
    value_bytes: usize,
    /// Keys to look up: their numbers and themselves.
    picks: Vec<u64>,
    hits: Keys,
}

impl<'a> RandomKeys<'a> {
    fn new(plan: &'a Plan, key_bytes: usize, value_bytes: usize) -> Self {
        let n = plan.record_count as u64;
        let picks: Vec<u64> = (0..n / 2).map(|i| splitmix64(i ^ 0xabcd) % n).collect();
        Self {
            plan,
            keys: Keys::new(0..n, key_bytes),
            values: (0..(1 << 20) / 8).flat_map(|i| splitmix64(i ^ 0x5555).to_le_bytes()).collect(),
            value_bytes,
            hits: Keys::new(picks.iter().copied(), key_bytes),
            picks,
        }
    }

    /// Returns value `i`: incompressible bytes.
    fn value(&self, i: usize) -> &[u8] {
        &self.values[(i * 8) % (self.values.len() - 128)..][..self.value_bytes]
    }

    /// Checks the length of every value and all of one in 256.
    fn verify(&self, value: Option<&[u8]>, i: u64) {
        let value = value.expect("the key is there");
        assert_eq!(value.len(), self.value_bytes);
        if i.is_multiple_of(256) {
            assert_eq!(value, self.value(i as usize));
        }
    }

    fn run(&self) -> Run {
        let dir = self.plan.dir()?;
        let path = dir.path().join("bench.spt");
        let db = self.create(&path)?;
        self.print_shape(&db)?;
        self.read(&db)?;
        self.scan(&db)?;
        self.change(&db)?;
        self.plan.close(db)?;
        drop(dir);
        self.latencies()
    }

    fn create(&self, path: &Path) -> Result<Db, Box<dyn std::error::Error>> {
        let n = self.keys.count();
        let db = open(self.plan, path)?;
        timed("create", n, || {
            self.keys.iter().enumerate().try_for_each(|(i, key)| db.put(key, self.value(i)))
        })?;
        if self.plan.in_memory {
            return Ok(db);
        }
        self.plan.close(db)?;
        Ok(timed("reopen", 1, || Db::open(path))?)
    }

    fn print_shape(&self, db: &Db) -> Run {
        let stats = db.stats()?;
        println!(
            "  {:<22} {:>10.1} B/record",
            "size",
            stats.file_bytes as f64 / self.keys.count() as f64
        );
        if let Some(path) = &stats.path {
            let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path)?);
            let bytes = (blocks * 512) as f64 / self.keys.count() as f64;
            println!("  {:<22} {bytes:>10.1} B/record", "size on disk");
        }
        println!(
            "  {:<22} {:>10.3} hit, {:.3} miss; {:.3} overflow lines per bucket",
            "lines looked at",
            stats.chains.probes_hit,
            stats.chains.probes_miss,
            stats.overflow_line_count as f64 / stats.geometry.bucket_count() as f64
        );
        Ok(())
    }

    fn read(&self, db: &Db) -> Run {
        for name in ["hit, first pass", "hit"] {
            timed(name, self.hits.count(), || {
                self.hits.iter().zip(&self.picks).try_for_each(|(key, &i)| {
                    self.verify(db.get(key)?.as_deref(), i);
                    DONE
                })
            })?;
        }
        let n = self.keys.count() as u64;
        let misses = Keys::new((0..n / 2).map(|i| i + 0x1_0000_0000), self.keys.len);
        timed("miss", misses.count(), || {
            misses.iter().try_for_each(|key| {
                assert!(db.get(key)?.is_none());
                DONE
            })
        })?;
        let refs: Vec<&[u8]> = self.hits.iter().collect();
        timed("hit, get_many of 32", refs.len(), || {
            refs.chunks(32).zip(self.picks.chunks(32)).try_for_each(|(keys, picks)| {
                for (value, &i) in db.get_many(keys)?.iter().zip(picks) {
                    self.verify(value.as_deref(), i);
                }
                DONE
            })
        })?;
        Ok(())
    }

    fn scan(&self, db: &Db) -> Run {
        let mut sum = 0;
        let mut count = 0;
        timed("scan with data", self.keys.count(), || {
            db.scan()?.try_for_each(|entry| {
                let entry = entry?;
                sum += u64::from(entry.value[0]) + entry.key.len() as u64;
                count += 1;
                DONE
            })
        })?;
        assert_eq!(count, self.keys.count());
        std::hint::black_box(sum);
        Ok(())
    }

    /// Overwrites and deletes one key in five.
    fn change(&self, db: &Db) -> Run {
        let n = self.keys.count();
        timed("overwrite", n / 5, || {
            let mut changes = self.hits.iter().zip(&self.picks).take(n / 5);
            changes.try_for_each(|(key, &i)| db.put(key, self.value(i as usize)))
        })?;
        let keys = Keys::new((0..n as u64 / 5).map(|i| i * 5 + 1), self.keys.len);
        let mut deleted = 0;
        timed("delete", keys.count(), || {
            keys.iter().try_for_each(|key| {
                deleted += usize::from(db.delete(key)?);
                DONE
            })
        })?;
        assert_eq!(db.len() as usize, n - deleted);
        Ok(())
    }

    /// Times every put by itself; apart from the others, since the clock costs a tenth of a put.
    fn latencies(&self) -> Run {
        let dir = self.plan.dir()?;
        let db = open(self.plan, &dir.path().join("bench.spt"))?;
        let mut ns = Vec::with_capacity(self.keys.count());
        for (i, key) in self.keys.iter().enumerate() {
            let start = Instant::now();
            db.put(key, self.value(i))?;
            ns.push(start.elapsed().as_nanos());
        }
        ns.sort_unstable();
        let at = |part: f64| ns[((ns.len() - 1) as f64 * part) as usize];
        println!(
            "  {:<22} p50 {} ns, p99 {} ns, p99.99 {:.1} us, worst {:.3} ms",
            "put",
            at(0.5),
            at(0.99),
            at(0.9999) as f64 / 1e3,
            at(1.0) as f64 / 1e6
        );
        Ok(())
    }
}

fn random_keys(plan: &Plan, name: &str, key_bytes: usize, value_bytes: usize) -> Run {
    let place = if plan.in_memory { "memory" } else { "a file" };
    println!(
        "{name}: {} records of {key_bytes} + {value_bytes} bytes in {place}",
        plan.record_count
    );
    RandomKeys::new(plan, key_bytes, value_bytes).run()
}

/// W4: one put per durable commit, from one thread and from eight.
fn commits(plan: &Plan) -> Run {
    println!("W4: 2,000 durable puts of 16 + 100 bytes");
    let keys = Keys::new(0..2000, 16);
    let keys: Vec<&[u8]> = keys.iter().collect();
    for thread_count in [1, 2, 4, 8] {
        let dir = plan.dir()?;
        let db = Options::new().durability(Durability::Sync).open(dir.path().join("bench.spt"))?;
        db.put(b"first", b"opens the log")?;
        timed(&format!("{thread_count} threads"), keys.len(), || {
            std::thread::scope(|scope| {
                for keys in keys.chunks(keys.len() / thread_count) {
                    let db = &db;
                    scope.spawn(move || {
                        for key in keys {
                            db.put(key, &[7; 100]).expect("the disk is not full");
                        }
                    });
                }
            });
        });
        assert_eq!(db.len(), 2001);
    }
    Ok(())
}

/// Size of a key and of a value of W2 in bytes.
const W2_BYTES: (usize, usize) = (16, 100);

/// W5: what the next process waits for.
fn recoveries(plan: &Plan) -> Run {
    println!("W5: open and get of {} records of W2", plan.record_count);
    let dir = plan.dir()?;
    let path = dir.path().join("bench.spt");
    let program = std::env::current_exe()?;
    let records = plan.record_count.to_string();
    let mut child = std::process::Command::new(program)
        .args(["--records", &records, "--leave"])
        .arg(&path)
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    // It says when it has stored everything; then it is killed.
    let mut said = [0; 5];
    let stdout = child.stdout.as_mut().ok_or("the child has an output")?;
    std::io::Read::read_exact(stdout, &mut said)?;
    child.kill()?;
    child.wait()?;
    let copy = dir.path().join("copy.spt");
    let mut key = [0; W2_BYTES.0];
    write_key(7, &mut key);
    for name in ["power loss", "power loss again", "power loss, third"] {
        std::fs::copy(&path, &copy)?;
        let db = open_and_get(name, &copy, &key)?;
        println!("  {:<22} {:?}", "", db.recovery());
        assert_eq!(db.len() as usize, plan.record_count);
        // Not closed: the next copy is made from the killed one.
        std::fs::remove_file(&copy)?;
    }
    let db = open_and_get("kill -9", &path, &key)?;
    println!("  {:<22} {:?}", "", db.recovery());
    assert!(db.check()?.is_clean());
    plan.close(db)?;
    for name in ["close", "close again", "close, third"] {
        open_and_get(name, &path, &key)?.close()?;
    }
    let db = timed("log alone", 1, || Options::new().rebuild_index().open(&path))?;
    assert_eq!(db.len() as usize, plan.record_count);
    Ok(())
}

fn open_and_get(name: &str, path: &Path, key: &[u8]) -> splitpoint::Result<Db> {
    timed(name, 1, || {
        let db = Db::open(path)?;
        assert!(db.contains(key)?);
        Ok(db)
    })
}

/// Makes the W2 store at `path`, says so and waits to be killed.
fn leave(plan: &Plan, path: &Path) -> Run {
    let work = RandomKeys::new(plan, W2_BYTES.0, W2_BYTES.1);
    let db = Db::open(path)?;
    for (i, key) in work.keys.iter().enumerate() {
        db.put(key, work.value(i))?;
    }
    println!("ready");
    std::io::Write::flush(&mut std::io::stdout())?;
    loop {
        std::thread::park();
    }
}

fn words(plan: &Plan) -> Run {
    let path = plan.words.clone().unwrap_or("/usr/share/dict/american-english-huge".into());
    let Ok(text) = std::fs::read(&path) else {
        println!("W1: skipped, no word list at {} (Debian: wamerican-huge)", path.display());
        return Ok(());
    };
    let all: Vec<&[u8]> =
        text.split(|&byte| byte == b'\n').filter(|word| !word.is_empty()).collect();
    for count in [24_474.min(all.len()), all.len()] {
        let words = &all[..count];
        let values: Vec<String> = (1..=count).map(|i| i.to_string()).collect();
        let mut millis: Vec<f64> = Vec::new();
        for _ in 0..7 {
            let dir = plan.dir()?;
            let start = Instant::now();
            let db = open(plan, &dir.path().join("words.spt"))?;
            for (word, value) in words.iter().zip(&values) {
                db.put(word, value.as_bytes())?;
            }
            db.sync()?;
            for word in words {
                assert!(db.get(word)?.is_some());
            }
            for (word, value) in words.iter().zip(&values) {
                assert_eq!(db.get(word)?.as_deref(), Some(value.as_bytes()));
            }
            assert_eq!(db.scan()?.flatten().count(), count);
            db.close()?;
            millis.push(start.elapsed().as_secs_f64() * 1e3);
        }
        millis.sort_by(f64::total_cmp);
        println!(
            "W1: {count} words, everything: median {:.1} ms, {:.1} to {:.1} of 7 runs",
            millis[3], millis[0], millis[6]
        );
    }
    Ok(())
}
