//! The schemes of 1991 on the user's keys.

use maud::{Markup, html};

use super::chart::{Axis, SIDES, frame, polyline};
use super::cost::mark;
use super::kernel_tables::page;
use super::number::{bytes, counted, fixed, grouped, percent};
use super::scale::Scale;
use crate::classics::{ClassicsReport, ClassicsRow, LoadCurve, ideals};
use crate::document::{Block, Cell, Document, Figure, Line, Table, cells, shown};

/// Longest name of a variant beside which text has room for every column.
const NAME_MAX: usize = 16;

/// Returns the document of `lab classics`.
pub fn classics(report: &ClassicsReport) -> Document {
    let (paged, slotted): (Vec<_>, Vec<_>) = report.rows.iter().partition(|row| row.has_pages());
    let mut sections = vec![("shown", "What it shows", findings(report))];
    if !paged.is_empty() {
        let caption = "Pages of a lookup, beside an ideal hash";
        let blocks = vec![Block::Table(lookups(caption, &paged)), Block::Table(space(&paged))];
        sections.push(("pages", "Tables of pages", blocks));
    }
    if !slotted.is_empty() {
        let caption = "Probes of a lookup, beside an ideal hash";
        let blocks = vec![Block::Table(lookups(caption, &slotted)), Block::Table(work(&slotted))];
        sections.push(("memory", "Tables in memory", blocks));
    }
    if report.rows.iter().any(|row| !row.failures.is_empty()) {
        sections.push(("refused", "Keys that were not stored", refused(report)));
    }
    if !report.curves.is_empty() {
        let figures = [false, true].map(|is_good| figure(&report.curves, is_good));
        let blocks = vec![Block::Figures(figures.to_vec())];
        sections.push(("load", "Probes of hsearch over its load", blocks));
    }
    sections.push(("method", "How it was measured", method(report)));
    let title = Line::from("The classics of 1991 on ").then(Line::code(shown(&report.source)));
    let subtitle = format!(
        "{}, {} bytes each on average, {} with the value",
        counted(report.key_count, "key"),
        fixed(report.key_bytes_mean, 1),
        fixed(report.pair_bytes_mean, 1)
    );
    page(title, subtitle, sections)
}

fn row_of<'a>(report: &'a ClassicsReport, name: &str) -> Option<&'a ClassicsRow> {
    report.rows.iter().find(|row| row.name == name)
}

fn findings(report: &ClassicsReport) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(words) = &report.interruption {
        blocks.push(Block::Warning(Line::from(format!("Interrupted: {words}."))));
    }
    let mut lines = Vec::new();
    if let Some((lead, rest)) = of_hsearch(report) {
        blocks.push(Block::Lead(lead));
        lines.extend(rest);
    }
    for row in report.rows.iter().filter(|row| row.unfinished.is_some()) {
        let words = row.unfinished.as_deref().unwrap_or_default();
        lines.push(
            Line::strong(row.name.as_str())
                .then(format!(" {words}. Its costs are those of a smaller table, and too low.")),
        );
    }
    if let Some(row) = row_of(report, "gdbm") {
        lines.push(Line::from(format!(
            "gdbm: a directory of {}, {} of its entries copies, for {}; {}.",
            bytes(row.index_bytes),
            grouped(row.index_copies),
            counted(row.place_count, "bucket"),
            doublings(row)
        )));
    }
    if let Some(row) = row_of(report, "hash") {
        lines.push(Line::from(format!(
            "hash: {} by the fill factor (controlled), {} by overflow (uncontrolled).",
            counted(row.fill_splits, "split"),
            grouped(row.overflow_splits)
        )));
    }
    blocks.push(Block::List("", lines));
    blocks
}

fn doublings(row: &ClassicsRow) -> String {
    if row.doublings == 0 {
        return "it never doubled".to_owned();
    }
    format!(
        "it doubled {} and copied {} entries",
        times(row.doublings),
        grouped(row.copied_entries)
    )
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{} times", grouped(count)),
    }
}

