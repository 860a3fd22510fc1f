//! What is run, and what a run gives.

use serde::{Deserialize, Serialize};

use super::data::DataName;
use crate::chance::Moments;

/// A figure of the paper, or a claim of its text that has a run of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaperFigure {
    /// Figures 5a, 5b and 5c: one set of runs, three times of each.
    BucketSizes,
    /// The text after Figure 5c: a file that is read again.
    Reread,
    /// Figure 6: the size known, or grown from one bucket.
    Growth,
    /// Figure 7: bytes of the buffer pool.
    Pool,
    /// Figure 8a: the dictionary.
    Dictionary,
    /// Figure 8b: the password file.
    Passwd,
}

impl PaperFigure {
    /// All of them, in the order of the paper.
    pub const ALL: [Self; 6] =
        [Self::BucketSizes, Self::Reread, Self::Growth, Self::Pool, Self::Dictionary, Self::Passwd];

    /// Returns its name in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Self::BucketSizes => "Figure 5",
            Self::Growth => "Figure 6",
            Self::Pool => "Figure 7",
            Self::Reread => "Text after 5c",
            Self::Dictionary => "Figure 8a",
            Self::Passwd => "Figure 8b",
        }
    }

    /// Returns the figure that a user calls `name`: `5`, `5a` to `5c`, `6`, `7`, `text`, `8a`, `8b`.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint_lab::paper::seltzer_yigit::PaperFigure;
    ///
    /// assert_eq!(PaperFigure::by_name("5b"), Some(PaperFigure::BucketSizes));
    /// assert_eq!(PaperFigure::by_name("9"), None);
    /// ```
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "5" | "5a" | "5b" | "5c" => Self::BucketSizes,
            "6" => Self::Growth,
            "7" => Self::Pool,
            "text" => Self::Reread,
            "8a" => Self::Dictionary,
            "8b" => Self::Passwd,
            _ => return None,
        })
    }
}

/// What is measured: a store, a library of the machine, or an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// The package of the paper, as released in db 1.85, by this library.
    Hash,
    /// The store of this library.
    Splitpoint,
    /// The machine's `dbm_open` and its kin.
    Ndbm,
    /// The machine's GNU dbm.
    Gdbm,
    /// The hash table of the machine's C library.
    Hsearch,
    /// The pages of ndbm as of 1991, in memory.
    AlgorithmNdbm,
    /// The pages of sdbm, in memory.
    AlgorithmSdbm,
    /// The buckets of gdbm, in memory.
    AlgorithmGdbm,
    /// System V's hsearch as it is compiled by default.
    AlgorithmHsearch,
    /// dynahash: linear hashing in memory.
    AlgorithmDynahash,
}

impl System {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Hash,
        Self::Splitpoint,
        Self::Ndbm,
        Self::Gdbm,
        Self::Hsearch,
        Self::AlgorithmNdbm,
        Self::AlgorithmSdbm,
        Self::AlgorithmGdbm,
        Self::AlgorithmHsearch,
        Self::AlgorithmDynahash,
    ];

    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Splitpoint => "splitpoint",
            Self::Ndbm => "ndbm",
            Self::Gdbm => "gdbm",
            Self::Hsearch => "hsearch",
            Self::AlgorithmNdbm => "algorithm:ndbm",
            Self::AlgorithmSdbm => "algorithm:sdbm",
            Self::AlgorithmGdbm => "algorithm:gdbm",
            Self::AlgorithmHsearch => "algorithm:hsearch",
            Self::AlgorithmDynahash => "algorithm:dynahash",
        }
    }
}

/// A test of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaperTest {
    /// Create a table, store every pair, fetch every pair, discard the table.
    CreateRead,
    /// Create a file, store every pair, flush it to the disk.
    Create,
    /// Open the file and fetch every pair.
    Read,
    /// Open the file, fetch every pair and compare its value.
    Verify,
    /// Open the file and walk over its keys; what returns pairs returns the values too.
    Sequential,
    /// Open the file and walk over its keys and values.
    SequentialWithData,
    /// Open a file whose pages are not in memory, and fetch every pair.
    Reread,
}

impl PaperTest {
    /// Returns its name in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Self::CreateRead => "CREATE/READ",
            Self::Create => "CREATE",
            Self::Read => "READ",
            Self::Verify => "VERIFY",
            Self::Sequential => "SEQUENTIAL",
            Self::SequentialWithData => "SEQUENTIAL (with data)",
            Self::Reread => "READ from disk",
        }
    }

    /// Returns whether the table is in memory.
    pub fn is_in_memory(self) -> bool {
        self == Self::CreateRead
    }
}

/// One run: what is measured, on what, how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    /// The figure it is for.
    pub figure: PaperFigure,
    /// What is measured.
    pub system: System,
    /// The test.
    pub test: PaperTest,
    /// The data set.
    pub data: DataName,
    /// Bytes of a page, the paper's bucket size.
    pub page_bytes: u32,
    /// Keys of a bucket, the paper's fill factor.
    pub fill_factor: u32,
    /// Whether the table is told how many records it will have.
    pub is_size_known: bool,
    /// Bytes of the buffer pool.
    pub cache_bytes: u64,
}

