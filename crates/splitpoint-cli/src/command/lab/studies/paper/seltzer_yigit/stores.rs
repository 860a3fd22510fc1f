//! What the paper compares, behind one interface: the tables of this program, the libraries of the
//! machine, and the algorithms.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use splitpoint::{Create, Db, Table, TableExt as _};
use splitpoint_lab::paper::seltzer_yigit::{Counts, PaperFigure, Run, System};
use splitpoint_legacy::algorithm::{self, Algorithm, StoreMode, Variant};
use splitpoint_legacy::db185::{self, Db185};
use splitpoint_machine::{Gdbm, Hsearch, Ndbm};

/// Why there is no table.
#[derive(Debug)]
pub(super) enum NoTable {
    /// The system is not on this machine.
    Absent(String),
    /// The system refuses such a table.
    Refused(String),
}

/// A table to measure.
pub(super) trait Store {
    /// Stores a pair.
    fn store(&mut self, key: &[u8], value: &[u8]) -> Result<(), String>;

    /// Returns whether `key` is there; with an expected value, whether it has that.
    fn fetch(&mut self, key: &[u8], expected: Option<&[u8]>) -> Result<bool, String>;

    /// Walks over all keys, and their values if that is another call, and returns their number.
    fn walk(&mut self, has_values: bool) -> Result<u64, String>;

