//! The hash of names from Linux 3.2 to 3.17, and of today.
//!
//! # Source
//!
//! Torvalds, "vfs: fix bad hashing of dentries", September 2014, with Bacik's report.

use super::{Finding, Mark, PaperReport, digits};
use crate::golden::{self, Slip};
use crate::{Setup, Specimen};

const PART_REPORT: &str = "Bacik's report";
const PART_FIX: &str = "The fix";
/// The names of his test, and the bits of his table.
const NAMES: u64 = 1_000_000;
const BITS: u32 = 24;

/// Puts the numbers of Bacik's report and of the fix beside ours.
///
/// # Cost
///
/// Some seconds, and memory for a table of 2^24 buckets.
pub fn torvalds() -> PaperReport {
    let rows = golden::bacik_rows();
    let computed = |what: &str| {
        let row = rows.iter().find(|row| row.what == what);
        row.and_then(|row| row.computed.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let (mended, ideal) = (computed("mended hash: dupes"), computed("dupes of an ideal hash"));
    let is_ours = |what: &str| what.starts_with("mended") || what.starts_with("dupes of");
    let mut findings: Vec<Finding> = rows
        .iter()
        .filter(|row| !is_ours(&row.what))
        .map(|row| Finding::of_row(PART_REPORT, row.clone()))
        .collect();
    let speed = "speed of his machine, file system and card: no hash decides it alone";
    findings.push(Finding::missing(
        PART_REPORT,
        "directories a second, 3.2 and 3.10",
        "20k, 12k",
        speed,
    ));
    findings.push(
        Finding::new(
            PART_REPORT,
            "all million names in buckets of their own (3.2)",
            "1000000",
            digits(computed("old hash: buckets used"), 0),
            Mark::Exact,
        )
        .note("better than random: R5 keeps the order of the digits, and other names will not fare so"),
    );
    findings.push(
        Finding::new(
            PART_FIX,
            "\"mixing the bits up\": dupes after the fix, on his keys",
            "no number",
            digits(mended, 0),
            Mark::DidNotHold,
        )
        .note(format!(
            "an ideal hash leaves {ideal:.0}: the fix has {:.1} times as many, which a test that prints \
             the ideal would have shown",
            mended / ideal
        )),
    );
    let today = dupes("linux-4.8-name");
    findings.push(
        Finding::new(
            PART_FIX,
            "dupes with the function of 4.8 and later",
            "-",
            digits(today, 0),
            Mark::InShape,
        )
        .note(format!("{:.2} times those of an ideal hash", today / ideal)),
    );
    PaperReport::new(
        "Bacik and Torvalds 2014: the hash of names",
        "the names a0 to a999999 in 2^24 buckets",
        findings,
        slips(),
    )
}

fn slips() -> Vec<Slip> {
    let longest = splitpoint::stats::Ideal::uniform(1 << BITS, NAMES).longest_mean();
    vec![Slip {
        source: "Bacik 2014",
        printed: "0 max dupes of the old hash, 900 of the new".to_owned(),
        evidence: format!(
            "the fullest bucket of the old hash has 1 name: his program counts it only among buckets \
             with a dupe; an ideal hash has {longest:.1}"
        ),
    }]
}

fn dupes(name: &str) -> f64 {
    let specimen = Specimen::by_name(name).expect("a name of this library");
    let reduction = specimen.historic_reduction().expect("names of Linux have one");
    let setup = Setup::new(specimen, 0, reduction, 1 << BITS).expect("a power of two");
    let keys: Vec<String> = (0..NAMES).map(|number| format!("a{number}")).collect();
    let spread = setup.sample_hashes(32).count(keys.iter().map(String::as_bytes)).occupancy();
    (NAMES - spread.at_least(1)) as f64
}
