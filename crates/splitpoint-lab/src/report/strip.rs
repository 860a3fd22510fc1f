//! The buckets in the order of their addresses, as a map: stripes are a structure of the keys that
//! the hash did not break.

use maud::{Markup, html};

use super::chart::{at, shaded, shades};
use super::number::{counted, expected, fixed, grouped};
use crate::document::Figure;
use crate::measure::Report;

/// Cells of a row of the map.
const COLUMNS: usize = 64;
/// Shades on each side of the mean.
const SHADES: i8 = 4;
/// Standard deviations of a cell for each shade beyond the first.
const STEP: f64 = 1.5;

/// Returns the picture, or `None` if the buckets were not kept in order.
pub(super) fn figure(id: &str, report: &Report) -> Option<Figure> {
    let strip = &report.strip;
    if strip.keys.len() < 2 || report.key_count == 0 {
        return None;
    }
    let (least, most) = (strip.keys.iter().min()?, strip.keys.iter().max()?);
    let cells = strip.keys.iter().zip(means(report));
    let cells: Vec<i8> = cells.map(|(&keys, mean)| shade(keys, mean)).collect();
    let deviant = cells.iter().filter(|&&shade| shade != 0).count();
    let mean = report.load_factor * strip.cell_buckets as f64;
    let summary = format!(
        "{} of {}, row after row from the first bucket: {} to {} keys each, ideal {}. {} \
             farther from it than 3 standard deviations, of which chance gives about {}. Stripes \
             are a structure of the keys that the hash keeps.",
        counted(strip.keys.len() as u64, "cell"),
        counted(strip.cell_buckets, "bucket"),
        grouped(*least),
        grouped(*most),
        expected(mean),
        counted(deviant as u64, "cell"),
        fixed(0.0027 * strip.keys.len() as f64, 1),
    );
    let title = "Keys over the table, bucket after bucket";
    let legend = shades([
        ("low", 4, "far too few keys"),
        ("low", 1, "too few"),
        ("even", 0, "as by chance"),
        ("high", 1, "too many"),
        ("high", 4, "far too many"),
    ]);
    let height = 40.0 + 12.0 * strip.keys.len().div_ceil(COLUMNS) as f64;
    let figure = Figure::new(format!("{id}-strip"), title, summary, drawing(&cells));
    Some(Figure { height, legend, ..figure })
}

/// Returns the keys that an ideal hash gives each cell.
///
/// Under linear hashing the buckets before the split pointer, and those that were divided off
/// them, are half as likely as the others.
fn means(report: &Report) -> Vec<f64> {
    let (m, n) = (report.bucket_count, report.key_count as f64);
    let base = 1_u64 << m.ilog2();
    let whole = if report.reduction == "split" { m - base..base } else { 0..m };
    let total = if report.reduction == "split" { 2 * base } else { 2 * m };
    let starts = (0..m).step_by(report.strip.cell_buckets.max(1) as usize);
    let mean = |start: u64| {
        let end = (start + report.strip.cell_buckets).min(m);
        let whole = end.min(whole.end).saturating_sub(start.max(whole.start));
        n * (end - start + whole) as f64 / total as f64
    };
    starts.map(mean).collect()
}

/// Returns 0 for what chance gives, within 3 standard deviations of Poisson, else 1 to 4 with the
/// sign of its side.
fn shade(keys: u64, mean: f64) -> i8 {
    let z = (keys as f64 - mean) / mean.sqrt().max(0.5);
    if z.abs() <= 3.0 {
        return 0;
    }
    let level = (1.0 + (z.abs() - 3.0) / STEP).min(f64::from(SHADES)) as i8;
    if z < 0.0 { -level } else { level }
}

fn drawing(cells: &[i8]) -> Markup {
    let rows = cells.len().div_ceil(COLUMNS);
    let width = 400.0 / cells.len().min(COLUMNS) as f64;
    html! {
        g.axis { text x="2" y="13" { "first bucket" } }
        g transform={ "translate(10 20)scale(" (at(width * 100.0)) " 1200)scale(.01)" } {
            @for (row, cells) in cells.chunks(COLUMNS).enumerate() {
                rect.even y=(row) width=(cells.len()) height="1" {}
            }
            (shaded(cells, COLUMNS))
        }
        g.axis { text.e x="410" y=(at(20.0 + 12.0 * rows as f64 + 13.0)) { "last bucket" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cells_that_chance_does_not_give_are_shaded() {
        for (keys, expected) in [(100, 0), (130, 0), (131, 1), (69, -1), (0, -4), (400, 4)] {
            assert_eq!(shade(keys, 100.0), expected, "{keys}");
        }
    }
}