/// Says what System V's digest does to hsearch, and what mends it.
fn of_hsearch(report: &ClassicsReport) -> Option<(Line, Vec<Line>)> {
    let plain = row_of(report, "hsearch")?;
    let (hit, ideal) = (plain.hit?, plain.hit_ideal?);
    let lead = Line::from(format!(
        "System V's digest, the sum of the bytes plus the length, has {} for {}. At a load of {} a \
         hit takes {} probes, where ideal double hashing takes {}.",
        counted(report.digest_count, "value"),
        counted(report.key_count, "key"),
        fixed(plain.fill, 3),
        fixed(hit, 2),
        fixed(ideal, 2)
    ));
    let mut lines = Vec::new();
    let costs = |names: &[&str]| {
        let cost = |name: &&str| {
            let row = row_of(report, name)?;
            Some(format!("{} {}", row.name, fixed(row.hit?, 2)))
        };
        names.iter().filter_map(cost).collect::<Vec<String>>().join(", ")
    };
    let others = costs(&["hsearch-brent", "hsearch-chained", "hsearch-div"]);
    if !others.is_empty() {
        lines.push(Line::from(format!(
            "With the same digest the other options take: {others}. The {} keys of its most frequent \
             value stay together in each.",
            grouped(report.digest_keys_max)
        )));
    }
    let mended = costs(&[
        "hsearch-rapidhash",
        "hsearch-brent-rapidhash",
        "hsearch-chained-rapidhash",
        "hsearch-div-rapidhash",
    ]);
    if !mended.is_empty() {
        lines.push(Line::from(format!("With a good digest: {mended}.")));
    }
    lines.push(Line::from(
        "The paper does not say with which options its hsearch was compiled: all are here, and none is \
         claimed.",
    ));
    Some((lead, lines))
}

/// Returns a mean of lookups, empty if there were none.
fn mean(value: Option<f64>) -> Cell {
    value.map_or_else(|| Cell::from(""), |value| Cell::ordered(value, probes(value)))
}

fn probes(value: f64) -> String {
    if value < 100.0 { fixed(value, 3) } else { fixed(value, 0) }
}

fn lookups(caption: &str, rows: &[&ClassicsRow]) -> Table {
    // Names with options leave less room to the text.
    let is_narrow = rows.iter().any(|row| row.name.len() > NAME_MAX);
    let mut table = Table::new(caption)
        .sortable()
        .words(["variant"])
        .numbers(["hit", "ideal", "miss", "ideal", "longest", "fill"])
        .wide_if(is_narrow)
        .numbers(["stored"])
        .wide_if(is_narrow);
    for row in rows {
        let hit = match (row.hit, row.hit_ideal) {
            (Some(hit), Some(ideal)) if hit > ideal * 1.5 => {
                Cell::ordered(hit, Line::alarm(probes(hit)))
            }
            (hit, _) => mean(hit),
        };
        let is_all = row.unfinished.is_none() && row.failures.is_empty();
        let stored = grouped(row.stored_count);
        let stored = if is_all { Line::from(stored) } else { Line::alarm(stored) };
        table.push(cells![
            row.name.as_str(),
            hit,
            mean(row.hit_ideal),
            mean(row.miss),
            mean(row.miss_ideal),
            row.longest,
            Cell::ordered(row.fill, fixed(row.fill, 3)),
            Cell::ordered(row.stored_count as f64, stored),
        ]);
    }
    table
}

fn seconds(seconds: f64) -> Cell {
    Cell::ordered(seconds, format!("{} ms", fixed(1000.0 * seconds, 1)))
}

fn space(rows: &[&ClassicsRow]) -> Table {
    let mut table = Table::new("Space and work")
        .sortable()
        .words(["variant"])
        .numbers(["places", "splits", "depth", "index", "file", "holes", "store", "hits"]);
    for row in rows {
        table.push(cells![
            row.name.as_str(),
            row.place_count,
            row.overflow_splits + row.fill_splits,
            u64::from(row.depth),
            Cell::ordered(row.index_bytes as f64, bytes(row.index_bytes)),
            Cell::ordered(row.file_bytes as f64, bytes(row.file_bytes)),
            Cell::ordered(row.hole_bytes as f64, bytes(row.hole_bytes)),
            seconds(row.store_s),
            seconds(row.hit_s),
        ]);
    }
    table
}

