//! Figures 5 to 7, and the text after 5c.

use std::collections::BTreeSet;

use super::drawing::{Bar, Curve, Titles, bars, lines};
use super::milliseconds;
use crate::document::{Block, Cell, Figure, Line, Table, cells};
use crate::number::{bytes, grouped};
use crate::paper::seltzer_yigit::{
    Clock, Counts, Measurement, PaperFigure, PaperRerun, Run, System,
};

fn measured(rerun: &PaperRerun, figure: PaperFigure) -> Vec<&Measurement> {
    let is_wanted = |it: &&Measurement| it.run.figure == figure && it.is_measured();
    rerun.measurements.iter().filter(is_wanted).collect()
}

fn none() -> Vec<Block> {
    vec![Block::Prose("No run of this figure was made.".into())]
}

/// Returns the values of a parameter, each once, in order.
fn values<T: Ord>(points: &[&Measurement], parameter: impl Fn(&Run) -> T) -> Vec<T> {
    points.iter().map(|it| parameter(&it.run)).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the name of a line of Figure 5: its bucket size.
fn name_of(it: &Measurement) -> String {
    match it.run.system {
        System::Splitpoint => "native".to_owned(),
        _ if it.run.page_bytes >= 1 << 14 => format!("{}K", it.run.page_bytes >> 10),
        _ => it.run.page_bytes.to_string(),
    }
}

/// Figures 5a to 5c, and the pages behind them.
pub(super) fn bucket_sizes(rerun: &PaperRerun) -> Vec<Block> {
    let mut points = measured(rerun, PaperFigure::BucketSizes);
    if points.is_empty() {
        return none();
    }
    points.sort_by_key(|it| (it.run.system, it.run.page_bytes, it.run.fill_factor));
    let fills = values(&points, |run| run.fill_factor);
    let place = |it: &Measurement| fills.binary_search(&it.run.fill_factor).unwrap_or_default();
    let places: Vec<String> = fills.iter().map(ToString::to_string).collect();
    let curves = |value: &dyn Fn(&Measurement) -> Option<f64>| -> Vec<Curve> {
        let one = |line: &[&Measurement]| Curve {
            name: name_of(line[0]),
            points: line.iter().filter_map(|it| Some((place(it), value(it)?))).collect(),
        };
        let lines = points.chunk_by(|one, other| {
            (one.run.system, one.run.page_bytes) == (other.run.system, other.run.page_bytes)
        });
        lines.map(one).filter(|curve| !curve.points.is_empty()).collect()
    };
    let picture = |id: &str, title: &str, y: &str, value: &dyn Fn(&Measurement) -> Option<f64>| {
        let curves = curves(value);
        let summary = in_words(&curves, &places);
        let titles = Titles { x: "fill factor", y };
        lines(id, title, summary, &curves, &places, titles)
    };
    let time = |clock: Clock| move |it: &Measurement| Some(1e3 * it.time(clock).mean);
    let pictures = vec![
        picture("fig-5a", "5a: system time", "milliseconds", &time(Clock::System)),
        picture("fig-5b", "5b: elapsed time", "milliseconds", &time(Clock::Elapsed)),
        picture("fig-5c", "5c: user time", "milliseconds", &time(Clock::User)),
        picture("fig-5-pages", "Behind 5a: pages read and written", "pages", &|it| {
            Some(it.counts?.page_transfers()? as f64)
        }),
        picture("fig-5-made", "Behind 5c: pages allocated", "pages", &|it| {
            Some(it.counts?.page_allocations? as f64)
        }),
    ];
    let mut blocks = vec![
        Block::Prose(
            "The dictionary is stored in a new table of known size and read, with a pool of 1 MiB. Each line \
             is a bucket size; native is the store of this library, whose buckets hold 7 keys."
                .into(),
        ),
        Block::Figures(pictures),
    ];
    for (caption, value) in grids() {
        blocks.push(Block::Table(grid(caption, &points, &fills, value)));
    }
    let mut refused: Vec<Line> = Vec::new();
    let grid = |it: &&Measurement| it.run.figure == PaperFigure::BucketSizes;
    for it in rerun.measurements.iter().filter(grid) {
        if let Some(why) = &it.refusal {
            let (size, fill) = (grouped(it.run.page_bytes.into()), it.run.fill_factor);
            refused.push(format!("{size} bytes, fill factor {fill}: {why}").into());
        }
    }
    if !refused.is_empty() {
        blocks.push(Block::List("Without a run", refused));
    }
    blocks
}

type Value = fn(&Measurement) -> String;

fn grids() -> [(&'static str, Value); 5] {
    [
        ("5a: system time in ms, by bucket size and fill factor", |it| {
            milliseconds(it.system.mean)
        }),
        ("5b: elapsed time in ms", |it| milliseconds(it.elapsed.mean)),
        ("5c: user time in ms", |it| milliseconds(it.user.mean)),
        ("Pages read and written", |it| count(it.counts.as_ref().and_then(Counts::page_transfers))),
        ("Pages allocated", |it| count(it.counts.and_then(|it| it.page_allocations))),
    ]
}

/// Returns a count, or nothing where nothing was counted.
fn count(number: Option<u64>) -> String {
    number.map_or_else(String::new, grouped)
}

fn grid(caption: &str, points: &[&Measurement], fills: &[u32], value: Value) -> Table {
    let mut table = Table::new(caption).words(["bucket size"]);
    table = table.numbers(fills.iter().map(ToString::to_string));
    let lines = points.chunk_by(|one, other| name_of(one) == name_of(other));
    for line in lines {
        let at = |fill: &u32| line.iter().find(|it| it.run.fill_factor == *fill);
        let values = fills.iter().map(|fill| at(fill).map_or_else(String::new, |it| value(it)));
        let cells = values.map(Cell::from);
        table.push(std::iter::once(Cell::from(name_of(line[0]))).chain(cells));
    }
    table
}

/// Says which line is lowest, and where.
fn in_words(curves: &[Curve], places: &[String]) -> String {
    let all = curves.iter().flat_map(|curve| curve.points.iter().map(move |point| (curve, point)));
    let least = all.clone().min_by(|one, other| one.1.1.total_cmp(&other.1.1));
    let most = all.max_by(|one, other| one.1.1.total_cmp(&other.1.1));
    let (Some(least), Some(most)) = (least, most) else { return String::new() };
    let shown = |(curve, point): (&Curve, &(usize, f64))| {
        let value = crate::report::number::significant(point.1);
        format!("{value} at {} and {}", curve.name, places[point.0])
    };
    format!("Least: {}; most: {}.", shown(least), shown(most))
}

/// Figure 6.
pub(super) fn growth(rerun: &PaperRerun) -> Vec<Block> {
    let points = measured(rerun, PaperFigure::Growth);
    if points.is_empty() {
        return none();
    }
    let systems = [(System::Hash, "fig-6-hash"), (System::AlgorithmDynahash, "fig-6-dynahash")];
    let pictures = systems.into_iter().filter_map(|(system, id)| growth_bars(&points, system, id));
    let mut table = Table::new("Figure 6: times in ms").words(["system", "size"]);
    table = table.numbers(["fill", "user", "system", "elapsed", "+-", "pages moved"]);
    for it in &points {
        let moved = it.counts.as_ref().and_then(Counts::page_transfers);
        table.push(cells![
            it.run.system.name(),
            if it.run.is_size_known { "known" } else { "grown" },
            u64::from(it.run.fill_factor),
            milliseconds(it.user.mean),
            milliseconds(it.system.mean),
            milliseconds(it.elapsed.mean),
            milliseconds(it.elapsed.half_interval),
            moved.map_or_else(String::new, grouped),
        ]);
    }
    vec![
        Block::Prose(
            "Buckets of 256 bytes. Of each set the left bar is a table that is told how many records come, the \
             right one is grown from a single bucket. The store of this library is never told."
                .into(),
        ),
        Block::Figures(pictures.collect()),
        Block::Table(table),
    ]
}

fn growth_bars(points: &[&Measurement], system: System, id: &str) -> Option<Figure> {
    let bar = |it: &Measurement| {
        let [user, system, elapsed] = Clock::ALL.map(|clock| 1e3 * it.time(clock).mean);
        let size = if it.run.is_size_known { "known" } else { "grown" };
        let name = format!("{}, {size}, fill factor {}", it.run.system.name(), it.run.fill_factor);
        Bar { name, parts: [user, system, (elapsed - user - system).max(0.0)] }
    };
    let of_system: Vec<&Measurement> =
        points.iter().filter(|it| it.run.system == system).copied().collect();
    let fills = values(&of_system, |run| run.fill_factor);
    let set = |fill: u32| {
        let mut bars: Vec<&Measurement> =
            of_system.iter().filter(|it| it.run.fill_factor == fill).copied().collect();
        bars.sort_by_key(|it| !it.run.is_size_known);
        (fill.to_string(), bars.into_iter().map(bar).collect::<Vec<_>>())
    };
    let mut sets: Vec<_> = fills.into_iter().map(set).collect();
    if sets.is_empty() {
        return None;
    }
    let native = points.iter().find(|it| it.run.system == System::Splitpoint);
    sets.extend(native.map(|it| ("splitpoint".to_owned(), vec![bar(it)])));
    let total = |bar: &Bar| bar.parts.iter().sum::<f64>();
    let ratio = |bars: &[Bar]| (bars.len() == 2).then(|| total(&bars[1]) / total(&bars[0]));
    let ratios =
        sets.iter().filter_map(|(name, bars)| Some(format!("{name}: {:.2}", ratio(bars)?)));
    let summary =
        format!("Grown over known, by fill factor: {}.", ratios.collect::<Vec<_>>().join(", "));
    let title = format!("6: {}, size known and grown", system.name());
    let titles = Titles { x: "fill factor", y: "milliseconds" };
    Some(bars(id, &title, summary, &sets, titles))
}

/// Figure 7.
pub(super) fn pool(rerun: &PaperRerun) -> Vec<Block> {
    let mut points = measured(rerun, PaperFigure::Pool);
    if points.is_empty() {
        return none();
    }
    points.sort_by_key(|it| (it.run.system, it.run.cache_bytes));
    let pools = values(&points, |run| run.cache_bytes);
    let places: Vec<String> = pools.iter().map(|bytes| (bytes >> 10).to_string()).collect();
    let of = |system: System| {
        let points = points.iter().filter(move |it| it.run.system == system).copied();
        points.collect::<Vec<&Measurement>>()
    };
    let place = |it: &Measurement| pools.binary_search(&it.run.cache_bytes).unwrap_or_default();
    let curve = |name: &str, points: &[&Measurement], value: &dyn Fn(&Measurement) -> f64| Curve {
        name: name.to_owned(),
        points: points.iter().map(|it| (place(it), value(it))).collect(),
    };
    let titles = |y| Titles { x: "buffer pool in KiB", y };
    let mut pictures = Vec::new();
    for (system, id, title) in [
        (System::Hash, "fig-7", "7: hash"),
        (System::Splitpoint, "fig-7-native", "7: splitpoint, with cache_bytes"),
    ] {
        let points = of(system);
        let curves =
            Clock::ALL.map(|clock| curve(clock.name(), &points, &|it| 1e3 * it.time(clock).mean));
        let summary = in_words(&curves, &places);
        pictures.push(lines(id, title, summary, &curves, &places, titles("milliseconds")));
    }
    let moved =
        |it: &Measurement| it.counts.as_ref().and_then(Counts::page_transfers).unwrap_or(0) as f64;
    let hash = of(System::Hash);
    let curves = [curve("pages", &hash, &moved)];
    let summary = in_words(&curves, &places);
    let title = "Behind 7: pages read and written, hash";
    pictures.insert(1, lines("fig-7-pages", title, summary, &curves, &places, titles("pages")));
    vec![
        Block::Prose(
            "The dictionary is stored and read. hash: buckets of 256 bytes, fill factor 16, in memory and a \
             temporary file. splitpoint: CREATE of a file, because its bound is on what of a file stays in \
             memory."
                .into(),
        ),
        Block::Figures(pictures),
        Block::Table(pool_table(&points)),
    ]
}

fn pool_table(points: &[&Measurement]) -> Table {
    let mut table = Table::new("Figure 7: times in ms").words(["system"]);
    table = table.numbers([
        "pool",
        "user",
        "system",
        "elapsed",
        "+-",
        "pages read",
        "written",
        "an op",
    ]);
    for it in points {
        let counts = it.counts.unwrap_or_default();
        // Each record is stored once and found once.
        let each = counts
            .page_transfers()
            .map(|moved| moved as f64 / (2 * counts.found_count.max(1)) as f64);
        table.push(cells![
            it.run.system.name(),
            Cell::ordered(it.run.cache_bytes as f64, bytes(it.run.cache_bytes)),
            milliseconds(it.user.mean),
            milliseconds(it.system.mean),
            milliseconds(it.elapsed.mean),
            milliseconds(it.elapsed.half_interval),
            count(counts.page_reads),
            count(counts.page_writes),
            each.map_or_else(String::new, |each| format!("{each:.3}")),
        ]);
    }
    table
}

/// The text after Figure 5c.
pub(super) fn reread(rerun: &PaperRerun) -> Vec<Block> {
    let points = measured(rerun, PaperFigure::Reread);
    if points.is_empty() {
        return none();
    }
    let places: Vec<String> =
        points.iter().map(|it| format!("{}/{}", it.run.page_bytes, it.run.fill_factor)).collect();
    let curves = Clock::ALL.map(|clock| Curve {
        name: clock.name().to_owned(),
        points: points.iter().map(|it| 1e3 * it.time(clock).mean).enumerate().collect(),
    });
    let summary = in_words(&curves, &places);
    let titles = Titles { x: "bucket size / fill factor", y: "milliseconds" };
    let title = "READ of a file whose pages are not in memory";
    let mut table = Table::new("READ from disk: times in ms").words(["size/fill"]);
    table = table.numbers(["user", "system", "elapsed", "+-", "file", "pages read", "from device"]);
    for (it, place) in points.iter().zip(&places) {
        let counts = it.counts.unwrap_or_default();
        table.push(cells![
            place.as_str(),
            milliseconds(it.user.mean),
            milliseconds(it.system.mean),
            milliseconds(it.elapsed.mean),
            milliseconds(it.elapsed.half_interval),
            Cell::ordered(counts.file_bytes as f64, bytes(counts.file_bytes)),
            counts.page_reads.map_or_else(String::new, grouped),
            counts.device_bytes.map_or_else(String::new, bytes),
        ]);
    }
    vec![
        Block::Figures(vec![lines("fig-reread", title, summary, &curves, &places, titles)]),
        Block::Table(table),
    ]
}
