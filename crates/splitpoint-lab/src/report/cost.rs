//! The cost of a hit over the size of the table: the picture that finds sizes at which a reduction
//! fails.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::chart::{Axis, SIDES, at, frame, polyline};
use super::entry::{self, Entry};
use super::functions::size_in_words;
use super::number::{counted, fixed, grouped, percent};
use super::scale::{Scale, Tick};
use crate::document::{Block, Cell, Figure, Fold, Line, Table};
use crate::measure::Report;

/// Lines with a distinct color and mark.
pub(super) const STYLES: usize = 6;
/// Functions whose pictures are open at first.
const OPEN_MAX: usize = 6;
/// Cost from which a size at which others are fine is named.
const BUG_COST_RATIO: f64 = 1.05;
/// Those that are named.
const BUGS_SHOWN: usize = 12;

/// Returns the section, or `None` if nothing was measured at several sizes.
pub(super) fn section(entries: &[Entry<'_>], reports: &[Report]) -> Option<Vec<Block>> {
    if entries.iter().all(|entry| entry.by_size().len() < 2) {
        return None;
    }
    let mut by_hash: BTreeMap<&str, Vec<&Entry<'_>>> = BTreeMap::new();
    // A line needs two points.
    let has_line = |entry: &&Entry<'_>| entry.by_size().len() > 1;
    for entry in entries.iter().filter(has_line) {
        by_hash.entry(entry.hash).or_default().push(entry);
    }
    let several: Vec<_> = by_hash.into_iter().filter(|(_, entries)| entries.len() > 1).collect();
    let all: Vec<&Entry<'_>> = entries.iter().filter(has_line).collect();
    let each = several.iter().enumerate().map(|(index, (hash, entries))| {
        let title = format!("{hash}: one line per reduction");
        picture(&format!("cost-{index}"), &title, entries, reports)
    });
    let overview = picture("cost-all", "Cost of a hit over the size of the table", &all, reports);
    let sizes = entry::sizes(reports).into_iter().collect::<Vec<u64>>();
    let mut blocks = vec![
        Block::Prose(Line::from(format!(
            "{} of {}: {}. The line of a good function stays in the band around 1 at all sizes. A \
             line that leaves it at some sizes only shows a reduction that does not suit those \
             sizes.",
            counted(reports.len() as u64, "measurement"),
            counted(sizes.len() as u64, "table size"),
            sizes_in_words(&sizes)
        ))),
        Block::Figures(vec![overview]),
    ];
    blocks.extend(unreached(entries));
    blocks.extend(bugs(entries));
    if several.len() > OPEN_MAX {
        let summary = format!("One picture for each of {} functions", several.len());
        blocks.push(Fold::closed(summary, Block::Figures(each.collect())));
    } else if all.len() > several.first().map_or(0, |(_, entries)| entries.len()) {
        blocks.push(Block::Figures(each.collect()));
    }
    let summary = "Numbers of these pictures: cost at each size".to_string();
    blocks.push(Fold::closed(summary, Block::Table(data(entries, reports))));
    Some(blocks)
}

/// Names the tables of which no hash of the width reaches every bucket, whatever the keys are.
fn unreached(entries: &[Entry<'_>]) -> Option<Block> {
    let mut lines = Vec::new();
    for entry in entries {
        let is_short = |report: &&Report| report.reachable_count < report.bucket_count;
        let short: Vec<&Report> = entry.by_size().into_values().filter(is_short).collect();
        let Some(last) = short.last() else { continue };
        let sizes: Vec<u64> = short.iter().map(|report| report.bucket_count).collect();
        lines.push(Line::from(format!(
            "{}: {} buckets, the last with {} in reach",
            entry.name(),
            sizes_in_words(&sizes),
            percent(last.reachable_count as f64 / last.bucket_count as f64)
        )));
    }
    let heading = "Leave buckets out of reach, whatever the keys are";
    (!lines.is_empty()).then_some(Block::List(heading, lines))
}

/// Names sizes at which a function fails that fits the keys at another.
fn bugs(entries: &[Entry<'_>]) -> Option<Block> {
    let is_worse = |report: &Report| report.verdict.grade().is_worse();
    let mut bugs: Vec<(String, &Report)> = Vec::new();
    for entry in entries {
        let fits = entry.by_size().values().any(|report| !is_worse(report));
        let fails =
            |report: &&Report| fits && is_worse(report) && report.cost_ratio >= BUG_COST_RATIO;
        let found = entry.by_size().into_values().filter(fails);
        bugs.extend(found.map(|report| (entry.name(), report)));
    }
    let mut lines: Vec<Line> = bugs
        .iter()
        .take(BUGS_SHOWN)
        .map(|(name, report)| {
            let size = size_in_words(report.bucket_count);
            let cost = fixed(report.cost_ratio, 2);
            format!("{name}: {size} buckets, a hit costs x{cost}").into()
        })
        .collect();
    if bugs.len() > BUGS_SHOWN {
        lines.push(format!("and {} more: `--json` has them", bugs.len() - BUGS_SHOWN).into());
    }
    let heading = "Fail at some sizes only, so that a test at one size misses it";
    (!lines.is_empty()).then_some(Block::List(heading, lines))
}

fn sizes_in_words(sizes: &[u64]) -> String {
    match sizes {
        [] => "none".to_string(),
        [first, .., last] => format!("{} to {}", size_in_words(*first), size_in_words(*last)),
        [only] => size_in_words(*only),
    }
}

/// Entries whose lines look the same.
#[derive(Debug)]
struct Curve<'a> {
    path: String,
    entries: Vec<&'a Entry<'a>>,
}

impl<'a> Curve<'a> {
    /// Returns the lines, the highest first.
    fn all(entries: &[&'a Entry<'a>], scales: Scales) -> Vec<Self> {
        let mut ranked = entries.to_vec();
        ranked.sort_by(|one, other| highest(other).total_cmp(&highest(one)));
        let mut lines: Vec<Self> = Vec::new();
        for entry in ranked {
            let path = scales.path(entry);
            match lines.iter_mut().find(|line| line.path == path) {
                Some(line) => line.entries.push(entry),
                None => lines.push(Self { path, entries: vec![entry] }),
            }
        }
        lines
    }

    fn name(&self) -> String {
        let names: Vec<String> = self.entries.iter().take(2).map(|entry| entry.name()).collect();
        match self.entries.len() {
            0..=2 => names.join(" = "),
            count => format!("{} = {} others", names[0], count - 1),
        }
    }
}

/// The highest lines have colors, dashes and marks of their own; the others are there, and named
/// by the table.
fn picture(id: &str, title: &str, entries: &[&Entry<'_>], reports: &[Report]) -> Figure {
    let scales = Scales::of(entries, reports);
    let lines = Curve::all(entries, scales);
    let (named, others) = lines.split_at(lines.len().min(STYLES));
    let drawing = html! {
        (scales.frame(reports))
        @for line in others { path.other d=(line.path) {} }
        @for (style, line) in named.iter().enumerate().rev() {
            g class={ "s" (style) } {
                path.line d=(line.path) {}
                @for (size, report) in line.entries[0].by_size() {
                    @let [x, y] = scales.place(size, report.cost_ratio);
                    path.mark d=(mark(style, x, y)) {
                        title {
                            (line.name()) ", " (grouped(size)) " buckets: "
                            (fixed(report.cost_ratio, 3))
                        }
                    }
                }
            }
        }
    };
    let legend = legend(named, others);
    Figure { height: 300.0, legend, ..Figure::new(id, title, in_words(entries), drawing) }
}

fn legend(named: &[Curve<'_>], others: &[Curve<'_>]) -> Vec<(Markup, String)> {
    let mut legend: Vec<(Markup, String)> = named
        .iter()
        .enumerate()
        .map(|(style, line)| {
            let mark = html! {
                g class={ "s" (style) } {
                    path.line d="M0 5H22" {}
                    path.mark d=(mark(style, 11.0, 5.0)) {}
                }
            };
            (mark, line.name())
        })
        .collect();
    if !others.is_empty() {
        let entries = || others.iter().flat_map(|line| &line.entries);
        let most = entries().map(|entry| highest(entry)).fold(0.0, f64::max);
        let name =
            format!("{}, at most {}", counted(entries().count() as u64, "other"), fixed(most, 3));
        legend.push((html! { path.other d="M0 5H22" {} }, name));
    }
    let ideal = html! { rect.band x="0" y="0" width="22" height="10" {} path.ideal d="M0 5H22" {} };
    legend.push((ideal, "ideal, 2 standard deviations".to_string()));
    legend
}

fn highest(entry: &Entry<'_>) -> f64 {
    entry.reports.iter().map(|report| report.cost_ratio).fold(0.0, f64::max)
}

fn in_words(entries: &[&Entry<'_>]) -> String {
    let worse = || entries.iter().filter(|entry| entry.grade().is_worse());
    match worse().max_by(|one, other| highest(one).total_cmp(&highest(other))) {
        None => "No line is worse than chance allows, at any size.".to_string(),
        Some(worst) => format!(
            "{} of {} lines are worse than chance allows at some size, the highest that of {}, up to {}.",
            worse().count(),
            entries.len(),
            worst.name(),
            fixed(highest(worst), 2)
        ),
    }
}

/// Where sizes and costs stand.
#[derive(Clone, Copy, Debug)]
struct Scales {
    x: Scale,
    y: Scale,
}

impl Scales {
    fn of(entries: &[&Entry<'_>], reports: &[Report]) -> Self {
        let sizes = entry::sizes(reports);
        let bits = |size: Option<&u64>| size.map_or(0.0, |&size| (size as f64).log2());
        let [left, right] = SIDES;
        let x =
            Scale::linear([bits(sizes.first()), bits(sizes.last())], [left + 12.0, right - 12.0]);
        let costs = || entries.iter().map(|entry| highest(entry));
        let (least, most) = (costs().fold(0.95, f64::min), costs().fold(1.1, f64::max));
        // Some room below the ideal, whatever the range.
        let least = least.max(1e-3) * (least.max(1e-3) / most).powf(0.06);
        let y = Scale::log([least, most * 1.03], [254.0, 24.0]);
        Self { x, y }
    }

    fn place(self, size: u64, cost: f64) -> [f64; 2] {
        [self.x.at((size as f64).log2()), self.y.at(cost)]
    }

    fn path(self, entry: &Entry<'_>) -> String {
        polyline(entry.by_size().into_iter().map(|(size, it)| self.place(size, it.cost_ratio)))
    }

    fn frame(self, reports: &[Report]) -> Markup {
        let [from, to] = self.x.range();
        let apart = (((to - from) / 12.0).ceil() as usize).max(1);
        let bits = (from.ceil() as i32..=to.floor() as i32).step_by(apart);
        let ticks =
            bits.map(|bits| Tick { at: self.x.at(f64::from(bits)), label: bits.to_string() });
        let x = Axis {
            scale: Scale::linear([0.0, 1.0], SIDES),
            ticks: ticks.collect(),
            title: "table bits: logarithm of the number of buckets",
        };
        let y = Axis::new(self.y, 5, "cost of a hit, 1 = ideal (log scale)");
        let ideal = self.y.at(1.0);
        let [left, right] = SIDES;
        html! {
            path.band d=(self.band(reports)) {}
            (frame(&x, &y))
            path.ideal d={ "M" (at(left)) " " (at(ideal)) "H" (at(right)) } {}
        }
    }

    /// The pairs of keys in one bucket are close to Poisson: `n^2 / 2m` of them, of as much
    /// variance, and a hit costs `1 + pairs / n`.
    fn band(self, reports: &[Report]) -> String {
        let mut edges: BTreeMap<u64, f64> = BTreeMap::new();
        for report in reports {
            let (n, m) = (report.key_count as f64, report.bucket_count as f64);
            let pairs = n * (n - 1.0).max(0.0) / (2.0 * m);
            let away = 2.0 * pairs.sqrt() / n.max(1.0) / report.probes_hit_ideal.max(1.0);
            edges.insert(report.bucket_count, away);
        }
        let edge = |sign: f64| {
            edges.iter().map(move |(&size, &away)| self.place(size, (1.0 + sign * away).max(1e-3)))
        };
        let mut path = polyline(edge(1.0).chain(edge(-1.0).collect::<Vec<_>>().into_iter().rev()));
        path.push('Z');
        path
    }
}

/// A mark that is distinct from the others even without its color.
pub(super) fn mark(style: usize, x: f64, y: f64) -> String {
    let (x, y) = (at(x), at(y));
    match style {
        0 => format!("M{x} {y}m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0Z"),
        1 => format!("M{x} {y}m-2.8 -2.8h5.6v5.6h-5.6Z"),
        2 => format!("M{x} {y}m0 -4l4 4l-4 4l-4 -4Z"),
        3 => format!("M{x} {y}m0 -3.6l3.8 6.6h-7.6Z"),
        4 => format!("M{x} {y}m0 3.6l3.8 -6.6h-7.6Z"),
        _ => format!("M{x} {y}m-3.5 -1h2.5v-2.5h2v2.5h2.5v2h-2.5v2.5h-2v-2.5h-2.5Z"),
    }
}

fn data(entries: &[Entry<'_>], reports: &[Report]) -> Table {
    let sizes = entry::sizes(reports);
    let caption = "Cost of a hit at each number of buckets, the highest of the seeds";
    let mut table = Table::new(caption).words(["function, reduction"]);
    table = table.numbers(sizes.iter().map(|&size| grouped(size)));
    for entry in entries {
        let costs = entry.by_size();
        let cost =
            |size: &u64| costs.get(size).map_or_else(String::new, |it| fixed(it.cost_ratio, 3));
        let cells = sizes.iter().map(|size| Cell::from(cost(size)));
        table.push([Cell::from(entry.name())].into_iter().chain(cells));
    }
    table
}
