//! Results as pictures: bars on a logarithmic scale, drawn as SVG.

use std::fmt::Write as _;

use crate::plan::Place;
use crate::rows::{Rows, Unit, case_key, entrants, heading};
use crate::saved::{Saved, SavedCase};

/// One picture.
#[derive(Clone, Debug)]
pub struct Picture {
    pub title: String,
    /// Its name in `docs/bench/`.
    pub file: String,
    pub svg: String,
    case: String,
    place: Place,
}

impl Picture {
    pub fn is_of(&self, case: &SavedCase, place: Place) -> bool {
        self.case == case_key(&case.workload, &case.name) && self.place == place
    }
}

/// Phases that get a picture.
const SHOWN: [&str; 8] =
    ["everything", "create", "hit", "miss", "scan", "overwrite", "durable:1", "durable:8"];

/// Draws one picture for each case and place.
pub fn all(saved: &Saved) -> Vec<Picture> {
    let rows = Rows::of(saved);
    let mut pictures = Vec::new();
    for case in saved.cases.iter().filter(|case| case.workload != CURVE) {
        for place in [Place::Disk, Place::Memory] {
            pictures.extend(one(saved, &rows, case, place));
        }
    }
    pictures.extend(curve(saved, &rows));
    pictures
}

/// The workload whose cases are one curve.
const CURVE: &str = "curve";

/// Draws the cost of each phase by the number of records, a line for each engine.
fn curve(saved: &Saved, rows: &Rows) -> Option<Picture> {
    let cases: Vec<&SavedCase> =
        saved.cases.iter().filter(|case| case.workload == CURVE && case.records > 1).collect();
    let last = *cases.last()?;
    let mut out = String::new();
    let mut top = 34.0;
    for label in rows.labels(&case_key(CURVE, &last.name)) {
        let lines: Vec<Line> = saved
            .engines
            .iter()
            .map(|engine| {
                let point = |case: &&SavedCase| {
                    let row = rows.find(&case_key(CURVE, &case.name), &label, &engine.name)?;
                    Some((case.records as f64, row.median_ns))
                };
                let points = cases.iter().filter_map(point).collect();
                let is_ours = engine.name.starts_with("splitpoint");
                Line { engine: engine.title.clone(), is_ours, points }
            })
            .filter(|line| !line.points.is_empty())
            .collect();
        chart(&mut out, top, &label, &lines);
        top += CHART_HEIGHT + 54.0;
    }
    let title = "Cost by number of records, ns for one operation";
    let svg = format!("{}{out}</svg>\n", head(title, top));
    Some(Picture {
        title: title.to_owned(),
        file: "curve.svg".to_owned(),
        svg,
        case: case_key(CURVE, &last.name),
        place: Place::Disk,
    })
}

/// The curve of one engine: numbers of records, and nanoseconds for one operation.
struct Line {
    engine: String,
    is_ours: bool,
    points: Vec<(f64, f64)>,
}

const CHART_HEIGHT: f64 = 170.0;

/// One chart with both axes logarithmic; each line has its engine's name at its end.
fn chart(out: &mut String, top: f64, label: &str, lines: &[Line]) {
    let points = || lines.iter().flat_map(|line| &line.points);
    let extremes = |of: fn(&(f64, f64)) -> f64| {
        let least = points().map(of).fold(f64::INFINITY, f64::min);
        let most = points().map(of).fold(0.0, f64::max);
        (least.max(0.1), most.max(least * 1.01))
    };
    let ((x_min, x_max), (y_min, y_max)) = (extremes(|point| point.0), extremes(|point| point.1));
    let part = |value: f64, (least, most): (f64, f64)| (value / least).ln() / (most / least).ln();
    let x = |records: f64| 70.0 + part(records, (x_min, x_max)) * SCALE_WIDTH;
    let y = |ns: f64| top + 24.0 + CHART_HEIGHT * (1.0 - part(ns.max(y_min), (y_min, y_max)));
    let _ = writeln!(
        out,
        "<text x=\"8\" y=\"{}\" font-weight=\"bold\">{label}</text>\
         <rect x=\"70\" y=\"{}\" width=\"{SCALE_WIDTH}\" height=\"{CHART_HEIGHT}\" fill=\"none\" \
         stroke=\"#ccc\"/>",
        top + 14.0,
        top + 24.0
    );
    for (ns, bottom) in [(y_min, y(y_min)), (y_max, y(y_max) + 12.0)] {
        let shown = Unit::Nanoseconds.show(ns);
        let _ =
            writeln!(out, "<text x=\"64\" y=\"{bottom:.0}\" text-anchor=\"end\">{shown}</text>");
    }
    for records in [x_min, x_max] {
        let (at, bottom) = (x(records), top + CHART_HEIGHT + 40.0);
        let shown = crate::rows::number(records);
        let _ = writeln!(
            out,
            "<text x=\"{at:.0}\" y=\"{bottom}\" text-anchor=\"middle\">{shown}</text>"
        );
    }
    for Line { engine, is_ours, points } in lines {
        let color = if *is_ours { "#c0392b" } else { "#4f6f8f" };
        let path: Vec<String> =
            points.iter().map(|&(records, ns)| format!("{:.1},{:.1}", x(records), y(ns))).collect();
        let (records, ns) = points[points.len() - 1];
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{color}\">{engine}</text>",
            path.join(" "),
            x(records) + 6.0,
            y(ns) + 4.0
        );
    }
}

