//! The cost of a hit over the size of the table: the picture that finds sizes at which a reduction
//! fails.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::chart::{Axis, Figure, SIDES, at, frame, polyline};
use super::entry::{self, Entry, Kind};
use super::number::{counted, fixed, grouped};
use super::scale::{Scale, Tick};
use super::table::{Cell, Table};
use crate::measure::Report;

/// Lines that have a color and a mark of their own.
const STYLES: usize = 6;
/// Functions whose pictures are shown without being asked for.
const OPEN_MAX: usize = 6;

/// Returns the section's pictures, or `None` for a study of one size.
pub(super) fn section(entries: &[Entry<'_>], reports: &[Report]) -> Option<Markup> {
    if entry::sizes(reports).len() < 2 {
        return None;
    }
    let mut by_hash: BTreeMap<&str, Vec<&Entry<'_>>> = BTreeMap::new();
    for entry in entries {
        by_hash.entry(entry.hash).or_default().push(entry);
    }
    let several: Vec<_> = by_hash.into_iter().filter(|(_, entries)| entries.len() > 1).collect();
    let all: Vec<&Entry<'_>> = entries.iter().collect();
    let overview = picture("cost-all", "Cost of a hit over the size of the table", &all, reports);
    let each = html! {
        div.charts {
            @for (index, (hash, entries)) in several.iter().enumerate() {
                (picture(&format!("cost-{index}"), &format!("{hash}: one line per reduction"),
                    entries, reports).render())
            }
        }
    };
    Some(html! {
        p {
            "Every table is as good as its size lets it be: the line of a good function stays in \
             the band around 1 at all sizes. A line that leaves it at some sizes only shows a \
             reduction that does not suit those sizes."
        }
        div.charts { (overview.render()) }
        @if several.len() > OPEN_MAX {
            details { summary { "One picture for each of " (several.len()) " functions" } (each) }
        } @else if all.len() > several.first().map_or(0, |(_, entries)| entries.len()) {
            (each)
        }
        details.data {
            summary { "Numbers of these pictures: cost at each size" }
            (data(entries, reports).render())
        }
    })
}

/// Entries whose lines cannot be told apart.
#[derive(Debug)]
struct Line<'a> {
    path: String,
    entries: Vec<&'a Entry<'a>>,
}

impl<'a> Line<'a> {
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
    let lines = Line::all(entries, scales);
    let (named, others) = lines.split_at(lines.len().min(STYLES));
    Figure {
        id: id.to_string(),
        title: title.to_string(),
        summary: in_words(entries),
        height: 300.0,
        drawing: html! {
            (scales.frame(reports))
            @for line in others { path.other d=(line.path) {} }
            @for (style, line) in named.iter().enumerate().rev() {
                g class={ "s" (style) } {
                    path.line d=(line.path) {}
                    @for (size, cost) in line.entries[0].cost_by_size() {
                        @let [x, y] = scales.place(size, cost);
                        path.mark d=(mark(style, x, y)) {
                            title {
                                (line.name()) ", " (grouped(size)) " buckets: " (fixed(cost, 3))
                            }
                        }
                    }
                }
            }
        },
        legend: lines_legend(named, others),
        data: None,
    }
}

fn lines_legend(named: &[Line<'_>], others: &[Line<'_>]) -> Markup {
    let other_entries = || others.iter().flat_map(|line| &line.entries);
    let most = other_entries().map(|entry| highest(entry)).fold(0.0, f64::max);
    html! {
        ul.legend {
            @for (style, line) in named.iter().enumerate() {
                li {
                    svg.mark viewBox="0 0 22 10" aria-hidden="true" {
                        g class={ "s" (style) } {
                            path.line d="M0 5H22" {}
                            path.mark d=(mark(style, 11.0, 5.0)) {}
                        }
                    }
                    (line.name())
                }
            }
            @if !others.is_empty() {
                li {
                    svg.mark viewBox="0 0 22 10" aria-hidden="true" { path.other d="M0 5H22" {} }
                    (counted(other_entries().count() as u64, "other")) ", at most " (fixed(most, 3))
                }
            }
            li {
                svg.mark viewBox="0 0 22 10" aria-hidden="true" {
                    rect.band x="0" y="0" width="22" height="10" {}
                    path.ideal d="M0 5H22" {}
                }
                "ideal, 2 standard deviations"
            }
        }
    }
}

fn highest(entry: &Entry<'_>) -> f64 {
    entry.reports.iter().map(|report| report.cost_ratio).fold(0.0, f64::max)
}

fn in_words(entries: &[&Entry<'_>]) -> String {
    let mut ranked = entries.to_vec();
    ranked.sort_by(|one, other| highest(other).total_cmp(&highest(one)));
    let bad: Vec<String> = ranked
        .iter()
        .filter(|entry| entry.kind() == Kind::Worse)
        .map(|entry| {
            let sizes: BTreeSet<u64> = entry
                .reports
                .iter()
                .filter(|report| Kind::of(&report.verdict) == Kind::Worse)
                .map(|report| report.bucket_count)
                .collect();
            let total = entry.cost_by_size().len();
            let of = if sizes.len() == total {
                "all sizes".to_string()
            } else {
                format!("{} of {total} sizes", sizes.len())
            };
            format!("{} at {of}, up to {}", entry.name(), fixed(highest(entry), 2))
        })
        .collect();
    match bad.len() {
        0 => "No line is worse than chance allows, at any size.".to_string(),
        1..=STYLES => format!("Worse than chance allows: {}.", bad.join("; ")),
        count => format!(
            "{count} of {} lines are worse than chance allows: {}; and {} more.",
            entries.len(),
            bad[..STYLES].join("; "),
            count - STYLES
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
        let costs = || entries.iter().flat_map(|entry| entry.cost_by_size().into_values());
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
        polyline(entry.cost_by_size().into_iter().map(|(size, cost)| self.place(size, cost)))
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
        let y = Axis::new(self.y, 5, "cost of a hit, 1 = ideal (ratio scale)");
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

/// A mark that is told from the others without its color.
fn mark(style: usize, x: f64, y: f64) -> String {
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
    let mut table = Table::new(caption).words("function, reduction");
    for size in &sizes {
        table = table.numbers(grouped(*size));
    }
    for entry in entries {
        let costs = entry.cost_by_size();
        let cost = |size: &u64| costs.get(size).map_or_else(String::new, |cost| fixed(*cost, 3));
        let cells = sizes.iter().map(|size| Cell::from(cost(size)));
        table.push([Cell::from(entry.name())].into_iter().chain(cells));
    }
    table
}
