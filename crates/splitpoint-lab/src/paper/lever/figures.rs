//! The histograms, and the numbers that follow from others.

use super::super::{Finding, Mark, digits};
use super::Runs;
use crate::golden::{self, Histogram};
use crate::replay::{Column, ERAS, KernelTable, Replay, TableReplay};
use crate::{Error, Specimen};
use splitpoint::stats::Ideal;

/// What a log says: number, lookups, hit rate in percent, iterations of 1000 lookups; and the function
/// and the table.
const LOGS: [(usize, u64, u64, f64, &str, KernelTable); 5] = [
    (1, 296_481, 54, 2.155, "linux-2.2.5-buffer", KernelTable::Buffer),
    (2, 3_548_568, 78, 1.379, "linux-2.2.5-buffer", KernelTable::Buffer),
    (3, 287_696, 54, 0.242, "lever-buffer-mult-11", KernelTable::Buffer),
    (4, 3_530_977, 78, 0.215, "lever-buffer-mult-11", KernelTable::Buffer),
    (5, 189_321, 3, 38.978, "linux-2.2-inode", KernelTable::Inode),
];

/// Returns the logs beside a replay, and the arithmetic of their rows.
pub(super) fn histograms(runs: Option<Runs<'_>>) -> Result<Vec<Finding>, Error> {
    let mut findings: Vec<Finding> =
        golden::lever_rows().into_iter().map(|row| Finding::of_row("Histograms", row)).collect();
    for (number, lookups, hit_rate, skipped, function, table) in LOGS {
        let log = Histogram::of_paper(number);
        let part = "Histograms, replayed";
        let item = format!("Histogram {number}: iterations a lookup, hit rate, largest of mean");
        let mean = log.object_count as f64 / log.bucket_count as f64;
        let printed = format!(
            "{skipped:.3}, {hit_rate} %, {:.1} times, {lookups} lookups",
            log.largest as f64 / mean
        );
        let measured = match runs {
            None => None,
            Some(runs) => {
                let specimen = Specimen::by_name(function)?;
                let column = Column::of_function(table, specimen, log.bucket_count, &ERAS[0])?;
                Replay::new(runs.streams, runs.measuring).tables(&[column])?.into_iter().next()
            }
        };
        findings.push(match measured {
            None => {
                Finding::missing(part, item, printed, "give --trace with lookups of this table")
            }
            Some(it) => replayed(part, item, printed, function, &it),
        });
    }
    Ok(findings)
}

fn replayed(
    part: &'static str,
    item: String,
    printed: String,
    function: &str,
    it: &TableReplay,
) -> Finding {
    let mean = it.reading.object_count as f64 / it.bucket_count as f64;
    let ours = format!(
        "{:.3} (ideal {:.3}), {:.0} %, {:.1} times",
        it.skipped.mean,
        it.skipped_ideal.mean,
        100.0 * it.reading.hit_rate(),
        it.reading.largest as f64 / mean
    );
    // The old functions are much worse than chance, the multiplication is not.
    let excess = it.skipped.mean / it.skipped_ideal.mean.max(1e-9);
    let holds = match function {
        "lever-buffer-mult-11" => excess < 1.5,
        "linux-2.2.5-buffer" => excess > 2.0,
        _ => it.skipped.mean > 1.0,
    };
    let note = format!(
        "{excess:.2} times ideal here; {} objects here, and other hits: his are of a fuller cache",
        it.reading.object_count
    );
    Finding::new(part, item, printed, ours, Mark::shape(holds)).note(note)
}

