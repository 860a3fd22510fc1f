//! Tables 1 to 6: throughput there, nodes and lines of a lookup here.

use super::super::{Finding, Mark, change, digits, p};
use super::Runs;
use crate::chance::{Moments, welch};
use crate::replay::{Column, Combination, ERAS, KernelTable, Replay, TableReplay, red_black};
use crate::{Error, Reduction, Specimen};

/// Cache lines of his processors.
const LINE_BYTES: u32 = 32;

/// A row of a table: the kernel, its mean throughput as printed, and what it is here.
struct Row {
    kernel: &'static str,
    printed: &'static str,
    /// Mean throughput in scripts an hour, of all its loads.
    throughput: f64,
    here: Here,
}

/// What stands for a kernel here.
enum Here {
    /// A function in a table of so many buckets.
    Table(&'static str, u64),
    /// The same with another shift.
    Shifted(&'static str, u64, u32),
    /// The same while the dentry cache is shrunk.
    Shrunk(&'static str, u64, Option<u32>),
    /// Red-black trees.
    Trees,
    /// Nothing, for a reason.
    Nothing(&'static str),
}

const fn row(kernel: &'static str, printed: &'static str, throughput: f64, here: Here) -> Row {
    Row { kernel, printed, throughput, here }
}

const PAGE: &str = "linux-2.2.5-page";
const DENTRY: &str = "lever-dentry-14bit";
const DENTRY_MULT: &str = "lever-dentry-mult";
const BUFFER_MULT: &str = "lever-buffer-mult-11";
const BUFFER_BY_SIZE: &str = "lever-buffer-mult-by-size";

/// A table: its caption, the table of the kernel, and its rows; the first is the reference.
type Printed = (&'static str, KernelTable, Vec<Row>);

fn all() -> [Printed; 5] {
    [page_loads(), page_sizes(), buffers(), inodes(), dentries()]
}

fn page_loads() -> Printed {
    (
        "Table 1, page cache, 16 to 64 scripts",
        KernelTable::Page,
        vec![
            row("reference", "1864.7 1800.8 1739.9 1644.6, 50:25", 1762.5, Here::Table(PAGE, 2048)),
            row("13-bit", "1875.8 1834.0 1765.5 1683.3, 49:43", 1789.65, Here::Table(PAGE, 8192)),
            row("14-bit", "1877.2 1830.8 1770.5 1694.3, 49:35", 1793.2, Here::Table(PAGE, 16_384)),
            row(
                "15-bit",
                "1875.4 1832.4 1770.3 1691.2, 49:36",
                1792.325,
                Here::Table(PAGE, 32_768),
            ),
            row(
                "offset",
                "1880.0 1843.7 1774.5 1685.4, 49:40",
                1795.9,
                Here::Table("lever-page-offset", 16_384),
            ),
            row(
                "mult",
                "1876.4 1836.8 1773.7 1691.7, 49:29",
                1794.65,
                Here::Table("lever-page-mult", 16_384),
            ),
            row("rbtree", "1874.9 1817.0 1755.3 1670.8, 50:03", 1779.5, Here::Trees),
        ],
    )
}

fn page_sizes() -> Printed {
    (
        "Table 2, page cache, 128 scripts",
        KernelTable::Page,
        vec![
            row("2048 buckets", "4282.8, 4295.2, 4313.0, 12:57", 4282.8, Here::Table(PAGE, 2048)),
            row("8192 buckets", "4387.3, 4398.5, 4407.5, 12:40", 4387.3, Here::Table(PAGE, 8192)),
            row(
                "32768 buckets",
                "4405.3, 4407.4, 4413.8, 12:49",
                4405.3,
                Here::Table(PAGE, 32_768),
            ),
        ],
    )
}

fn buffers() -> Printed {
    (
        "Table 3, buffer cache",
        KernelTable::Buffer,
        vec![
            row(
                "reference, 32768",
                "4282.8, 4295.2, 4313.0, 12:57",
                4282.8,
                Here::Table("linux-2.2.5-buffer", 32_768),
            ),
            row(
                "mult, shift 16, 32768",
                "4369.3, 4376.4, 4393.2, 12:45",
                4369.3,
                Here::Table(BUFFER_BY_SIZE, 32_768),
            ),
            row(
                "mult, shift 11, 32768",
                "4380.8, 4382.8, 4394.0, 12:50",
                4380.8,
                Here::Table(BUFFER_MULT, 32_768),
            ),
            row(
                "shift-add, 32768",
                "4388.9, 4397.2, 4415.5, 12:31",
                4388.9,
                Here::Table("steiner-buffer", 32_768),
            ),
            row(
                "mult, shift 11, 16384",
                "4350.5, 4394.6, 4417.2, 12:41",
                4350.5,
                Here::Table(BUFFER_MULT, 16_384),
            ),
            row(
                "mult, shift 17, 16384",
                "4343.7, 4369.9, 4390.2, 12:46",
                4343.7,
                Here::Table(BUFFER_BY_SIZE, 16_384),
            ),
            row(
                "shift-add, 16384",
                "4390.2, 4399.6, 4408.3, 12:37",
                4390.2,
                Here::Table("steiner-buffer", 16_384),
            ),
            row(
                "mult, shift 18, 8192",
                "4328.9, 4333.7, 4349.6, 12:41",
                4328.9,
                Here::Table(BUFFER_BY_SIZE, 8192),
            ),
            row(
                "shift-add, 8192",
                "4362.5, 4362.8, 4382.3, 12:45",
                4362.5,
                Here::Table("steiner-buffer", 8192),
            ),
        ],
    )
}

fn inodes() -> Printed {
    (
        "Table 4, in truth the inode cache",
        KernelTable::Inode,
        vec![
            row("reference", "4282.8, 12:57", 4282.8, Here::Table("linux-2.2-inode", 256)),
            row("12 bit", "4361.3, 12:36", 4361.3, Here::Table("linux-2.2-inode", 4096)),
            row(
                "mult",
                "4346.0, 12:52",
                4346.0,
                Here::Nothing("the paper does not say what it multiplies, nor its shift"),
            ),
            row("14 bit", "4368.3, 12:54", 4368.3, Here::Table("linux-2.2-inode", 16_384)),
        ],
    )
}

fn dentries() -> Printed {
    (
        "Table 5, in truth the dentry cache",
        KernelTable::Dentry,
        vec![
            row(
                "reference",
                "4282.8, 4313.0, 12:57",
                4282.8,
                Here::Table("linux-2.2.5-dentry", 1024),
            ),
            row("14 bit", "4375.2, 4397.4, 12:42", 4375.2, Here::Table(DENTRY, 16_384)),
            row(
                "mult, shift 11",
                "4368.7, 4406.2, 12:39",
                4368.7,
                Here::Table(DENTRY_MULT, 16_384),
            ),
            row(
                "mult, shift 17",
                "4375.9, 4389.0, 12:40",
                4375.9,
                Here::Shifted(DENTRY_MULT, 16_384, 17),
            ),
            row("shrink", "4368.7, 4390.7, 12:40", 4368.7, Here::Shrunk(DENTRY, 16_384, None)),
            row(
                "shrink + mult 11",
                "4380.4, 4396.5, 12:35",
                4380.4,
                Here::Shrunk(DENTRY_MULT, 16_384, None),
            ),
            row(
                "shrink + mult 17",
                "4368.5, 4383.6, 12:42",
                4368.5,
                Here::Shrunk(DENTRY_MULT, 16_384, Some(17)),
            ),
        ],
    )
}

/// The kernels of Table 6: mean, deviation, maximum and elapsed time of ten runs.
const COMBINATIONS: [(&str, f64, f64, &str); 5] = [
    ("ref", 4300.7, 15.73, "4321.1, 26:41"),
    ("A", 4582.9, 12.55, "4592.8, 25:24"),
    ("B", 4577.9, 16.22, "4602.0, 25:18"),
    ("C", 4596.2, 22.30, "4619.5, 25:18"),
    ("D", 4591.3, 10.98, "4608.9, 25:15"),
];

/// Returns a finding for each row of the six tables.
pub(super) fn findings(runs: Option<Runs<'_>>) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for (part, table, rows) in all() {
        let mut measured = Vec::new();
        for row in &rows {
            measured.push(measure(table, row, runs)?);
        }
        findings.extend(of_table(part, &rows, &measured));
    }
    findings.extend(combinations(runs)?);
    findings.extend(tests());
    Ok(findings)
}

/// What a lookup costs here.
struct Cost {
    /// Cache lines, by which kernels are compared.
    lines: f64,
    words: String,
}

fn column(
    table: KernelTable,
    name: &str,
    buckets: u64,
    shift: Option<u32>,
) -> Result<Column, Error> {
    let column = Column::of_function(table, Specimen::by_name(name)?, buckets, &ERAS[0])?;
    Ok(match shift {
        None => column,
        Some(shift) => {
            Column { setup: column.setup.with_reduction(Reduction::Shift(shift))?, ..column }
        }
    })
}

fn measure(
    table: KernelTable,
    row: &Row,
    runs: Option<Runs<'_>>,
) -> Result<Result<Cost, String>, Error> {
    let Some(runs) = runs else { return Ok(Err("give --trace".to_owned())) };
    let (name, buckets, shift, is_shrunk) = match row.here {
        Here::Table(name, buckets) => (name, buckets, None, false),
        Here::Shifted(name, buckets, shift) => (name, buckets, Some(shift), false),
        Here::Shrunk(name, buckets, shift) => (name, buckets, shift, true),
        Here::Nothing(why) => return Ok(Err(why.to_owned())),
        Here::Trees => {
            let tree = red_black(runs.streams);
            let lines = tree.lines_per_lookup();
            let words = format!(
                "visited {:.2}, deepest {}, lines {lines:.2}",
                tree.visited_per_lookup(),
                tree.deepest
            );
            return Ok(if tree.lookup_count > 0 {
                Ok(Cost { lines, words })
            } else {
                Err(empty())
            });
        }
    };
    let streams = match (is_shrunk, runs.shrunk) {
        (false, _) => runs.streams,
        (true, Some(shrunk)) => shrunk,
        (true, None) => return Ok(Err("the trace was not read again to be shrunk".to_owned())),
    };
    let replay = Replay::new(streams, runs.measuring);
    let measured = replay.tables(&[column(table, name, buckets, shift)?])?;
    Ok(measured.first().map_or_else(|| Err(empty()), |it| Ok(cost(it))))
}

fn empty() -> String {
    "the trace has no lookups of this table".to_owned()
}

fn cost(it: &TableReplay) -> Cost {
    let lines = it.lines.iter().find(|it| it.line_bytes == LINE_BYTES);
    let lines = lines.map_or(it.visited.mean, |it| it.per_lookup);
    let words = format!(
        "visited {:.3} (ideal {:.3}), skipped {:.3}, lines {lines:.2}",
        it.visited.mean, it.visited_ideal.mean, it.skipped.mean
    );
    Cost { lines, words }
}

/// Compares each kernel with the reference, and the order of all.
fn of_table(part: &'static str, rows: &[Row], measured: &[Result<Cost, String>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let reference = measured.first().and_then(|it| it.as_ref().ok());
    for (index, (row, cost)) in rows.iter().zip(measured).enumerate() {
        findings.push(match (cost, reference) {
            (Ok(cost), _) if index == 0 => Finding::new(
                part,
                row.kernel,
                row.printed,
                &*cost.words,
                Mark::NotReproducible,
            )
            .note("throughput: of his machine; the cost here is what the others are held against"),
            (Ok(cost), Some(reference)) => {
                let is_faster = row.throughput > rows[0].throughput;
                let holds = is_faster == (cost.lines < reference.lines);
                let note = format!(
                    "there {}, lines here {}",
                    change(rows[0].throughput, row.throughput),
                    change(reference.lines, cost.lines)
                );
                Finding::new(part, row.kernel, row.printed, &*cost.words, Mark::shape(holds))
                    .note(note)
            }
            (Ok(_), None) => Finding::missing(part, row.kernel, row.printed, empty()),
            (Err(why), _) => Finding::missing(part, row.kernel, row.printed, why.as_str()),
        });
    }
    findings.extend(order(part, rows, measured));
    findings
}

/// Returns how many pairs of kernels are in the same order there and here.
fn order(part: &'static str, rows: &[Row], measured: &[Result<Cost, String>]) -> Option<Finding> {
    let known: Vec<(f64, f64)> = rows
        .iter()
        .zip(measured)
        .filter_map(|(row, cost)| Some((row.throughput, cost.as_ref().ok()?.lines)))
        .collect();
    let (mut pair_count, mut same_count) = (0, 0);
    for (index, one) in known.iter().enumerate() {
        for other in &known[index + 1..] {
            pair_count += 1;
            same_count += u32::from((one.0 < other.0) == (one.1 > other.1));
        }
    }
    (pair_count > 0).then(|| {
        let ours = format!("{same_count} of {pair_count} pairs in the same order");
        let holds = 4 * same_count >= 3 * pair_count;
        Finding::new(part, "order of the kernels", "faster first", ours, Mark::shape(holds)).note(
            "same shape from three pairs of four; differences among the best are mostly noise",
        )
    })
}

fn combinations(runs: Option<Runs<'_>>) -> Result<Vec<Finding>, Error> {
    const PART: &str = "Table 6, combinations";
    let measured = match runs {
        Some(runs) => Replay::new(runs.streams, runs.measuring).combinations(&Combination::ALL)?,
        None => Vec::new(),
    };
    let lines = |name: &str| {
        let it = measured.iter().find(|it| it.name == name)?;
        Some((it.lines_per_lookup, it.lines_per_lookup_ideal))
    };
    let reference = lines("ref");
    let finding = |(name, mean, deviation, rest): (&'static str, f64, f64, &str)| {
        let printed = format!("{mean} s={deviation}, {rest}");
        let Some(((here, ideal), (of_reference, _))) = lines(name).zip(reference) else {
            return Finding::missing(PART, name, printed, "give --trace");
        };
        let ours = format!("lines {here:.3} (ideal {ideal:.3}) of {LINE_BYTES} bytes a lookup");
        if name == "ref" {
            return Finding::new(PART, name, printed, ours, Mark::NotReproducible)
                .note("throughput: of his machine; the lines here stand in for it");
        }
        let note = format!(
            "there {}, lines here {}; the modified inode function is not given: 2.2.5's at 11 bits",
            change(COMBINATIONS[0].1, mean),
            change(of_reference, here)
        );
        Finding::new(PART, name, printed, ours, Mark::shape(here < of_reference)).note(note)
    };
    Ok(COMBINATIONS.into_iter().map(finding).collect())
}

/// Which of his kernels his own runs tell apart.
fn tests() -> Vec<Finding> {
    const PART: &str = "Table 6, Welch's test";
    let moments = |(_, mean, deviation, _): (&str, f64, f64, &str)| Moments {
        run_count: 10,
        mean,
        deviation,
    };
    let mut findings = Vec::new();
    for (index, one) in COMBINATIONS.into_iter().enumerate() {
        for other in COMBINATIONS.into_iter().skip(index + 1) {
            let test = welch(moments(one), moments(other)).map(|it| it.p);
            let is_apart = test.is_some_and(|p| p < 0.05);
            let published = format!("{} and {}", digits(one.1, 1), digits(other.1, 1));
            let item = format!("{} against {}", one.0, other.0);
            let note = if is_apart { "they differ" } else { "ten runs do not tell them apart" };
            findings.push(
                Finding::new(PART, item, published, p(test), Mark::shape(is_apart)).note(note),
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests_of_tables {
    use super::*;

    #[test]
    fn every_kernel_that_is_named_has_a_table_of_its_size() {
        for (part, table, rows) in all() {
            for row in rows {
                let column = match row.here {
                    Here::Table(name, buckets) => column(table, name, buckets, None),
                    Here::Shifted(name, buckets, shift) => {
                        column(table, name, buckets, Some(shift))
                    }
                    Here::Shrunk(name, buckets, shift) => column(table, name, buckets, shift),
                    Here::Trees | Here::Nothing(_) => continue,
                };
                assert!(column.is_ok(), "{part}: {}", row.kernel);
            }
        }
    }

    #[test]
    fn his_runs_tell_all_kernels_from_the_reference_and_few_from_each_other() {
        let apart: Vec<String> =
            tests().into_iter().filter(|it| it.mark == Mark::InShape).map(|it| it.item).collect();
        let expected =
            ["ref against A", "ref against B", "ref against C", "ref against D", "B against D"];
        assert_eq!(apart, expected);
    }
}
