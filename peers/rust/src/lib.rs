//! The engines written in Rust, each an [`Engine`], and the work of the race for them in the tight
//! driver: one program per engine hands it to [`run`]. The crate `engines_c` puts the same engines
//! behind the interface in C of the dependent driver.
//!
//! `peers/cpp/harness.hpp` is the same for engines with a C or C++ interface, and says what is
//! measured and how. Both must ask for the same keys, in the same order, with the same values;
//! `cargo test -p race` compares the checksums that they print with `--checksum`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use data::{Block, Data, Item, digest, pick, prefix, splitmix64};
use measure::{Histogram, Load, device_read_bytes, faults, space, status_bytes};

mod data;
#[cfg(feature = "fjall")]
pub mod fjall;
#[cfg(feature = "hashbrown")]
pub mod hashbrown;
mod map;
mod measure;
mod processes;
#[cfg(feature = "redb")]
pub mod redb;
#[cfg(feature = "sled")]
pub mod sled;
#[cfg(feature = "splitpoint")]
pub mod splitpoint;
#[cfg(feature = "std_hash_map")]
pub mod std_hash_map;

pub use map::{BoxedMap, MapEngine};

/// What goes wrong ends the program.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What an engine is told when it is opened.
#[derive(Clone, Debug)]
pub struct Config {
    pub dir: PathBuf,
    /// Number of records that will be stored, for engines whose manuals ask to be told.
    pub record_count: u64,
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// What a cache of the engine's own may hold, where it has one.
    pub cache_bytes: u64,
}

/// An engine under measurement.
///
/// Values are lent to `found` where the engine can lend them, so that no engine pays for a copy
/// that its users need not make.
pub trait Engine: Sized {
    /// In a file, or in memory only.
    const IS_PERSISTENT: bool;

    /// Makes the table, or opens the one that is there.
    fn open(config: &Config) -> Outcome<Self>;

    /// Stores a record. Nothing is made durable.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()>;

    /// Calls `found` with the value, if there is one, and returns whether there was.
    fn get(&mut self, key: &[u8], found: impl FnMut(&[u8])) -> Outcome<bool>;

    /// Returns whether there was such a key, where the engine tells.
    fn delete(&mut self, key: &[u8]) -> Outcome<bool>;

    /// Calls `each` once for every record.
    fn scan(&mut self, each: impl FnMut(&[u8], &[u8])) -> Outcome<()>;

    /// Makes durable all that was put.
    fn sync(&mut self) -> Outcome<()>;

    /// Makes durable all that was put, and closes the table.
    fn close(self) -> Outcome<()>;

    /// Commits the open transaction, at the end of a phase.
    fn settle(&mut self) -> Outcome<()> {
        Ok(())
    }

    /// Looks up many keys at once; `found` gets the index of the key too. Returns false if the
    /// engine has no such call.
    fn get_many(&mut self, _keys: &[&[u8]], _found: impl FnMut(usize, &[u8])) -> Outcome<bool> {
        Ok(false)
    }

    /// Reads each key, calls `found` with its index and value, and stores its new value, all in one
    /// transaction. Nothing is made durable. Returns false if the engine has no such transactions.
    fn transact(
        &mut self,
        _pairs: &[(&[u8], &[u8])],
        _found: impl FnMut(usize, &[u8]),
    ) -> Outcome<bool> {
        Ok(false)
    }

    /// Returns what threads may do together, if the engine allows it.
    fn shared(&self) -> Option<&dyn Shared> {
        None
    }

    /// Opens the table that is there beside other processes, if the engine allows it: when a `put` has
    /// returned they find the record, and a `get` finds the newest that any of them has put.
    fn open_beside(_config: &Config, _beside: Beside) -> Outcome<Option<Self>> {
        Ok(None)
    }
}

/// What a process does beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    Reads,
    WritesAlone,
    WritesByTurns,
}

/// What may be called from many threads.
pub trait Shared: Sync {
    /// Durable when it returns.
    fn put_durable(&self, key: &[u8], value: &[u8]) -> Outcome<()>;

    /// Stores a record. Nothing is made durable.
    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()>;

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Outcome<bool>;
}

