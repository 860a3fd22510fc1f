//! Draws the lines of a run: a row of panels for each pattern, over the hours.

use std::fmt::Write as _;
use std::path::Path;

use super::Run;

const PANEL: (f64, f64) = (230.0, 70.0);
const MARGIN: f64 = 16.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 24.0;
/// Points of a curve.
const POINTS: usize = 120;

/// One line: what the run measured of a turn.
struct Row {
    hours: f64,
    pattern: String,
    /// The columns behind the pattern.
    columns: Vec<f64>,
}

impl Row {
    const COLUMNS: usize = 9;

    /// Returns nothing for a line that is cut, and for one that is no turn.
    fn parse(line: &str) -> Option<Self> {
        let (second, rest) = line.split_once(',')?;
        let (pattern, rest) = rest.split_once(',')?;
        let columns: Vec<f64> = rest.split(',').map_while(|column| column.parse().ok()).collect();
        let (hours, pattern) = (second.parse::<f64>().ok()? / 3600.0, pattern.to_owned());
        (columns.len() == Self::COLUMNS).then_some(Self { hours, pattern, columns })
    }
}

/// What a panel shows: a column in a unit, as the largest or the middle one of the turns at a point.
struct Curve {
    title: &'static str,
    column: usize,
    unit: f64,
    is_largest: bool,
    /// A second column, in grey.
    beside: Option<usize>,
}

const MIB: f64 = 1024.0 * 1024.0;
const CURVES: [Curve; 5] = [
    Curve {
        title: "disk, MiB; grey: live",
        column: 1,
        unit: MIB,
        is_largest: true,
        beside: Some(2),
    },
    Curve { title: "memory of no file, MiB", column: 4, unit: MIB, is_largest: true, beside: None },
    Curve {
        title: "processor, ns a change",
        column: 5,
        unit: 1.0,
        is_largest: false,
        beside: None,
    },
    Curve { title: "p99.9, us", column: 7, unit: 1e3, is_largest: false, beside: None },
    Curve { title: "worst, ms", column: 8, unit: 1e6, is_largest: true, beside: None },
];

impl Curve {
    fn value(&self, rows: &[&Row], column: usize) -> f64 {
        let mut values: Vec<f64> = rows.iter().map(|row| row.columns[column] / self.unit).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[if self.is_largest { values.len() - 1 } else { values.len() / 2 }]
    }

    /// Returns hours and value of each point.
    fn points(&self, rows: &[&Row], column: usize) -> Vec<(f64, f64)> {
        let chunks = rows.chunks(rows.len().div_ceil(POINTS));
        chunks.map(|rows| (rows[0].hours, self.value(rows, column))).collect()
    }

    fn draw(&self, rows: &[&Row], hours: f64, (left, top): (f64, f64)) -> String {
        let (width, height) = PANEL;
        let curves = [(Some(self.column), "#06c"), (self.beside, "#999")];
        let curves = curves.map(|(column, colour)| {
            (column.map_or_else(Vec::new, |column| self.points(rows, column)), colour)
        });
        let largest = curves.iter().flat_map(|(points, _)| points).map(|point| point.1);
        let largest = largest.fold(f64::MIN_POSITIVE, f64::max);
        let mut svg = format!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"none\" \
             stroke=\"#ccc\"/>\n"
        );
        for (points, colour) in &curves {
            _ = write!(svg, "<polyline fill=\"none\" stroke=\"{colour}\" points=\"");
            for (hour, value) in points {
                let x = left + width * hour / hours;
                _ = write!(svg, "{x:.1},{:.1} ", top + height * (1.0 - value / largest / 1.15));
            }
            svg.push_str("\"/>\n");
        }
        let (x, y) = (left + 2.0, top + 10.0);
        _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"#666\">{}</text>", short(largest));
        svg
    }

    /// Returns the values of the thirds of the time, for a table.
    fn thirds(&self, rows: &[&Row]) -> String {
        let thirds = rows.chunks(rows.len().div_ceil(3));
        let values: Vec<String> = thirds.map(|rows| short(self.value(rows, self.column))).collect();
        values.join(", ")
    }
}

/// Returns `value` with about three digits.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Draws the lines of the file `from` into the file `to`; returns a table of the thirds of the time.
pub(crate) fn draw(from: &Path, to: &Path) -> Run<String> {
    let text = std::fs::read(from)?;
    let text = String::from_utf8_lossy(&text);
    let rows: Vec<Row> = text.lines().filter_map(Row::parse).collect();
    let hours = rows.iter().map(|row| row.hours).fold(f64::MIN_POSITIVE, f64::max);
    let mut patterns: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.hours <= rows[0].hours + 1.0) {
        if !patterns.contains(&&*row.pattern) {
            patterns.push(&row.pattern);
        }
    }
    let (mut panels, mut table) = (String::new(), String::from("| |"));
    for (at, curve) in CURVES.iter().enumerate() {
        let x = LEFT + at as f64 * (PANEL.0 + MARGIN);
        _ = writeln!(panels, "<text x=\"{x}\" y=\"14\">{}</text>", curve.title);
        _ = write!(table, " {} |", curve.title);
    }
    _ = write!(table, "\n|---|{}\n", "--:|".repeat(CURVES.len()));
    for (line, pattern) in patterns.iter().enumerate() {
        let top = TOP + line as f64 * (PANEL.1 + MARGIN);
        let rows: Vec<&Row> = rows.iter().filter(|row| row.pattern == *pattern).collect();
        let name = pattern.to_lowercase();
        let y = top + PANEL.1 / 2.0;
        _ = writeln!(panels, "<text x=\"4\" y=\"{y}\">{name}</text>");
        _ = write!(table, "| {name} |");
        for (at, curve) in CURVES.iter().enumerate() {
            let left = LEFT + at as f64 * (PANEL.0 + MARGIN);
            panels.push_str(&curve.draw(&rows, hours, (left, top)));
            _ = write!(table, " {} |", curve.thirds(&rows));
        }
        table.push('\n');
    }
    std::fs::write(to, page(&panels, patterns.len(), hours))?;
    Ok(table)
}

/// Returns the drawing with `panels` of as many lines.
fn page(panels: &str, line_count: usize, hours: f64) -> String {
    let width = LEFT + CURVES.len() as f64 * (PANEL.0 + MARGIN);
    let height = TOP + line_count as f64 * (PANEL.1 + MARGIN) + MARGIN;
    let hours = short(hours);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         {panels}<text x=\"{LEFT}\" y=\"{}\">{hours} hours from left to right, each panel from 0 to its largest \
         value</text>\n</svg>\n",
        height - 6.0
    )
}
