//! What the runs are made of: the data sets, the systems of this machine, the defaults of the package.

use std::fs;
use std::path::Path;

use splitpoint::TableExt as _;
use splitpoint_lab::paper::seltzer_yigit::{
    DataFacts, DataSet, Measurement, PackageDefaults, System, SystemFacts, WORD_COUNT,
};
use splitpoint_legacy::algorithm::Variant;
use splitpoint_legacy::db185;
use splitpoint_machine::{Gdbm, Hsearch, Ndbm};

use crate::failure::{Exit, Failure, Result};
use crate::files::read_whole;
use crate::number::{count, grouped};
use crate::words::Words;

/// Where most systems have a list of words.
const SYSTEM_LIST: &str = "/usr/share/dict/words";

/// The two data sets.
#[derive(Debug)]
pub(super) struct Sources {
    dictionary: DataSet,
    passwd: DataSet,
}

impl Sources {
    /// Makes both.
    pub(super) fn read(words: Option<&Path>, passwd: Option<&Path>, seed: u64) -> Result<Self> {
        let (dictionary, list) = match words {
            Some(path) => {
                let list = read_whole(path)?;
                let source = path.display().to_string();
                let made = DataSet::dictionary(&source, &list, seed);
                let set = made.map_err(|found| too_few(&source, found))?;
                (set, list)
            }
            None => dictionary(seed)?,
        };
        let passwd = match passwd {
            None => DataSet::made_passwd(&list, seed),
            Some(path) => {
                let set = DataSet::passwd(&path.display().to_string(), &read_whole(path)?);
                if set.pairs.is_empty() {
                    let message = format!("`{}` holds no accounts", path.display());
                    return Err(Failure::new(Exit::Usage, message)
                        .hint("give a file in the form of /etc/passwd"));
                }
                set
            }
        };
        Ok(Self { dictionary, passwd })
    }

    /// Returns both.
    pub(super) fn sets(&self) -> [&DataSet; 2] {
        [&self.dictionary, &self.passwd]
    }

    /// Returns what is known of them.
    pub(super) fn facts(&self) -> Vec<DataFacts> {
        self.sets().map(|set| set.facts.clone()).to_vec()
    }
}

/// Takes the words of the system's list, or of our own.
fn dictionary(seed: u64) -> Result<(DataSet, Vec<u8>)> {
    if let Ok(list) = fs::read(SYSTEM_LIST)
        && let Ok(set) = DataSet::dictionary(SYSTEM_LIST, &list, seed)
    {
        return Ok((set, list));
    }
    let list = Words::bundled_text();
    let source = "the word list of splitpoint";
    let set = DataSet::dictionary(source, &list, seed).map_err(|found| too_few(source, found))?;
    Ok((set, list))
}

fn too_few(source: &str, found: usize) -> Failure {
    let (found, needed) = (grouped(count(found)), grouped(count(WORD_COUNT)));
    let message = format!(
        "`{source}` has {found} words of only the letters a to z, and the paper's dictionary has {needed}"
    );
    Failure::new(Exit::Usage, message).hint("give a longer list, one word a line, with --words")
}

/// Returns what is known of the systems that are to be measured.
pub(super) fn systems(measurements: &[Measurement]) -> Vec<SystemFacts> {
    let is_wanted = |system: &System| measurements.iter().any(|it| it.run.system == *system);
    System::ALL.into_iter().filter(is_wanted).map(facts_of).collect()
}

fn facts_of(system: System) -> SystemFacts {
    let here = |what: String, note: &str| SystemFacts {
        system,
        what,
        is_here: true,
        note: note.to_string(),
    };
    let absent = |what: &str, note: String| SystemFacts {
        system,
        what: what.to_string(),
        is_here: false,
        note,
    };
    let algorithm = |name: &str, note: &str| match Variant::by_name(name) {
        Some(_) => here(format!("the algorithm of {name}, in memory"), note),
        None => absent(name, "this program has no such algorithm".to_string()),
    };
    match system {
        System::Hash => here(
            "db 1.85, the package as released, by this library".to_string(),
            "byte order of this machine",
        ),
        System::Splitpoint => {
            here(format!("the store of splitpoint {}", env!("CARGO_PKG_VERSION")), "")
        }
        System::Ndbm => match Ndbm::library() {
            Ok(name) => here(format!("dbm_open of {name}"), "not the library of 1991"),
            Err(error) => absent("the machine's ndbm", error.to_string()),
        },
        System::Gdbm => match Gdbm::library() {
            Ok(version) => here(version, ""),
            Err(error) => absent("GNU dbm", error.to_string()),
        },
        System::Hsearch => match Hsearch::library() {
            Ok(name) => here(
                format!("hsearch_r of {name}"),
                "another table than System V's, whose options the paper does not name",
            ),
            Err(error) => absent("the C library's hsearch_r", error.to_string()),
        },
        System::AlgorithmNdbm => algorithm("ndbm", "pages of 1024 bytes, as 4.3BSD's"),
        System::AlgorithmSdbm => algorithm("sdbm", "pages of 1024 bytes"),
        System::AlgorithmGdbm => algorithm("gdbm", ""),
        System::AlgorithmHsearch => {
            algorithm("hsearch", "System V's with its defaults: multiplication, open addressing")
        }
        System::AlgorithmDynahash => algorithm("dynahash", ""),
    }
}

/// Places of fields in the header of a file of db 1.85: `bsize`, `dsize`, `ssize`, `ffactor`.
const FIELDS: [usize; 4] = [12, 20, 24, 52];
/// Records that more than fill the default pool.
const RECORDS: u32 = 20_000;
/// The largest page to try.
const PAGE_BYTES_TRIED: u32 = 1 << 20;

/// Reads the defaults of the package from a file that it makes in `dir`; `None` if that fails, which
/// leaves those numbers out of the report.
pub(super) fn package_defaults(dir: &Path) -> Option<PackageDefaults> {
    let path = dir.join("defaults.db");
    let table = db185::Options::new().open(&path).ok()?;
    table.put("key", "value").ok()?;
    table.close().ok()?;
    let bytes = fs::read(&path).ok()?;
    let _ = fs::remove_file(&path);
    // The header has its numbers high byte first, on every machine.
    let field = |at: usize| -> Option<u32> {
        let field = bytes.get(at..at + 4)?;
        Some(field.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    };
    let [page_bytes, segments, segment_buckets, fill_factor] = FIELDS.map(field);
    let is_taken = |page: &u32| db185::Options::new().page_bytes(*page).in_memory().is_ok();
    let pages = std::iter::successors(Some(64), |page| Some(2 * page));
    let page_bytes_max =
        pages.take_while(|page| *page <= PAGE_BYTES_TRIED).filter(is_taken).last()?;
    Some(PackageDefaults {
        page_bytes: page_bytes?,
        fill_factor: fill_factor?,
        segment_buckets: segment_buckets?,
        segments: segments?,
        cache_bytes: full_pool()?,
        page_bytes_max,
    })
}

/// Returns the bytes of the default pool of a table that has more pages than fit.
fn full_pool() -> Option<u64> {
    let table = db185::Options::new().in_memory().ok()?;
    for number in 0..RECORDS {
        table.put(number.to_string(), "value").ok()?;
    }
    Some(count(table.cache().bytes))
}
