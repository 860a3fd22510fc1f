//! The paper that this library is about, its figures run again.
//!
//! ```text
//! data: pairs   plan: runs --> the command runs each in a process of its own --> Measurement
//!                                 claims, numbers, slips <--------------------------'
//! ```
//!
//! Nothing is run here: the command does that, because stores, libraries and processes are not the lab's.
//! What a run is, what it gives, and what follows from it is here.
//!
//! # Source
//!
//! Seltzer and Yigit, "A new hashing package for UNIX", USENIX Winter 1991.

mod claims;
mod data;
mod plan;
mod published;
mod run;
mod slips;

use serde::Serialize;

pub use claims::{Claim, ClaimVerdict};
pub use data::{ACCOUNT_COUNT, DataFacts, DataName, DataSet, Pair, WORD_COUNT};
pub use plan::{left_out, runs};
pub use published::{PUBLISHED, PublishedRow, improvement};
pub use run::{
    Clock, Counts, MeanTime, Measurement, PaperFigure, PaperTest, Run, RunOutcome, Sample, System,
};

use super::Finding;
use crate::golden::Slip;
use crate::random::Random;
use crate::study::{Machine, Program};

/// The paper's figures, run again, and what became of its claims.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaperRerun {
    /// Version of the form: 1.
    pub schema: u32,
    /// The paper.
    pub paper: &'static str,
    /// The program and how it was called.
    pub program: Program,
    /// The machine it ran on.
    pub machine: Machine,
    /// Processes that wanted to run when it started, averaged over a minute; null if the system does not
    /// tell.
    pub load_average: Option<f64>,
    /// The seed of the data sets and of the order of the runs.
    pub seed: u64,
    /// Runs of each kind.
    pub run_count: u64,
    /// The figures that were asked for.
    pub figures: Vec<PaperFigure>,
    /// The data sets.
    pub data_sets: Vec<DataFacts>,
    /// What was measured, or why it was not.
    pub systems: Vec<SystemFacts>,
    /// The runs.
    pub measurements: Vec<Measurement>,
    /// The claims of the text.
    pub claims: Vec<Claim>,
    /// Numbers of the text that follow from others or from the package as released.
    pub findings: Vec<Finding>,
    /// Mistakes of the text, with the arithmetic.
    pub slips: Vec<Slip>,
    /// What is missing, if somebody stopped the work early.
    pub interruption: Option<String>,
}

/// What is known of a system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SystemFacts {
    /// The system.
    pub system: System,
    /// What it is here: its library and version.
    pub what: String,
    /// Whether this machine has it.
    pub is_here: bool,
    /// The package that contains it, or why it cannot be measured.
    pub note: String,
}

/// The defaults of the package as released, read from a table that was made with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageDefaults {
    /// Bytes of a page: `bsize`.
    pub page_bytes: u32,
    /// Keys of a bucket: `ffactor`.
    pub fill_factor: u32,
    /// Buckets of a segment: `ssize`.
    pub segment_buckets: u32,
    /// Segments of the directory: `dsize`.
    pub segments: u32,
    /// Bytes of the buffer pool once it is full.
    pub cache_bytes: u64,
    /// The largest page, in bytes.
    pub page_bytes_max: u32,
}

/// What the report is made of.
#[derive(Debug)]
pub struct Evidence {
    /// The program and how it was called.
    pub program: Program,
    /// The machine it ran on.
    pub machine: Machine,
    /// Processes that wanted to run when it started.
    pub load_average: Option<f64>,
    /// The seed.
    pub seed: u64,
    /// Runs of each kind.
    pub run_count: u64,
    /// The figures that were asked for.
    pub figures: Vec<PaperFigure>,
    /// The data sets.
    pub data_sets: Vec<DataFacts>,
    /// What was measured, or why it was not.
    pub systems: Vec<SystemFacts>,
    /// The runs.
    pub measurements: Vec<Measurement>,
    /// The defaults of the package.
    pub defaults: Option<PackageDefaults>,
    /// What is missing.
    pub interruption: Option<String>,
}

