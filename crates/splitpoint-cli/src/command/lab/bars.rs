//! Measured against ideal as bars of letters, with the band in which chance alone would leave them.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use splitpoint_lab::Report;
use splitpoint_lab::report::SizeClass;

use crate::number::{grouped, grouped_tenths};

const MEASURED: Style = AnsiColor::Cyan.on_default();
const IDEAL: Style = AnsiColor::Yellow.on_default();
const OUTSIDE: Style = AnsiColor::Red.on_default().bold();

/// Standard deviations of the band.
const BAND: f64 = 2.0;
/// Columns that the numbers take, and the fewest and the most that are left to the bars.
const NUMBERS: usize = 46;
const BAR_MIN: usize = 20;
const BAR_MAX: usize = 100;

/// Returns the columns of the terminal, or 80 where there is none.
pub(super) fn terminal_columns() -> usize {
    terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0))
}

/// Returns one line for each class of sizes, of at most `columns` columns, but never under 66.
pub(super) fn text(report: &Report, columns: usize) -> String {
    let classes = SizeClass::of(report);
    let width = columns.saturating_sub(NUMBERS).clamp(BAR_MIN, BAR_MAX);
    let most = |class: &SizeClass| {
        (class.bucket_count as f64).max(class.ideal + BAND * class.deviation).max(1.0)
    };
    let scale = classes.iter().map(most).fold(1.0, f64::max) / (width - 1) as f64;
    let mut out = format!(
        "{:>11}{:>12}{:>13}{:>8}  {}#{:#} measured {}|{:#} ideal\n",
        "size", "buckets", "ideal", "sd", MEASURED, MEASURED, IDEAL, IDEAL
    );
    for class in &classes {
        let _ = writeln!(
            out,
            "{:>11}{:>12}{:>13}{}  {}",
            class.label(),
            grouped(class.bucket_count),
            grouped_tenths(class.ideal),
            distance(class.z()),
            bar(*class, scale, width)
        );
    }
    let outside = classes.iter().filter(|class| class.z().abs() > BAND).count();
    let _ = writeln!(
        out,
        "( ) 2 standard deviations (sd) of the ideal; {outside} of {} outside, by chance 1 in 20",
        classes.len()
    );
    out
}

/// Returns the distance in standard deviations, 8 wide, with a mark if it is outside the band.
fn distance(z: f64) -> String {
    let number = if z.abs() < 999.95 { format!("{z:+.1}") } else { format!("{z:+.0e}") };
    if z.abs() > BAND {
        format!("{:>width$}{OUTSIDE}!{number}{OUTSIDE:#}", "", width = 7 - number.len())
    } else {
        format!("{number:>8}")
    }
}

/// Draws the measured as `#`, the ideal as `|` and the ends of its band as parentheses, which
/// are left out where they would be in the ideal's column.
fn bar(class: SizeClass, scale: f64, width: usize) -> String {
    let column = |value: f64| ((value / scale).round().max(0.0) as usize).min(width - 1);
    let mut letters = vec![' '; width];
    let mut end = column(class.bucket_count as f64);
    if class.bucket_count > 0 {
        // The smallest number is not none.
        end = end.max(1);
    }
    letters[..end].fill('#');
    let ideal = column(class.ideal);
    let away = BAND * class.deviation;
    for (place, letter) in [(column(class.ideal - away), '('), (column(class.ideal + away), ')')] {
        if place != ideal {
            letters[place] = letter;
        }
    }
    if ideal > 0 {
        letters[ideal] = '|';
    }
    let line: String = letters.into_iter().collect();
    styled(line.trim_end())
}

fn styled(line: &str) -> String {
    let mut out = String::new();
    for run in line.as_bytes().chunk_by(|one, other| (*one == b'#') == (*other == b'#')) {
        let style = if run[0] == b'#' { MEASURED } else { IDEAL };
        let text = String::from_utf8_lossy(run);
        if text.trim().is_empty() {
            out.push_str(&text);
        } else {
            let _ = write!(out, "{style}{text}{style:#}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    fn class(bucket_count: u64, ideal: f64, deviation: f64) -> SizeClass {
        SizeClass { size_min: 1, size_max: 1, bucket_count, ideal, deviation }
    }

    #[test]
    fn bars_show_the_measured_the_ideal_and_its_band() {
        for (class, expected) in [
            (class(10, 10.0, 1.0), "########(#| )"),
            (class(10, 10.0, 0.1), "##########|"),
            (class(5, 12.0, 1.5), "#####    (  |  )"),
            (class(15, 8.0, 1.5), "#####(##|##)###"),
            (class(0, 6.0, 1.0), "    ( | )"),
            (class(0, 0.1, 0.1), ""),
            (class(1, 0.1, 0.1), "#"),
        ] {
            assert_eq!(plain(&bar(class, 1.0, 20)), expected, "{class:?}");
        }
    }

    #[test]
    fn a_distance_outside_the_band_is_marked() {
        assert_eq!(plain(&distance(1.26)), "    +1.3");
        assert_eq!(plain(&distance(-2.04)), "   !-2.0");
        assert_eq!(plain(&distance(123_456.0)), "   !+1e5");
    }
}