/// Numbers of the text that follow from others.
pub(super) fn arithmetic() -> Vec<Finding> {
    const PART: &str = "Text";
    let [first, second, third, fourth, fifth] = [1, 2, 3, 4, 5].map(Histogram::of_paper);
    let used =
        |log: &Histogram| (log.bucket_count - log.empty_buckets()) as f64 / log.bucket_count as f64;
    let mean = |log: &Histogram| log.object_count as f64 / log.bucket_count as f64;
    let ideal_empty = |log: &Histogram| {
        let ideal = Ideal::uniform(log.bucket_count, log.object_count);
        100.0 * ideal.bucket_count(0) / log.bucket_count as f64
    };
    let golden_ratio = (5_f64.sqrt() - 1.0) / 2.0;
    let empty = 100.0 * (1.0 - used(&third));
    let share = |log: &Histogram, size: usize| log.rows.get(size).map_or(0, |row| row[3]);
    vec![
        Finding::exact(PART, "Histogram 1: utilization", "0.26471", digits(used(&first), 5)),
        Finding::exact(PART, "Histogram 2: utilization is under 2 %", "true", {
            (used(&second) < 0.02).to_string()
        })
        .note(format!("{:.2} %", 100.0 * used(&second))),
        Finding::exact(PART, "Histogram 2: share in buckets of more than 15", "85", {
            digits(100.0 * second.larger[1] as f64 / second.object_count as f64, 0)
        }),
        Finding::exact(PART, "Histogram 3: empty buckets, %", "12.4", digits(empty, 1))
            .note(format!("an ideal hash leaves {:.1} %", ideal_empty(&third))),
        Finding::exact(PART, "Histogram 3: used buckets, %", "87.6", digits(100.0 - empty, 1)),
        Finding::exact(
            PART,
            "Histogram 3: expected average, about 3",
            "3",
            digits(mean(&third), 0),
        )
        .note(format!("{:.2}: two, not three", mean(&third))),
        Finding::exact(PART, "Histogram 3: largest number of buckets at size 3", "3", {
            let most = third.rows.iter().max_by_key(|row| row[1]).map_or(0, |row| row[0]);
            most.to_string()
        })
        .note("buckets are most at size 2, buffers at size 3"),
        Finding::exact(
            PART,
            "Histograms 3 and 4: 68 % in buckets of the average or less",
            "68, 68",
            format!("{}, {}", share(&third, 2), share(&fourth, 1)),
        )
        .note("up to size 2 and 1, the next above the means of 2.27 and 0.17"),
        Finding::exact(PART, "Histogram 3: iterations an order of magnitude fewer", "10", {
            digits(2155.0 / 242.0, 1)
        })
        .note("2155 of 242; after the benchmark 1379 of 215, which is 6.4"),
        Finding::exact(PART, "Histogram 5: other inodes in an inode's bucket", "37", {
            digits(mean(&fifth) - 1.0, 0)
        })
        .note("9785 / 256 - 1 if all are as full; an ideal hash has 9784 / 256, which is 38.2"),
        Finding::exact(PART, "golden ratio", "0.6180339887", digits(golden_ratio, 10)),
        Finding::exact(PART, "2654435761 / 2^32", "0.6180339868", {
            digits(2_654_435_761.0 / 2_f64.powi(32), 10)
        }),
        Finding::exact(PART, "2654435761 is a prime", "true", {
            (crate::reduction::prime_at_least(2_654_435_761) == 2_654_435_761).to_string()
        }),
        Finding::exact(PART, "32768 buckets take 32 pages", "32", (32_768 * 4 / 4096).to_string()),
        Finding::exact(PART, "13 bits take 8 pages", "8", (8192 * 4 / 4096).to_string()),
        reachable("pid table with 4000 tasks: buckets", 4000 / 4),
        reachable("uid table with 4000 tasks: buckets", 4000 / 16),
    ]
}

/// A mask that is not one less than a power of two.
fn reachable(item: &str, bucket_count: u64) -> Finding {
    let mask = bucket_count - 1;
    let ours = format!("{} of {bucket_count} can be reached", 1_u64 << mask.count_ones());
    Finding::new("Other tables of 2.2.5", item, bucket_count.to_string(), ours, Mark::DidNotHold)
        .note(format!(
            "the mask {mask} has {} bits set: his kernels all have 4000",
            mask.count_ones()
        ))
}