/// What a phase ended with.
enum End {
    Done,
    Unsupported(&'static str),
}

/// The clock is read once in so many calls; a call that takes milliseconds stands out of them.
const GROUP: usize = 16;

/// What is measured in one phase.
#[derive(Default)]
struct Tally {
    time: Duration,
    worst: Duration,
    operation_count: u64,
    checksum: u64,
    histogram: Histogram,
    extra: String,
}

struct Runner<E> {
    config: Config,
    data: Data,
    has_checksum: bool,
    engine: Option<E>,
    block: Block,
    block_records: usize,
    group: usize,
    overwritten: Vec<bool>,
    deleted: Vec<bool>,
    tally: Tally,
    /// Read by nobody but the optimizer, which must not leave out that answers are read.
    sink: u64,
}

/// Runs the phases that the command line asks for, and ends the process.
pub fn run<E: Engine>() -> ! {
    let code = match started::<E>() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: {error}");
            1
        }
    };
    // What is still open is not closed.
    std::process::exit(code)
}

fn started<E: Engine>() -> Outcome<()> {
    let mut config = Config {
        dir: PathBuf::new(),
        record_count: 0,
        key_bytes: 16,
        value_bytes: 100,
        cache_bytes: 1 << 30,
    };
    let (mut words, mut has_checksum, mut phases) = (None, false, Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(word) = args.next() {
        let mut value = || args.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--dir" => config.dir = value()?.into(),
            "--records" => config.record_count = value()?.parse()?,
            "--key-bytes" => config.key_bytes = value()?.parse()?,
            "--value-bytes" => config.value_bytes = value()?.parse()?,
            "--cache-bytes" => config.cache_bytes = value()?.parse()?,
            "--words" => words = Some(value()?),
            "--checksum" => has_checksum = true,
            _ => phases.push(word),
        }
    }
    let data = Data::new(&config, words.as_deref())?;
    let mut runner = Runner::<E>::new(config, data, has_checksum);
    phases.iter().try_for_each(|phase| runner.phase(phase))?;
    if let Some(engine) = runner.engine.take() {
        // As if the process had been killed: nothing is closed.
        std::mem::forget(engine);
    }
    Ok(())
}

fn claim(is_true: bool, what: &'static str) -> Outcome<()> {
    if is_true { Ok(()) } else { Err(what.into()) }
}

impl<E: Engine> Runner<E> {
    fn new(config: Config, data: Data, has_checksum: bool) -> Self {
        let bytes = (config.value_bytes + config.key_bytes).max(1);
        let record_count = config.record_count as usize;
        Self {
            data,
            has_checksum,
            engine: None,
            block: Block::default(),
            block_records: ((8 << 20) / bytes).clamp(1, 4096),
            group: if config.value_bytes >= 4096 { 1 } else { GROUP },
            overwritten: vec![false; record_count],
            deleted: vec![false; record_count],
            tally: Tally::default(),
            sink: 0,
            config,
        }
    }

    fn engine(&mut self) -> &mut E {
        self.engine.as_mut().expect("a phase `open` came before")
    }

    /// Runs one phase and prints its line.
    fn phase(&mut self, text: &str) -> Outcome<()> {
        self.tally = Tally::default();
        let (faults_before, read_before, load) = (faults(), device_read_bytes(), Load::now());
        let end = self.work(text)?;
        match end {
            End::Unsupported(why) => println!("{{\"phase\":\"{text}\",\"unsupported\":\"{why}\"}}"),
            End::Done => {
                let mut line = String::new();
                self.line(text, &mut line)?;
                load.print_since(&mut line)?;
                write!(line, ",\"faults\":{}", faults() - faults_before)?;
                write!(line, ",\"read_bytes\":{}", device_read_bytes() - read_before)?;
                println!("{line}{}}}", self.tally.extra);
            }
        }
        if text == "kill" {
            let pid = std::process::id().to_string();
            std::process::Command::new("kill").args(["-9", &pid]).status()?;
        }
        Ok(())
    }