/// Decides the claims, checks the numbers and names the slips.
pub fn seltzer_yigit(evidence: Evidence) -> PaperRerun {
    let Evidence { measurements, figures, data_sets, defaults, .. } = evidence;
    let dictionary = data_sets.iter().find(|facts| facts.name == DataName::Dictionary);
    let pair_bytes_mean = dictionary.map_or(0.0, |facts| facts.pair_bytes_mean);
    PaperRerun {
        schema: 1,
        paper: "Seltzer and Yigit 1991: a new hashing package for UNIX",
        program: evidence.program,
        machine: evidence.machine,
        load_average: evidence.load_average,
        seed: evidence.seed,
        run_count: evidence.run_count,
        systems: evidence.systems,
        claims: claims::claims(&measurements, &figures, pair_bytes_mean),
        findings: findings(defaults),
        slips: slips::slips(dictionary),
        figures,
        data_sets,
        measurements,
        interruption: evidence.interruption,
    }
}

/// Returns numbers of the text beside what follows from others, or from the package.
fn findings(defaults: Option<PackageDefaults>) -> Vec<Finding> {
    const PART: &str = "Numbers of the text";
    let all = || PUBLISHED.iter().flat_map(|row| Clock::ALL.map(|clock| (row, clock)));
    let follows = |(row, clock): &(&PublishedRow, Clock)| {
        let printed = row.percent[*clock as usize];
        row.computed(*clock).map_or(printed == 0, |computed| computed.round() as i32 == printed)
    };
    let mut findings = vec![
        Finding::exact(
            PART,
            "percentages of Figures 8a and 8b that follow from their times",
            "36",
            all().filter(follows).count().to_string(),
        )
        .note("of 0.0 in both columns, 0 % follows; the two others are among the mistakes"),
        Finding::exact(PART, "2^32 buckets of the largest page, in GiB", "131072", {
            ((1_u64 << 47) >> 30).to_string()
        })
        .note("printed as over 131,000 GB"),
    ];
    let Some(it) = defaults else { return findings };
    let kept = "the package as released, db 1.85, has other defaults than the paper";
    let number = |item: &str, published: u64, ours: u64| {
        let finding = Finding::exact(PART, item, published.to_string(), ours.to_string());
        if published == ours { finding } else { finding.note(kept) }
    };
    findings.extend([
        number("default bucket size in bytes", 256, it.page_bytes.into()),
        number("default fill factor", 8, it.fill_factor.into()),
        number("default buffer pool in bytes", 64 << 10, it.cache_bytes),
        number("pointers of a segment", 256, it.segment_buckets.into()),
        number("segments at first", 256, it.segments.into()),
        number("largest page in bytes", 32 << 10, it.page_bytes_max.into()),
    ]);
    findings
}

/// Returns the numbers 0 to `count - 1` in an order that `seed` draws.
///
/// # Source
///
/// Fisher and Yates; Durstenfeld, "Algorithm 235: random permutation", 1964.
pub fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed);
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::Mark;

    #[test]
    fn a_shuffle_has_each_number_once_and_depends_on_the_seed() {
        let mut order = shuffled(100, 1);
        assert_ne!(order, shuffled(100, 2));
        assert_eq!(order, shuffled(100, 1));
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn the_defaults_of_the_text_are_compared_with_those_of_the_release() {
        let released = PackageDefaults {
            page_bytes: 4096,
            fill_factor: 65_536,
            segment_buckets: 256,
            segments: 256,
            cache_bytes: 65_536,
            page_bytes_max: 32_768,
        };
        let findings = findings(Some(released));
        let marks: Vec<Mark> = findings[2..].iter().map(|it| it.mark).collect();
        let (yes, no) = (Mark::Exact, Mark::DidNotHold);
        assert_eq!(marks, [no, no, yes, yes, yes, yes]);
        assert_eq!(findings[0].ours, "34");
    }
}