/// What a run did, without its time: the same in every run on the same data.
///
/// All counts are of one repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Keys that were found, or walked over.
    pub found_count: u64,
    /// Pages that the table read from its file or its temporary file; null if it does not count them.
    pub page_reads: Option<u64>,
    /// Pages that the table wrote there; null if it does not count them.
    pub page_writes: Option<u64>,
    /// Pages for which the table took memory; null if it does not count them.
    pub page_allocations: Option<u64>,
    /// Slots or nodes that the table looked at; null if it does not count them.
    pub probes: Option<u64>,
    /// Bytes of its files, or of its pages in memory.
    pub file_bytes: u64,
    /// Calls that read, of the whole process meanwhile; null if the system does not tell.
    pub read_calls: Option<u64>,
    /// Calls that write, of the whole process meanwhile; null if the system does not tell.
    pub write_calls: Option<u64>,
    /// Bytes that came from the device meanwhile; null if the system does not tell.
    pub device_bytes: Option<u64>,
}

impl Counts {
    /// Returns the pages that were read and written together.
    pub fn page_transfers(&self) -> Option<u64> {
        Some(self.page_reads? + self.page_writes?)
    }
}

/// The times of one run, in seconds, of one repetition on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time in the program.
    pub user_s: f64,
    /// Time in the kernel for it.
    pub system_s: f64,
    /// Time that passed.
    pub elapsed_s: f64,
    /// Repetitions inside the run.
    pub repetition_count: u64,
    /// User and system time of the whole process, its start and what prepared the run included, by
    /// `wait4`.
    #[serde(default)]
    pub process_s: f64,
    /// Most memory that the process had at once, in bytes, by `wait4`.
    #[serde(default)]
    pub resident_bytes_max: u64,
}

/// What a run says to the program that started it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum RunOutcome {
    /// It was measured.
    Measured {
        /// Its times.
        sample: Sample,
        /// Its counts.
        counts: Counts,
    },
    /// The system refuses such a table, or cannot store the pairs: why.
    Refused {
        /// The reason, with the first key that could not be stored if there is one.
        reason: String,
    },
    /// The system is not on this machine: why.
    Absent {
        /// The reason, with the package that has it.
        reason: String,
    },
}

/// The mean of some runs, and how far it can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MeanTime {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the runs.
    pub deviation: f64,
    /// Half of the 95 % interval of the mean.
    pub half_interval: f64,
}

/// Quantiles 0.975 of Student's distribution with 1, 2, 3 ... degrees of freedom.
const STUDENT: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
];

impl MeanTime {
    /// Returns that of `runs`. Of one run nothing is known about its spread: its interval goes from 0 to
    /// twice its time.
    ///
    /// # Source
    ///
    /// Student, "The probable error of a mean", 1908.
    pub fn of(runs: &[f64]) -> Self {
        let moments = Moments::of(runs);
        if runs.len() == 1 {
            return Self { mean: moments.mean, deviation: 0.0, half_interval: moments.mean };
        }
        let quantile = STUDENT.get(runs.len().saturating_sub(2)).copied().unwrap_or(1.96);
        let half_interval = quantile * moments.deviation / (runs.len().max(1) as f64).sqrt();
        Self { mean: moments.mean, deviation: moments.deviation, half_interval }
    }
}

/// All runs of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// What was run.
    pub run: Run,
    /// Time in the program, in seconds.
    pub user: MeanTime,
    /// Time in the kernel, in seconds.
    pub system: MeanTime,
    /// Time that passed, in seconds.
    pub elapsed: MeanTime,
    /// Each run, in the order in which they were made.
    pub samples: Vec<Sample>,
    /// What each run did; null without a run.
    pub counts: Option<Counts>,
    /// Why there is no run, or fewer.
    pub refusal: Option<String>,
}

impl Measurement {
    /// Starts without any run.
    pub fn new(run: Run) -> Self {
        let [user, system, elapsed] = [MeanTime::default(); 3];
        Self { run, user, system, elapsed, samples: Vec::new(), counts: None, refusal: None }
    }

    /// Adds a run.
    pub fn push(&mut self, outcome: RunOutcome) {
        match outcome {
            RunOutcome::Measured { sample, counts } => {
                self.samples.push(sample);
                self.counts.get_or_insert(counts);
                let of = |time: fn(&Sample) -> f64| {
                    MeanTime::of(&self.samples.iter().map(time).collect::<Vec<_>>())
                };
                self.user = of(|it| it.user_s);
                self.system = of(|it| it.system_s);
                self.elapsed = of(|it| it.elapsed_s);
            }
            RunOutcome::Refused { reason } | RunOutcome::Absent { reason } => {
                self.refusal = Some(reason);
            }
        }
    }

    /// Returns whether there is a run.
    pub fn is_measured(&self) -> bool {
        !self.samples.is_empty()
    }

    /// Returns one of its times.
    pub fn time(&self, clock: Clock) -> MeanTime {
        match clock {
            Clock::User => self.user,
            Clock::System => self.system,
            Clock::Elapsed => self.elapsed,
        }
    }
}

/// One of the three times of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Time in the program.
    User,
    /// Time in the kernel for it.
    System,
    /// Time that passed.
    Elapsed,
}

impl Clock {
    /// All of them, in the order of the paper's tables.
    pub const ALL: [Self; 3] = [Self::User, Self::System, Self::Elapsed];

    /// Returns the paper's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::System => "sys",
            Self::Elapsed => "elapsed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_five_runs_is_student_s() {
        let spread = MeanTime::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((spread.mean - 3.0).abs() < 1e-12);
        assert!((spread.half_interval - 2.776 * (2.5_f64 / 5.0).sqrt()).abs() < 1e-12);
        // One run tells nothing of the others: from 0 to twice its time.
        assert_eq!(
            MeanTime::of(&[7.0]),
            MeanTime { mean: 7.0, deviation: 0.0, half_interval: 7.0 }
        );
        assert_eq!(MeanTime::of(&[]), MeanTime::default());
    }
}