    fn work(&mut self, text: &str) -> Outcome<End> {
        let words: Vec<&str> = text.split(':').collect();
        let number = |i: usize| words.get(i).map_or(Ok(0), |word| word.parse::<u64>());
        match words[0] {
            "open" => {
                let config = self.config.clone();
                self.engine = Some(self.tally.once(|| E::open(&config))?);
            }
            "create" => self.create(words.len() > 1)?,
            "sync" => {
                let engine = self.engine.as_mut().expect("a phase `open` came before");
                self.tally.once(|| engine.sync())?;
            }
            "close" => {
                let engine = self.engine.take().expect("a phase `open` came before");
                self.tally.once(|| engine.close())?;
            }
            "hit" => self.lookup(number(1)?)?,
            "first_get" => self.lookup(1)?,
            "miss" => self.miss(number(1)?)?,
            "get_many" => return self.get_many(number(1)?, number(2)? as usize),
            "read" => self.in_order(false)?,
            "verify" => self.in_order(true)?,
            "scan" => self.scan()?,
            "overwrite" => self.overwrite(number(1)?, false, words.len() > 2)?,
            "churn" => self.overwrite(number(1)?, words.get(2) == Some(&"skewed"), true)?,
            "transactions" => return self.transactions(number(1)?, number(2)? as usize),
            "delete" => self.delete(number(1)?)?,
            "durable" => return self.durable(number(1)?, number(2)? as usize),
            "flush" => self.flush(number(1)?)?,
            "readers" => return self.readers(number(1)? as usize, number(2)?),
            "beside" => return self.processes((number(1)?, 1), number(2)?, Beside::Reads),
            "written" => return self.processes((number(1)?, 1), number(2)?, Beside::WritesAlone),
            "turns" => return self.processes((0, number(1)?), number(2)?, Beside::WritesByTurns),
            "process" => self.process(words[1], number(2)?, number(3)?)?,
            "audit" => self.audit()?,
            "kill" => {}
            name => return Err(format!("there is no phase `{name}`").into()),
        }
        Ok(End::Done)
    }