fn work(rows: &[&ClassicsRow]) -> Table {
    let mut table = Table::new("Space and work")
        .sortable()
        .words(["variant"])
        .numbers(["places"])
        .wide()
        .numbers(["splits"])
        .wide()
        .numbers(["moves", "index", "store", "hits"]);
    for row in rows {
        table.push(cells![
            row.name.as_str(),
            row.place_count,
            row.overflow_splits + row.fill_splits,
            row.moves,
            Cell::ordered(row.index_bytes as f64, bytes(row.index_bytes)),
            seconds(row.store_s),
            seconds(row.hit_s),
        ]);
    }
    table
}

fn refused(report: &ClassicsReport) -> Vec<Block> {
    let mut table = Table::new("By reason").words(["variant", "reason"]).numbers(["keys"]);
    let mut messages = Vec::new();
    let mut quotes: Vec<(&str, &str)> = Vec::new();
    let mut unnamed: Vec<&str> = Vec::new();
    for row in &report.rows {
        for failure in &row.failures {
            table.push(cells![row.name.as_str(), failure.reason, failure.key_count]);
            let name = Line::from(format!("{}, ", row.name));
            let key = name.then(Line::code(shown(&failure.first_key)));
            messages.push(key.then(format!(": {}", failure.message)));
            match failure.in_paper.map(|quote| (failure.reason, quote)) {
                Some(quote) if !quotes.contains(&quote) => quotes.push(quote),
                None if !unnamed.contains(&failure.reason) => unnamed.push(failure.reason),
                _ => {}
            }
        }
    }
    let quotes =
        quotes.into_iter().map(|(reason, quote)| Line::strong(reason).then(format!(": {quote}")));
    let mut blocks = vec![Block::Table(table), Block::List("The first key of each", messages)];
    if quotes.len() > 0 {
        blocks.push(Block::List("In the words of the paper", quotes.collect()));
    }
    if !unnamed.is_empty() {
        let reasons = unnamed.into_iter().map(Line::strong).collect();
        blocks.push(Block::List("Reasons that the paper does not name", reasons));
    }
    blocks
}

/// Draws the curves of one digest.
fn figure(curves: &[LoadCurve], is_good: bool) -> Figure {
    let curves: Vec<&LoadCurve> =
        curves.iter().filter(|curve| curve.has_good_digest == is_good).collect();
    let (id, title) = if is_good {
        ("load-good", "Probes of a hit over the load, with a good digest")
    } else {
        ("load-original", "Probes of a hit over the load, with System V's digest")
    };
    let highest = curves.iter().flat_map(|curve| &curve.points).map(|point| point.hit);
    let highest = highest.fold(1.5, f64::max);
    let last = |curve: &&&LoadCurve| curve.points.last().map_or(0.0, |point| point.hit);
    let worst = curves.iter().max_by(|one, other| last(one).total_cmp(&last(other)));
    let summary = worst.map_or_else(String::new, |worst| {
        let slots = grouped(worst.slot_count);
        let point = worst.points.last();
        format!(
            "In {slots} slots {} needs most at the highest load, {} probes at {}.",
            worst.name,
            point.map_or_else(String::new, |point| probes(point.hit)),
            point.map_or_else(String::new, |point| percent(point.load))
        )
    });
    let x = Axis::new(Scale::linear([0.0, 1.0], SIDES), 5, "load: keys per slot");
    let y = Axis::new(
        Scale::log([1.0, highest * 1.1], [254.0, 24.0]),
        5,
        "probes of a hit (log scale)",
    );
    let ideals = curves.first().map(|curve| ideals(curve));
    let ideals = ["ideal", "line-ideal"].into_iter().zip(ideals.iter().flatten());
    let path = |curve: &LoadCurve| {
        polyline(curve.points.iter().map(|point| [x.scale.at(point.load), y.scale.at(point.hit)]))
    };
    let drawing = html! {
        (frame(&x, &y))
        @for (class, curve) in ideals.clone() { path class=(class) d=(path(curve)) {} }
        @for (style, curve) in curves.iter().enumerate() {
            g class={ "s" (style) } {
                path.line d=(path(curve)) {}
                @for point in curve.points.iter().step_by(3) {
                    path.mark d=(mark(style, x.scale.at(point.load), y.scale.at(point.hit))) {
                        title { (curve.name) ", load " (fixed(point.load, 2)) ": " (probes(point.hit)) }
                    }
                }
            }
        }
    };
    let legend =
        curves.iter().enumerate().map(|(style, curve)| (sample(style), curve.name.clone()));
    let of_ideals = ideals
        .clone()
        .map(|(class, curve)| (html! { path class=(class) d="M0 5H22" {} }, curve.name.clone()));
    let legend = legend.chain(of_ideals).collect();
    let with_ideals: Vec<&LoadCurve> =
        curves.iter().copied().chain(ideals.map(|(_, curve)| curve)).collect();
    let data = Some(data(&with_ideals));
    Figure { height: 300.0, legend, data, ..Figure::new(id, title, summary, drawing) }
}

