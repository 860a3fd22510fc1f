//! Figures 8a and 8b, which are tables.

use super::milliseconds;
use crate::document::{Block, Cell, Line, Table, cells};
use crate::number::{bytes, grouped};
use crate::paper::seltzer_yigit::{
    Clock, Measurement, PUBLISHED, PaperFigure, PaperRerun, PaperTest, PublishedRow, System,
    improvement,
};

/// Returns the figure as printed beside ours, and every system in every test.
pub(super) fn comparison(rerun: &PaperRerun, figure: PaperFigure) -> Vec<Block> {
    let of_figure = rerun.measurements.iter().filter(|it| it.run.figure == figure);
    let points: Vec<&Measurement> = of_figure.collect();
    let refused = refused(&points);
    let mut blocks = vec![
        Block::Prose(
            "Tests on files use buckets of 1024 bytes and fill factor 32, the test in memory 256 and 8, both \
             with the default pool of 64 KiB and of unknown size. % is 100 * (old - new) / old. Old is the \
             machine's ndbm and, in memory, its hsearch: the same calls as in 1991 over other libraries. \
             algorithm:* has the algorithms of the time."
                .into(),
        ),
        Block::Table(as_printed(&points, figure)),
        Block::Table(all_systems(&points)),
    ];
    if !refused.is_empty() {
        blocks.push(Block::List("Without a run", refused));
    }
    blocks
}

/// Returns why there is no run, once for each system and reason, with the tests.
fn refused(points: &[&Measurement]) -> Vec<Line> {
    let mut reasons: Vec<(System, &str, Vec<&str>)> = Vec::new();
    for it in points {
        let Some(why) = it.refusal.as_deref() else { continue };
        let (system, test) = (it.run.system, it.run.test.name());
        match reasons.iter_mut().find(|found| (found.0, found.1) == (system, why)) {
            Some((.., tests)) => tests.push(test),
            None => reasons.push((system, why, vec![test])),
        }
    }
    let line = |(system, why, tests): (System, &str, Vec<&str>)| {
        format!("{}, {}: {why}", system.name(), tests.join(", ")).into()
    };
    reasons.into_iter().map(line).collect()
}

fn find<'a>(
    points: &[&'a Measurement],
    system: System,
    test: PaperTest,
) -> Option<&'a Measurement> {
    let is_wanted = |it: &&&Measurement| it.run.system == system && it.run.test == test;
    points.iter().filter(is_wanted).copied().find(|it| it.is_measured())
}

fn as_printed(points: &[&Measurement], figure: PaperFigure) -> Table {
    let mut table = Table::new("As printed, in seconds, and here, in ms").words(["test", "time"]);
    table = table.numbers(["1991 hash", "1991 old", "1991 %", "hash", "old", "%"]);
    for row in PUBLISHED.iter().filter(|row| row.figure == figure) {
        for clock in Clock::ALL {
            table.push(printed_row(points, row, clock));
        }
    }
    table
}

fn printed_row(points: &[&Measurement], row: &PublishedRow, clock: Clock) -> Vec<Cell> {
    let old = if row.test == PaperTest::CreateRead { System::Hsearch } else { System::Ndbm };
    let time = |system| find(points, system, row.test).map(|it| it.time(clock).mean);
    let (new, old) = (time(System::Hash), time(old));
    let percent = new.zip(old).and_then(|(new, old)| improvement(old, new));
    let shown = |time: Option<f64>| time.map_or_else(|| "not here".to_owned(), milliseconds);
    let printed = row.percent[clock as usize];
    let is_other_sign =
        percent.is_some_and(|percent| printed != 0 && (percent > 0.0) != (printed > 0));
    let percent = percent.map_or_else(String::new, |it| format!("{it:.0}"));
    let percent = if is_other_sign { Line::alarm(percent) } else { percent.into() };
    let test = if clock == Clock::User { row.test.name() } else { "" };
    cells![
        test,
        clock.name(),
        format!("{:.1}", row.new[clock as usize]),
        format!("{:.1}", row.old[clock as usize]),
        printed.to_string(),
        shown(new),
        shown(old),
        percent,
    ]
    .into()
}

fn all_systems(points: &[&Measurement]) -> Table {
    let mut table = Table::new("All systems: times in ms").words(["test", "system"]);
    table = table.numbers(["user", "sys", "elapsed", "+-"]);
    table = table.numbers(["pages moved"]).wide().numbers(["probes"]).wide();
    table = table.numbers(["calls"]).wide().numbers(["size"]);
    let mut last = None;
    for it in points.iter().filter(|it| it.is_measured()) {
        let counts = it.counts.unwrap_or_default();
        let count = |number: Option<u64>| number.map_or_else(String::new, grouped);
        let calls = counts.read_calls.zip(counts.write_calls).map(|(one, other)| one + other);
        let test = if last == Some(it.run.test) { "" } else { it.run.test.name() };
        last = Some(it.run.test);
        table.push(cells![
            test,
            it.run.system.name(),
            milliseconds(it.user.mean),
            milliseconds(it.system.mean),
            milliseconds(it.elapsed.mean),
            milliseconds(it.elapsed.half_interval),
            count(counts.page_transfers()),
            count(counts.probes),
            count(calls),
            Cell::ordered(counts.file_bytes as f64, bytes(counts.file_bytes)),
        ]);
    }
    table
}