    fn line(&self, text: &str, line: &mut String) -> Outcome<()> {
        std::hint::black_box(self.sink);
        let Tally { time, worst, operation_count, checksum, histogram, .. } = &self.tally;
        write!(
            line,
            "{{\"phase\":\"{text}\",\"ops\":{operation_count},\"ns\":{}",
            time.as_nanos()
        )?;
        write!(line, ",\"worst_ns\":{}", worst.as_nanos())?;
        let (rss, peak) = (status_bytes("VmRSS:"), status_bytes("VmHWM:"));
        write!(line, ",\"rss_bytes\":{rss},\"peak_rss_bytes\":{peak}")?;
        if E::IS_PERSISTENT {
            let (file_bytes, disk_bytes) = space(&self.config.dir);
            write!(line, ",\"file_bytes\":{file_bytes},\"disk_bytes\":{disk_bytes}")?;
        }
        if !histogram.is_empty() {
            for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)] {
                write!(line, ",\"{name}_ns\":{}", histogram.at(part))?;
            }
        }
        if self.has_checksum {
            write!(line, ",\"checksum\":\"{checksum:016x}\"")?;
        }
        Ok(())
    }

    /// Makes `count` operations in blocks; `choose` says what the j-th one is about: a record and
    /// how often it has been changed.
    fn blocks(
        &mut self,
        count: u64,
        has_value: bool,
        has_latency: bool,
        mut choose: impl FnMut(&mut Self, u64) -> (u64, u64),
        mut operation: impl FnMut(&mut Self, Item<'_>) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut slowest = (Duration::ZERO, 1);
        let group = if has_latency { 1 } else { self.group };
        let mut block = std::mem::take(&mut self.block);
        let mut done = 0;
        while done < count {
            let end = count.min(done + self.block_records as u64);
            self.fill(&mut block, done..end, has_value, &mut choose);
            done = end;
            let start = Instant::now();
            let mut before = start;
            for items in block.groups(group) {
                for item in items.items() {
                    operation(self, item)?;
                }
                let after = Instant::now();
                let took = after - before;
                if has_latency {
                    self.tally.histogram.add(took);
                }
                if took > slowest.0 {
                    slowest = (took, items.len());
                }
                before = after;
            }
            if done == count {
                self.engine().settle()?;
            }
            self.tally.time += start.elapsed();
        }
        self.block = block;
        self.tally.operation_count += count;
        // What the other calls of the group took on average is not the slow one's.
        let mean = self.tally.time.as_nanos() as u64 / count.max(1);
        let others = Duration::from_nanos(mean * (slowest.1 as u64 - 1));
        let worst = slowest.0.checked_sub(others).unwrap_or(slowest.0);
        self.tally.worst = self.tally.worst.max(worst);
        Ok(())
    }

    /// Writes the keys, and the values if they are wanted, of some operations into a block.
    fn fill(
        &mut self,
        block: &mut Block,
        operations: Range<u64>,
        has_value: bool,
        mut choose: impl FnMut(&mut Self, u64) -> (u64, u64),
    ) {
        block.clear();
        for j in operations {
            let (index, version) = choose(self, j);
            block.add(&self.data, index, version, has_value);
        }
        if self.has_checksum {
            self.tally.checksum = self.tally.checksum.wrapping_add(block.checksum());
        }
    }

    fn create(&mut self, has_latency: bool) -> Outcome<()> {
        let count = self.config.record_count;
        self.blocks(count, true, has_latency, |_, j| (j, 0), put_item)
    }

    fn lookup(&mut self, count: u64) -> Outcome<()> {
        let choose = |runner: &mut Self, j| (pick(j, runner.config.record_count), 0);
        self.blocks(count, false, false, choose, |runner, item| runner.get(&item, false))
    }

    fn in_order(&mut self, is_whole: bool) -> Outcome<()> {
        let count = self.config.record_count;
        self.blocks(count, false, false, |_, j| (j, 0), |runner, item| runner.get(&item, is_whole))
    }

    fn get(&mut self, item: &Item<'_>, is_whole: bool) -> Outcome<()> {
        let mut answers = Answers {
            data: &mut self.data,
            overwritten: &self.overwritten,
            has_checksum: self.has_checksum,
            tally: &mut self.tally,
            sink: &mut self.sink,
            is_wrong: false,
        };
        let engine = self.engine.as_mut().expect("a phase `open` came before");
        let found = engine.get(item.key, |value| answers.check(item.index, value, is_whole))?;
        claim(!answers.is_wrong, "a value is not the one that was stored")?;
        claim(found, "a key that was stored is not found")
    }

    fn miss(&mut self, count: u64) -> Outcome<()> {
        self.blocks(
            count,
            false,
            false,
            |_, j| (j + 0x1_0000_0000, 0),
            |runner, item| {
                let found = runner.engine().get(item.key, |_| ())?;
                claim(!found, "a key that was never stored is found")
            },
        )
    }

    fn get_many(&mut self, count: u64, batch: usize) -> Outcome<End> {
        if !self.engine().get_many(&[], |_, _| ())? {
            return Ok(End::Unsupported("no call for many keys"));
        }
        claim(count.is_multiple_of(batch as u64), "lookups are not a multiple of the batch")?;
        // A batch is one group of the block, given to the engine at once.
        let choose = |runner: &mut Self, j| (pick(j, runner.config.record_count), 0);
        let mut answer_count = 0;
        let mut block = std::mem::take(&mut self.block);
        let mut done = 0;
        while done < count {
            let end = count.min(done + (self.block_records / batch * batch).max(batch) as u64);
            self.fill(&mut block, done..end, false, choose);
            done = end;
            let keys: Vec<&[u8]> = block.all().items().map(|item| item.key).collect();
            let indices: Vec<u64> = block.all().items().map(|item| item.index).collect();
            let start = Instant::now();
            let engine = self.engine.as_mut().expect("a phase `open` came before");
            let mut answers = Answers {
                data: &mut self.data,
                overwritten: &self.overwritten,
                has_checksum: self.has_checksum,
                tally: &mut self.tally,
                sink: &mut self.sink,
                is_wrong: false,
            };
            for (keys, indices) in keys.chunks(batch).zip(indices.chunks(batch)) {
                let before = Instant::now();
                engine.get_many(keys, |i, value| {
                    answers.check(indices[i], value, false);
                    answer_count += 1;
                })?;
                answers.tally.worst = answers.tally.worst.max(before.elapsed());
            }
            claim(!answers.is_wrong, "a value is not the one that was stored")?;
            self.tally.time += start.elapsed();
        }
        self.block = block;
        self.tally.operation_count += count;
        claim(answer_count == count, "a key that was stored is not found")?;
        Ok(End::Done)
    }

    fn scan(&mut self) -> Outcome<()> {
        // What the keys add up to is counted before the clock starts.
        let (mut expected_count, mut expected_sum) = (0, 0_u64);
        let mut key = Vec::new();
        for i in (0..self.config.record_count).filter(|&i| !self.deleted[i as usize]) {
            key.clear();
            self.data.append_key(i, &mut key);
            expected_count += 1;
            expected_sum = expected_sum.wrapping_add(prefix(&key));
        }
        let (mut count, mut sum, mut sink, mut checksum) = (0_u64, 0_u64, 0_u64, 0_u64);
        let has_checksum = self.has_checksum;
        let start = Instant::now();
        self.engine().scan(|key, value| {
            count += 1;
            sum = sum.wrapping_add(prefix(key));
            sink = sink.wrapping_add(ends(value));
            if has_checksum {
                let both = digest(key).wrapping_add(digest(value).wrapping_mul(5));
                checksum = checksum.wrapping_add(both);
            }
        })?;
        self.tally.time += start.elapsed();
        self.sink = self.sink.wrapping_add(sink);
        self.tally.checksum = self.tally.checksum.wrapping_add(checksum);
        self.tally.operation_count += count;
        let is_right = count == expected_count && sum == expected_sum;
        claim(is_right, "a scan does not give every key once")
    }

    fn overwrite(&mut self, count: u64, is_skewed: bool, has_latency: bool) -> Outcome<()> {
        // 80/20: four in five of the changes go to the first fifth of the records.
        let choose = |runner: &mut Self, j: u64| {
            let record_count = runner.config.record_count;
            let mut index = pick(j ^ 0x7777_0000, record_count);
            if is_skewed && splitmix64(j ^ 0x8020) % 5 < 4 {
                index %= (record_count / 5).max(1);
            }
            runner.overwritten[index as usize] = true;
            (index, 1)
        };
        self.blocks(count, true, has_latency, choose, put_item)
    }

    /// Transactions of so many changes, each of which reads a record and stores another value. An
    /// operation is a change; the worst is a transaction.
    fn transactions(&mut self, count: u64, size: usize) -> Outcome<End> {
        if !self.engine().transact(&[], |_, _| ())? {
            return Ok(End::Unsupported("no transactions that read"));
        }
        let is_multiple = size > 0 && count.is_multiple_of(size as u64);
        claim(is_multiple, "the changes are no multiple of those in a transaction")?;
        let choose =
            |runner: &mut Self, j: u64| (pick(j ^ 0x5555_0000, runner.config.record_count), 1);
        let mut block = std::mem::take(&mut self.block);
        let mut done = 0;
        while done < count {
            let end = count.min(done + (self.block_records / size * size).max(size) as u64);
            self.fill(&mut block, done..end, true, choose);
            done = end;
            let pairs: Vec<_> = block.all().items().map(|item| (item.key, item.value)).collect();
            let indices: Vec<u64> = block.all().items().map(|item| item.index).collect();
            let start = Instant::now();
            let mut before = start;
            for (pairs, indices) in pairs.chunks(size).zip(indices.chunks(size)) {
                let engine = self.engine.as_mut().expect("a phase `open` came before");
                let (mut found_count, mut is_wrong) = (0, false);
                engine.transact(pairs, |i, value| {
                    let mut answers = Answers {
                        data: &mut self.data,
                        overwritten: &self.overwritten,
                        has_checksum: self.has_checksum,
                        tally: &mut self.tally,
                        sink: &mut self.sink,
                        is_wrong,
                    };
                    answers.check(indices[i], value, false);
                    is_wrong = answers.is_wrong;
                    self.overwritten[indices[i] as usize] = true;
                    found_count += 1;
                })?;
                claim(!is_wrong, "a value is not the one that was stored")?;
                claim(found_count == size, "a key that was stored is not found")?;
                let after = Instant::now();
                self.tally.worst = self.tally.worst.max(after - before);
                before = after;
            }
            self.tally.time += before - start;
            self.tally.operation_count += pairs.len() as u64;
        }
        self.block = block;
        Ok(End::Done)
    }

    fn delete(&mut self, count: u64) -> Outcome<()> {
        // A prime step visits different records, in an order that no engine has.
        const STEP: u64 = 2_654_435_761;
        let record_count = self.config.record_count;
        let is_permutation = count <= record_count && !record_count.is_multiple_of(STEP);
        claim(is_permutation, "no such order of deletes")?;
        let choose = |runner: &mut Self, j| {
            let index = j * STEP % record_count;
            runner.deleted[index as usize] = true;
            (index, 0)
        };
        self.blocks(count, false, false, choose, |runner, item| {
            claim(runner.engine().delete(item.key)?, "a key to delete is not found")
        })
    }

    /// Looks up one record in 61, with the clock not running, and compares the whole answer.
    fn audit(&mut self) -> Outcome<()> {
        for index in (0..self.config.record_count).step_by(61) {
            let mut key = Vec::new();
            self.data.append_key(index, &mut key);
            if self.deleted[index as usize] {
                let found = self.engine().get(&key, |_| ())?;
                claim(!found, "a deleted record is there")?;
            } else {
                self.get(&Item { key: &key, value: &[], index }, true)?;
            }
        }
        Ok(())
    }

    /// One put per durable commit, from so many threads.
    fn durable(&mut self, count: u64, thread_count: usize) -> Outcome<End> {
        let mut block = std::mem::take(&mut self.block);
        self.fill(&mut block, 0..count, true, |runner, j| (runner.config.record_count + j, 0));
        let items: Vec<Item<'_>> = block.all().items().collect();
        let engine = self.engine.as_mut().expect("a phase `open` came before");
        let Some(shared) = engine.shared() else {
            return Ok(End::Unsupported("no durable put"));
        };
        let start = Instant::now();
        let work = |thread: usize| {
            let (mut worst, mut before) = (Duration::ZERO, Instant::now());
            for item in items.iter().skip(thread).step_by(thread_count) {
                shared.put_durable(item.key, item.value)?;
                let after = Instant::now();
                worst = worst.max(after - before);
                before = after;
            }
            Ok(worst)
        };
        let worst = std::thread::scope(|scope| {
            let work = &work;
            let others: Vec<_> =
                (1..thread_count).map(|thread| scope.spawn(move || work(thread))).collect();
            let mut worst = work(0);
            for other in others {
                let of_other: Outcome<Duration> = other.join().expect("it does not panic");
                worst = worst.and_then(|worst| Ok(worst.max(of_other?)));
            }
            worst
        })?;
        self.tally.time += start.elapsed();
        self.tally.worst = worst;
        self.tally.operation_count += count;
        for item in &items {
            let mut is_right = false;
            engine.get(item.key, |value| is_right = value == item.value)?;
            claim(is_right, "a durable put is not found")?;
        }
        self.block = block;
        Ok(End::Done)
    }

    /// Overwrites 4 KiB of a file of its own, and has the device make it durable: what a durable
    /// commit cannot take less than. No engine has a part in it.
    fn flush(&mut self, count: u64) -> Outcome<()> {
        let path = self.config.dir.join("flush");
        let file = File::create(&path)?;
        let mut page = [b'x'; 4096];
        let mut checksum = 0_u64;
        let mut write = |j: u64| -> Outcome<()> {
            page[..8].copy_from_slice(&j.to_le_bytes());
            file.write_all_at(&page, 0)?;
            if self.has_checksum {
                checksum = checksum.wrapping_add(digest(&page));
            }
            Ok(())
        };
        write(0)?;
        file.sync_all()?;
        for j in 1..=count {
            self.tally.once(|| {
                write(j)?;
                Ok(file.sync_data()?)
            })?;
        }
        self.tally.checksum = self.tally.checksum.wrapping_add(checksum);
        Ok(fs::remove_file(&path)?)
    }

    /// So many threads look up random records for so many milliseconds, while one overwrites.
    fn readers(&mut self, thread_count: usize, milliseconds: u64) -> Outcome<End> {
        let engine = self.engine.as_mut().expect("a phase `open` came before");
        let Some(shared) = engine.shared() else {
            return Ok(End::Unsupported("no reads from other threads"));
        };
        let (data, config) = (&self.data, &self.config);
        let (is_over, ready_count) = (AtomicBool::new(false), AtomicU64::new(0));
        let read = |thread: usize| -> Outcome<u64> {
            let (mut block, mut get_count) = (Block::default(), 0);
            let mut j = (thread as u64) << 32;
            while !is_over.load(Relaxed) {
                block.clear();
                for _ in 0..1024 {
                    block.add(data, pick(j, config.record_count), 0, false);
                    j += 1;
                }
                if get_count == 0 {
                    ready_count.fetch_add(1, Relaxed);
                }
                for item in block.all().items() {
                    let mut bytes = 0;
                    let found = shared.get(item.key, &mut |value| bytes = value.len())?;
                    let is_right = found && bytes == data.value_bytes(item.index);
                    claim(is_right, "a wrong answer while one writes")?;
                    get_count += 1;
                }
            }
            Ok(get_count)
        };
        let (mut put_count, mut time) = (0, Duration::ZERO);
        let overwritten = &mut self.overwritten;
        let gets = std::thread::scope(|scope| -> Outcome<u64> {
            let read = &read;
            let readers: Vec<_> =
                (0..thread_count).map(|thread| scope.spawn(move || read(thread))).collect();
            while ready_count.load(Relaxed) < thread_count as u64
                && !readers.iter().any(std::thread::ScopedJoinHandle::is_finished)
            {
                std::thread::yield_now();
            }
            let start = Instant::now();
            let mut block = Block::default();
            while start.elapsed() < Duration::from_millis(milliseconds) {
                block.clear();
                for _ in 0..256 {
                    let index = pick(put_count ^ 0x9999_0000, config.record_count);
                    overwritten[index as usize] = true;
                    block.add(data, index, 1, true);
                    put_count += 1;
                }
                for item in block.all().items() {
                    shared.put(item.key, item.value)?;
                }
            }
            is_over.store(true, Relaxed);
            let gets = readers
                .into_iter()
                .map(|reader| reader.join().expect("it does not panic"))
                .sum::<Outcome<u64>>();
            time = start.elapsed();
            gets
        })?;
        self.tally.time += time;
        self.tally.operation_count += gets;
        write!(self.tally.extra, ",\"puts\":{put_count}")?;
        Ok(End::Done)
    }
}

