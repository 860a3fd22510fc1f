//! Mistakes of the paper, and what it leaves unsaid, each with the arithmetic.

use super::data::DataFacts;
use super::plan::FILLS;
use super::published::PUBLISHED;
use crate::golden::Slip;

fn slip(printed: &str, evidence: String) -> Slip {
    Slip { source: "Seltzer and Yigit 1991", printed: printed.to_owned(), evidence }
}

/// Returns all of them. `dictionary` is the data set in place of the paper's, which is lost.
pub(super) fn slips(dictionary: Option<&DataFacts>) -> Vec<Slip> {
    let mut slips = vec![
        slip(
            "CREATE/READ of the dictionary, system time: -266 %",
            format!("100 * (0.3 - 1.1) / 0.3 = {:.1}, which rounds to -267", -80.0 / 0.3),
        ),
        slip(
            "SEQUENTIAL of the password file, user time: -100 %",
            "100 * (0.0 - 0.1) / 0.0 divides by zero: the old time is below the resolution of the clock"
                .to_owned(),
        ),
        slip(
            "elapsed times of Figures 8a and 8b",
            format!(
                "{} of the 24 are less than user and system time together, such as hsearch's 17.0 of \
                 17.2 + 0.3 and hash's READ of 4.0 of 3.4 + 1.2; one process cannot do that",
                impossible_count()
            ),
        ),
        slip(
            "READ and VERIFY improve performance by over 80 %",
            "elapsed time does: 81 %; user time improves by 44 %".to_owned(),
        ),
        slip(
            "workloads improve on the order of 50-80 %",
            format!(
                "of the six elapsed times of Figure 8a, {} are in that range: 9, 81, 81, 40, 75 and 54 %",
                [9, 81, 81, 40, 75, 54].iter().filter(|it| (50..=80).contains(*it)).count()
            ),
        ),
        slip(
            "a variance across 5 runs of 1 % of the average, yielding 95 % intervals of 2 %",
            format!(
                "a standard deviation of 1 % gives the mean of five runs an interval of {:.1} %; 2 % is \
                 about that of a single run",
                2.776 / 5.0_f64.sqrt()
            ),
        ),
        slip(
            "OADDR_TO_PAGE: ... + oaddr & 0x7ff",
            "+ binds tighter than & in C: without parentheses the whole sum is masked to 11 bits"
                .to_owned(),
        ),
        slip(
            "reallocation occurs when the number of buckets exceeds 32K (256*256)",
            format!("256 * 256 = {} = 64K", 256 * 256),
        ),
        slip(
            "pages from 128 bytes to 1M",
            format!(
                "offsets in pages are 16 bits, \"limiting the maximum page size to 32K\"; and at fill \
                 factor 1, 24,474 buckets of 1 MiB would take {:.1} GiB",
                24_474.0 / 1024.0
            ),
        ),
    ];
    slips.extend(dictionary.map(equation));
    slips
}

/// Returns how many printed elapsed times are too short for their user and system times, beyond what
/// rounding to a tenth allows.
fn impossible_count() -> usize {
    let rows = PUBLISHED.iter().flat_map(|row| [row.new, row.old]);
    rows.filter(|[user, system, elapsed]| elapsed + 0.149 < user + system).count()
}

/// Equation (1) at the parameters that the paper calls the best.
fn equation(facts: &DataFacts) -> Slip {
    let mean = facts.pair_bytes_mean;
    let at = |fill: f64| (mean + 4.0) * fill;
    let least = FILLS.iter().find(|&&fill| at(f64::from(fill)) >= 256.0);
    slip(
        "the tradeoff is best at 256 bytes and 8 keys, near where equation (1) puts it",
        format!(
            "with pairs of {mean:.1} bytes, (pair + 4) * 8 = {:.0} < 256 and (pair + 4) * 32 = {:.0} < \
             1024; equality at 8 needs pairs of 28 bytes. The least power of two that satisfies the \
             equation at 256 is {}",
            at(8.0),
            at(32.0),
            least.map_or_else(|| "none up to 128".to_owned(), ToString::to_string),
        ),
    )
}
