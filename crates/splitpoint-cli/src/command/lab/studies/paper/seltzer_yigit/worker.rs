//! One run, in a process of its own: what the command starts, with itself as the program.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};
use splitpoint_lab::paper::seltzer_yigit::{
    Counts, DataSet, Pair, PaperTest, Run, RunOutcome, Sample, System,
};
use splitpoint_machine::Usage;

use super::stores::{self, NoTable, Place, Store};
use crate::bytes::escaped;
use crate::console;
use crate::failure::{Exit, Failure, Result};
use crate::files::read_whole;
use crate::number::count;

/// What a run is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// The run.
    pub(super) run: Run,
    /// The file with the pairs.
    pub(super) pairs: PathBuf,
    /// An empty directory for the files of the table.
    pub(super) dir: PathBuf,
}

/// Time that a run takes at least, by repetition.
const TIME_MIN: Duration = Duration::from_millis(20);
/// Repetitions of a run that reads from the device: each must wait for it.
const REREADS: u64 = 3;

/// Does the run that `order` describes, and prints what came of it.
pub(super) fn run(order: &str) -> Result<()> {
    let wrong = |what: String| Failure::new(Exit::Usage, format!("no order of a run: {what}"));
    let order: Order = serde_json::from_str(order).map_err(|error| wrong(error.to_string()))?;
    let pairs = DataSet::decode(&read_whole(&order.pairs)?)
        .ok_or_else(|| wrong(format!("`{}` has no pairs", order.pairs.display())))?;
    let file = (!order.run.test.is_in_memory()).then(|| order.dir.join("table"));
    let record_count = count(pairs.len());
    let work = Work { run: order.run, pairs, place: Place { file, record_count } };
    let outcome = work.measure().unwrap_or_else(|why| match why {
        NoTable::Absent(reason) => RunOutcome::Absent { reason },
        NoTable::Refused(reason) => RunOutcome::Refused { reason },
    });
    console::print_json(&outcome)
}

/// The work of a run.
struct Work {
    run: Run,
    pairs: Vec<Pair>,
    place: Place,
}

/// Adds up what the measured parts of repetitions take, and what calls the first one makes.
#[derive(Debug, Default)]
struct Meter {
    user: Duration,
    system: Duration,
    elapsed: Duration,
    /// The calls of the first repetition.
    calls: Calls,
    is_later: bool,
}

impl Meter {
    /// Measures `work`.
    fn time<T>(&mut self, work: impl FnOnce() -> Result<T, NoTable>) -> Result<T, NoTable> {
        let usage = || Usage::of_this_process().unwrap_or_default();
        let calls = (!self.is_later).then(Calls::now);
        let (before, started) = (usage(), Instant::now());
        let result = work()?;
        self.elapsed += started.elapsed();
        let after = usage();
        self.user += after.user.saturating_sub(before.user);
        self.system += after.system.saturating_sub(before.system);
        if let Some(calls) = calls {
            self.calls.add(calls, Calls::now());
        }
        Ok(result)
    }

    fn sample(&self, repetition_count: u64) -> Sample {
        let each = |time: Duration| time.as_secs_f64() / crate::number::float(repetition_count);
        Sample {
            user_s: each(self.user),
            system_s: each(self.system),
            elapsed_s: each(self.elapsed),
            repetition_count,
            ..Sample::default()
        }
    }
}

impl Work {
    fn measure(&self) -> Result<RunOutcome, NoTable> {
        let mut meter = Meter::default();
        let mut first: Option<Counts> = None;
        let mut held = self.prepare()?;
        let mut repetition_count = 0;
        loop {
            let counts = self.repeat(&mut meter, held.as_mut())?;
            meter.is_later = true;
            repetition_count += 1;
            if counts.found_count != self.expected_count() {
                let (found, expected) = (counts.found_count, self.expected_count());
                return Err(NoTable::Refused(format!("it found {found} of {expected} pairs")));
            }
            let first = *first.get_or_insert(counts);
            let is_enough = match self.run.test {
                PaperTest::Reread => repetition_count >= REREADS,
                _ => meter.elapsed >= TIME_MIN,
            };
            if is_enough {
                let Calls { reads: read_calls, writes: write_calls, device_bytes } = meter.calls;
                let counts = Counts { read_calls, write_calls, device_bytes, ..first };
                return Ok(RunOutcome::Measured { sample: meter.sample(repetition_count), counts });
            }
        }
    }

    /// Returns how many pairs a repetition finds.
    fn expected_count(&self) -> u64 {
        count(self.pairs.len())
    }

    /// Whether the table is in memory although the test is one on files.
    fn is_held(&self) -> bool {
        use System::{AlgorithmGdbm, AlgorithmNdbm, AlgorithmSdbm};
        matches!(self.run.system, AlgorithmGdbm | AlgorithmNdbm | AlgorithmSdbm)
    }

    /// Makes the table that is to be read, if the test reads one. Returns it if it has no file.
    fn prepare(&self) -> Result<Option<Box<dyn Store>>, NoTable> {
        if self.is_creation() {
            return Ok(None);
        }
        let mut store = stores::open(&self.run, &self.place)?;
        self.store_all(&mut *store)?;
        if self.is_held() {
            return Ok(Some(store));
        }
        store.close().map_err(NoTable::Refused)?;
        self.sync_files()?;
        Ok(None)
    }