fn put_item<E: Engine>(runner: &mut Runner<E>, item: Item<'_>) -> Outcome<()> {
    runner.engine().put(item.key, item.value)
}

fn ends(value: &[u8]) -> u64 {
    match (value.first(), value.last()) {
        (Some(&first), Some(&last)) => u64::from(first) + u64::from(last),
        _ => 0,
    }
}

/// Checks what an engine answers.
struct Answers<'a> {
    data: &'a mut Data,
    overwritten: &'a [bool],
    has_checksum: bool,
    tally: &'a mut Tally,
    sink: &'a mut u64,
    is_wrong: bool,
}

impl Answers<'_> {
    #[inline]
    fn check(&mut self, index: u64, value: &[u8], is_whole: bool) {
        if !self.data.is_words() || is_whole {
            self.is_wrong |= value.len() != self.data.value_bytes(index);
        }
        *self.sink = self.sink.wrapping_add(ends(value));
        if is_whole || index.is_multiple_of(256) {
            let version = u64::from(self.overwritten[index as usize]);
            self.is_wrong |= !self.data.is_value(index, version, value);
        }
        if self.has_checksum {
            let answer = digest(value).wrapping_mul(5);
            self.tally.checksum = self.tally.checksum.wrapping_add(answer);
        }
    }
}

impl Tally {
    /// Times one call.
    fn once<T>(&mut self, call: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let start = Instant::now();
        let result = call();
        let took = start.elapsed();
        self.time += took;
        self.worst = self.worst.max(took);
        self.operation_count += 1;
        result
    }
}