/// A bar: whose it is, how long it takes, and from what to what in all runs.
struct Bar {
    engine: String,
    is_ours: bool,
    median_ns: f64,
    min_ns: f64,
    max_ns: f64,
}

fn one(saved: &Saved, rows: &Rows, case: &SavedCase, place: Place) -> Option<Picture> {
    let key = case_key(&case.workload, &case.name);
    let engines = entrants(saved, rows, &key, place);
    let mut groups: Vec<(String, Unit, Vec<Bar>)> = Vec::new();
    for label in rows.labels(&key).iter().filter(|label| SHOWN.contains(&label.as_str())) {
        let found = engines
            .iter()
            .filter_map(|engine| Some((engine, rows.find(&key, label, &engine.name)?)));
        let mut ops = 0;
        let mut bars: Vec<Bar> = found
            .map(|(engine, row)| {
                ops = ops.max(row.ops);
                Bar {
                    engine: engine.title.clone(),
                    is_ours: engine.name.starts_with("splitpoint"),
                    median_ns: row.median_ns,
                    min_ns: row.min_ns,
                    max_ns: row.max_ns,
                }
            })
            .collect();
        bars.sort_by(|a, b| a.median_ns.total_cmp(&b.median_ns));
        if !bars.is_empty() {
            groups.push((label.clone(), Unit::of(label, ops), bars));
        }
    }
    // With all phases in a total, that is the picture.
    if case.total_of.is_empty() && groups.iter().any(|(label, ..)| label == "everything") {
        groups.retain(|(label, ..)| label == "everything");
    }
    if groups.is_empty() {
        return None;
    }
    let title = heading(case, place);
    let words = format!("{}-{}-{}", case.workload, case.name, place.word()).to_lowercase();
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric();
    let parts: Vec<&str> =
        words.split(|letter| !is_of_name(letter)).filter(|part| !part.is_empty()).collect();
    let file = format!("{}.svg", parts.join("-"));
    Some(Picture { svg: draw(&title, &groups), title, file, case: key, place })
}

const BAR_HEIGHT: f64 = 16.0;
const NAME_WIDTH: f64 = 190.0;
const SCALE_WIDTH: f64 = 460.0;
const WIDTH: f64 = 760.0;

/// The beginning of a picture, with its title.
fn head(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" \
         role=\"img\">\n<title>{title}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"8\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{title}</text>\n"
    )
}

fn draw(title: &str, groups: &[(String, Unit, Vec<Bar>)]) -> String {
    let bar_count: usize = groups.iter().map(|(_, _, bars)| bars.len()).sum();
    let height = 34.0 + groups.len() as f64 * 34.0 + bar_count as f64 * BAR_HEIGHT;
    let mut out = head(title, height);
    let mut y = 34.0;
    for (label, unit, bars) in groups {
        let _ = writeln!(
            out,
            "<text x=\"8\" y=\"{}\" font-weight=\"bold\">{label}, {} (logarithmic, shorter is better)</text>",
            y + 16.0,
            unit.word()
        );
        y += 24.0;
        let least = bars.iter().map(|bar| bar.min_ns).fold(f64::INFINITY, f64::min).max(0.1) / 2.0;
        let most = bars.iter().map(|bar| bar.max_ns).fold(0.0, f64::max).max(least * 2.0);
        let at = |ns: f64| ((ns.max(least) / least).ln() / (most / least).ln()) * SCALE_WIDTH;
        for bar in bars {
            let color = if bar.is_ours { "#c0392b" } else { "#7f9fbf" };
            let (length, middle) = (at(bar.median_ns), y + BAR_HEIGHT / 2.0);
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
                 <rect x=\"{NAME_WIDTH}\" y=\"{}\" width=\"{length:.1}\" height=\"{}\" fill=\"{color}\"/>\
                 <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\" stroke=\"black\"/>\
                 <text x=\"{:.1}\" y=\"{}\">{}</text>",
                NAME_WIDTH - 6.0,
                y + 12.0,
                bar.engine,
                y + 2.0,
                BAR_HEIGHT - 4.0,
                NAME_WIDTH + at(bar.min_ns),
                NAME_WIDTH + at(bar.max_ns),
                NAME_WIDTH + at(bar.max_ns) + 6.0,
                y + 12.0,
                unit.show(bar.median_ns),
            );
            y += BAR_HEIGHT;
        }
        y += 10.0;
    }
    out.push_str("</svg>\n");
    out
}