    /// Does the work once and measures what the test is about. Only the first repetition is asked for
    /// its bytes in memory; those of the others are the same.
    fn repeat(
        &self,
        meter: &mut Meter,
        held: Option<&mut Box<dyn Store>>,
    ) -> Result<Counts, NoTable> {
        if let Some(store) = held {
            let before = store.counts();
            let found_count = meter.time(|| self.use_table(&mut **store))?;
            let after = store.counts();
            let probes = after.probes.zip(before.probes).map(|(after, before)| after - before);
            let file_bytes = store.memory_bytes().map_err(NoTable::Refused)?;
            return Ok(Counts { found_count, probes, file_bytes, ..after });
        }
        self.clear();
        let (mut store, found_count) = meter.time(|| {
            let mut store = stores::open(&self.run, &self.place)?;
            if self.is_creation() {
                self.store_all(&mut *store)?;
            }
            let found = self.use_table(&mut *store)?;
            if self.run.test == PaperTest::Create {
                store.sync().map_err(NoTable::Refused)?;
            }
            Ok((store, found))
        })?;
        let mut counts = Counts { found_count, ..store.counts() };
        if (self.place.file.is_none() || self.is_held()) && !meter.is_later {
            counts.file_bytes = store.memory_bytes().map_err(NoTable::Refused)?;
        }
        meter.time(|| {
            store.close().map_err(NoTable::Refused)?;
            if self.run.test == PaperTest::Create { self.sync_files() } else { Ok(()) }
        })?;
        if self.place.file.is_some() && !self.is_held() {
            counts.file_bytes = stores::file_bytes(&self.place);
        }
        Ok(counts)
    }

    /// Whether the test stores the pairs itself.
    fn is_creation(&self) -> bool {
        matches!(self.run.test, PaperTest::Create | PaperTest::CreateRead)
    }

    /// Brings the files into the state in which the test begins.
    fn clear(&self) {
        match self.run.test {
            PaperTest::Create => {
                for path in stores::files(&self.place) {
                    let _ = fs::remove_file(path);
                }
            }
            PaperTest::Reread => self.drop_pages(),
            _ => {}
        }
    }

    fn store_all(&self, store: &mut dyn Store) -> Result<(), NoTable> {
        for (key, value) in &self.pairs {
            store.store(key, value).map_err(|error| {
                let key = escaped(key, "");
                NoTable::Refused(format!("cannot store the key `{key}`: {error}"))
            })?;
        }
        Ok(())
    }

    /// Fetches or walks, and returns how many pairs were found.
    fn use_table(&self, store: &mut dyn Store) -> Result<u64, NoTable> {
        let fetch = |store: &mut dyn Store, is_compared: bool| {
            let mut found = 0;
            for (key, value) in &self.pairs {
                found += u64::from(store.fetch(key, is_compared.then_some(&value[..]))?);
            }
            Ok(found)
        };
        match self.run.test {
            PaperTest::Create => Ok(self.expected_count()),
            PaperTest::CreateRead | PaperTest::Read | PaperTest::Reread => fetch(store, false),
            PaperTest::Verify => fetch(store, true),
            PaperTest::Sequential => store.walk(false),
            PaperTest::SequentialWithData => store.walk(true),
        }
        .map_err(NoTable::Refused)
    }

    /// Makes what the files of the table hold durable.
    fn sync_files(&self) -> Result<(), NoTable> {
        for path in stores::files(&self.place) {
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(|error| {
                NoTable::Refused(format!("cannot sync `{}`: {error}", path.display()))
            })?;
        }
        Ok(())
    }

    /// Asks the kernel to drop the pages of the files, which it may do or not: the bytes that come from
    /// the device afterwards tell.
    fn drop_pages(&self) {
        for path in stores::files(&self.place) {
            if let Ok(file) = File::open(&path) {
                let _ = fadvise(&file, 0, None, Advice::DontNeed);
            }
        }
    }
}

/// The calls of this process that read and write, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    reads: Option<u64>,
    writes: Option<u64>,
    device_bytes: Option<u64>,
}

impl Calls {
    /// Reads the kernel's counts, with one call.
    fn now() -> Self {
        let mut bytes = [0; 1024];
        let length = File::open("/proc/self/io").and_then(|mut file| file.read(&mut bytes));
        let text = String::from_utf8_lossy(&bytes[..length.unwrap_or(0)]).into_owned();
        let field = |name: &str| {
            let value = |line: &str| line.strip_prefix(name)?.strip_prefix(": ")?.parse().ok();
            text.lines().find_map(value)
        };
        Self { reads: field("syscr"), writes: field("syscw"), device_bytes: field("read_bytes") }
    }

    /// Adds the calls between two readings, of which the first was one itself.
    fn add(&mut self, from: Self, to: Self) {
        let add = |sum: &mut Option<u64>, from: Option<u64>, to: Option<u64>, own: u64| {
            *sum = from
                .zip(to)
                .map(|(from, to)| sum.unwrap_or(0) + to.saturating_sub(from).saturating_sub(own));
        };
        add(&mut self.reads, from.reads, to.reads, 1);
        add(&mut self.writes, from.writes, to.writes, 0);
        add(&mut self.device_bytes, from.device_bytes, to.device_bytes, 0);
    }
}