    /// Writes a table in a file, as far as the system has a call for that.
    fn sync(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Returns what it counted.
    fn counts(&mut self) -> Counts {
        Counts::default()
    }

    /// Returns the bytes of a table in memory.
    fn memory_bytes(&mut self) -> Result<u64, String> {
        Ok(0)
    }

    /// Closes it.
    fn close(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

/// Where a table is, and how many records it will have.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// What its files begin with; none for a table in memory.
    pub(super) file: Option<PathBuf>,
    /// Records that will be stored.
    pub(super) record_count: u64,
}

/// Opens the table of a run, or creates it.
pub(super) fn open(run: &Run, place: &Place) -> Result<Box<dyn Store>, NoTable> {
    let variant = match run.system {
        System::Hash => {
            return Ok(Box::new(Own { table: hash(run, place)?, counts: pool_counts }));
        }
        System::Splitpoint => {
            return Ok(Box::new(Own { table: native(run, place)?, counts: |_| Counts::default() }));
        }
        System::Ndbm => {
            Ndbm::library().map_err(|absent| NoTable::Absent(absent.to_string()))?;
            return Ok(Box::new(Ndbm::open(file(place)).map_err(NoTable::Refused)?));
        }
        System::Gdbm => {
            Gdbm::library().map_err(|absent| NoTable::Absent(absent.to_string()))?;
            return Ok(Box::new(Gdbm::open(file(place)).map_err(NoTable::Refused)?));
        }
        System::Hsearch => {
            Hsearch::library().map_err(|absent| NoTable::Absent(absent.to_string()))?;
            let table = Hsearch::create(place.record_count as usize).map_err(NoTable::Refused)?;
            return Ok(Box::new(table));
        }
        System::AlgorithmNdbm => "ndbm",
        System::AlgorithmSdbm => "sdbm",
        System::AlgorithmGdbm => "gdbm",
        System::AlgorithmHsearch => "hsearch",
        System::AlgorithmDynahash => "dynahash",
    };
    let absent = || NoTable::Absent(format!("this program has no algorithm `{variant}`"));
    let variant = Variant::by_name(variant).ok_or_else(absent)?;
    // A table of fixed size must know it.
    let is_size_known = run.is_size_known || run.system == System::AlgorithmHsearch;
    let parameters = algorithm::Parameters {
        page_bytes: None,
        fill_factor: (run.system == System::AlgorithmDynahash).then_some(run.fill_factor),
        expected_records: is_size_known.then_some(place.record_count),
    };
    let made = variant.create(&parameters);
    made.map(|table| Box::new(table) as Box<dyn Store>)
        .map_err(|error| NoTable::Refused(error.to_string()))
}

fn file(place: &Place) -> &Path {
    place.file.as_deref().unwrap_or(Path::new(""))
}

fn hash(run: &Run, place: &Place) -> Result<Db185, NoTable> {
    let mut options = db185::Options::new()
        .page_bytes(run.page_bytes)
        .fill_factor(run.fill_factor)
        .cache_bytes(run.cache_bytes as usize);
    if run.is_size_known {
        options = options.expected_records(place.record_count);
    }
    let made = place.file.as_ref().map_or_else(|| options.in_memory(), |file| options.open(file));
    made.map_err(|error| NoTable::Refused(error.to_string()))
}

/// The seed of the hash function, so that runs repeat exactly.
const SEED: u64 = 1991;

fn native(run: &Run, place: &Place) -> Result<Db, NoTable> {
    let mut options = splitpoint::Options::new()
        .fill_factor(f64::from(run.fill_factor))
        .seed(SEED)
        .create(Create::IfMissing);
    if run.is_size_known {
        options = options.expected_records(place.record_count);
    }
    if run.figure == PaperFigure::Pool {
        options = options.cache_bytes(run.cache_bytes);
    }
    let made = place.file.as_ref().map_or_else(|| options.in_memory(), |file| options.open(file));
    made.map_err(|error| NoTable::Refused(error.to_string()))
}

#[expect(clippy::needless_pass_by_value, reason = "what `map_err` passes")]
fn words(error: impl ToString) -> String {
    error.to_string()
}

fn is_as_expected(found: Option<&[u8]>, expected: Option<&[u8]>) -> bool {
    found.is_some_and(|found| expected.is_none_or(|expected| found == expected))
}

/// A table of this program, and what it counts.
struct Own<T> {
    table: T,
    counts: fn(&T) -> Counts,
}

/// Returns what the buffer pool of the package has counted.
fn pool_counts(table: &Db185) -> Counts {
    let cache = table.cache();
    Counts {
        page_reads: Some(cache.reads + cache.temporary_reads),
        page_writes: Some(cache.writes + cache.temporary_writes),
        page_allocations: Some(cache.allocations),
        ..Counts::default()
    }
}

impl<T: Table> Store for Own<T> {
    fn store(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        self.table.put(key, value).map_err(words)
    }

    fn fetch(&mut self, key: &[u8], expected: Option<&[u8]>) -> Result<bool, String> {
        let found = self.table.get(key).map_err(words)?;
        Ok(is_as_expected(found.as_deref(), expected))
    }

    fn walk(&mut self, _has_values: bool) -> Result<u64, String> {
        let mut found = 0;
        for entry in self.table.scan().map_err(words)? {
            entry.map_err(words)?;
            found += 1;
        }
        Ok(found)
    }

    fn sync(&mut self) -> Result<(), String> {
        self.table.sync().map_err(words)
    }

    fn counts(&mut self) -> Counts {
        (self.counts)(&self.table)
    }

    fn memory_bytes(&mut self) -> Result<u64, String> {
        self.table.stats().map(|stats| stats.file_bytes).map_err(words)
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        Box::new(self.table).close().map(|_| ()).map_err(words)
    }
}

impl Store for Ndbm {
    fn store(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        Self::store(self, key, value)
    }

    fn fetch(&mut self, key: &[u8], expected: Option<&[u8]>) -> Result<bool, String> {
        Ok(is_as_expected(Self::fetch(self, key), expected))
    }

    fn walk(&mut self, has_values: bool) -> Result<u64, String> {
        let mut found = 0;
        // The key is the library's until the next call, which the fetch of its value would be.
        let mut key = self.first_key().map(<[u8]>::to_vec);
        while let Some(last) = key {
            if has_values && Self::fetch(self, &last).is_none() {
                return Err("a key that was walked over has no value".to_string());
            }
            found += 1;
            key = self.next_key().map(<[u8]>::to_vec);
        }
        Ok(found)
    }
}

impl Store for Gdbm {
    fn store(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        Self::store(self, key, value)
    }

    fn fetch(&mut self, key: &[u8], expected: Option<&[u8]>) -> Result<bool, String> {
        let found = Self::fetch(self, key, |found| is_as_expected(Some(found), expected));
        Ok(found.unwrap_or(false))
    }

    fn walk(&mut self, has_values: bool) -> Result<u64, String> {
        let mut found = 0;
        let mut key = self.first_key().map(<[u8]>::to_vec);
        while let Some(last) = key {
            if has_values && Self::fetch(self, &last, <[u8]>::len).is_none() {
                return Err("a key that was walked over has no value".to_string());
            }
            found += 1;
            key = self.next_key().map(<[u8]>::to_vec);
        }
        Ok(found)
    }
}

impl Store for Hsearch {
    fn store(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        Self::store(self, key, value)
    }

    fn fetch(&mut self, key: &[u8], expected: Option<&[u8]>) -> Result<bool, String> {
        Ok(is_as_expected(Self::fetch(self, key), expected))
    }

    fn walk(&mut self, _has_values: bool) -> Result<u64, String> {
        Err("hsearch has no walk over its keys".to_string())
    }
}

impl Store for Box<dyn Algorithm> {
    fn store(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let stored = Algorithm::store(&mut **self, key, value, StoreMode::Replace);
        stored.map(|_| ()).map_err(words)
    }

    fn fetch(&mut self, key: &[u8], expected: Option<&[u8]>) -> Result<bool, String> {
        let found = Algorithm::fetch(&mut **self, key).map_err(words)?;
        Ok(is_as_expected(found.as_deref(), expected))
    }

    fn walk(&mut self, _has_values: bool) -> Result<u64, String> {
        let mut found = 0;
        let mut visit = |_: &[u8], _: &[u8]| {
            found += 1;
            ControlFlow::Continue(())
        };
        Algorithm::walk(&mut **self, &mut visit).map_err(words)?;
        Ok(found)
    }

    fn counts(&mut self) -> Counts {
        let footprint = self.footprint();
        Counts {
            probes: Some(Algorithm::counts(&**self).probes),
            page_allocations: (footprint.file_bytes > 0).then_some(footprint.place_count),
            ..Counts::default()
        }
    }

    fn memory_bytes(&mut self) -> Result<u64, String> {
        let footprint = self.footprint();
        Ok(footprint.file_bytes.saturating_sub(footprint.hole_bytes))
    }
}

/// Returns the files of a table whose names begin as `place` says.
pub(super) fn files(place: &Place) -> Vec<PathBuf> {
    let Some(file) = &place.file else { return Vec::new() };
    let name = file.file_name().unwrap_or_default().as_encoded_bytes().to_vec();
    let listed = file.parent().and_then(|dir| std::fs::read_dir(dir).ok());
    let paths = listed.into_iter().flatten().flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(&name))
    };
    paths.filter(is_ours).collect()
}

/// Returns the bytes of those files.
pub(super) fn file_bytes(place: &Place) -> u64 {
    let lengths = files(place).into_iter().map(|path| std::fs::metadata(path).map(|it| it.len()));
    lengths.map(|length| length.unwrap_or(0)).sum::<u64>()
}