fn sample(style: usize) -> Markup {
    html! {
        g class={ "s" (style) } {
            path.line d="M0 5H22" {}
            path.mark d=(mark(style, 11.0, 5.0)) {}
        }
    }
}

fn data(curves: &[&LoadCurve]) -> Table {
    let names = curves.iter().map(|curve| curve.name.clone());
    let mut table = Table::new("Probes of a hit at each load").numbers(["load"]).numbers(names);
    let longest = curves.iter().map(|curve| curve.points.len()).max().unwrap_or(0);
    for index in 0..longest {
        let load = curves.iter().find_map(|curve| curve.points.get(index)).map(|point| point.load);
        let cost = |curve: &&LoadCurve| {
            let point = curve.points.get(index);
            Cell::from(point.map_or_else(String::new, |point| probes(point.hit)))
        };
        let load = Cell::from(load.map_or_else(String::new, |load| fixed(load, 2)));
        table.push([load].into_iter().chain(curves.iter().map(cost)));
    }
    table
}

fn method(report: &ClassicsReport) -> Vec<Block> {
    let lines = [
        "A probe of dbm, ndbm, sdbm and hash is a page of the table, of gdbm a bucket or a record, of \
         hsearch a slot or a chained key, of dynahash a chained key. No cache is counted."
            .to_owned(),
        "Fill is the share of the pages' bytes in use, for gdbm of the elements of its buckets, for the \
         others keys per slot or bucket. Index is the bitmap, the trie, the directory or the slots."
            .to_owned(),
        format!(
            "Keys that are missed are those of the file with one more byte, drawn with seed {}.",
            report.seed
        ),
        "The ideal is that of a hash that spreads keys at random: formulas of Knuth, of Larson for \
         linear hashing, and for Brent's rearrangement the mean of simulated tables. That of hash fills each page with \
         pairs of mean size, and is left out where the mean pair exceeds a page."
            .to_owned(),
        "USCR, the comparison of the user, is here by length first. It changes sorted chains only, so \
         the other options have no row with it."
            .to_owned(),
        "Counts are exact and the same on every machine; times are of this one.".to_owned(),
    ];
    vec![Block::List("", lines.into_iter().map(Line::from).collect())]
}

#[cfg(test)]
mod tests {
    use splitpoint_legacy::algorithm::Parameters;

    use super::*;
    use crate::classics::{Plan, measure, variants};
    use crate::document::Look;

    fn report(keys: &[&str]) -> ClassicsReport {
        let pairs: Vec<(&[u8], &[u8])> =
            keys.iter().map(|key| (key.as_bytes(), &b"1"[..])).collect();
        let (variants, parameters) = (variants(), Parameters::default());
        let plan = Plan { source: "words".to_owned(), variants, parameters, seed: 1 };
        measure(&pairs, &plan, &mut |_| (), &|| false).unwrap()
    }

    #[test]
    fn every_variant_has_a_line_and_refusals_their_reason() {
        let long = "x".repeat(700);
        let mut keys = vec!["one", "two", "three", &long];
        let more: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        keys.extend(more.iter().map(String::as_str));
        let report = report(&keys);
        let text = classics(&report).text(&Look::plain(80));
        for row in &report.rows {
            assert!(text.lines().any(|line| line.starts_with(&row.name)), "{}\n{text}", row.name);
        }
        let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
        assert!(text.contains("pair exceeds page"), "{text}");
        assert!(text.contains("total key and data size exceed the page size"), "{text}");
        let html = classics(&report).html();
        assert!(
            html.contains("with System V&#39;s digest") || html.contains("with System V's digest")
        );
    }
}
