//! The sizes of the buckets as bars beside the ideal, and how far they are from it.

use maud::{Markup, html};

use super::chart::{Axis, SIDES, at, frame, legend};
use super::number::{counted, expected, fixed, grouped, significant};
use super::scale::{Scale, Tick};
use super::sizes::SizeClass;
use crate::document::{Bar, Cell, Figure, Letters, Line, Table, cells};
use crate::measure::Report;

/// Standard deviations of the band.
const BAND: f64 = 2.0;
/// Standard deviations beyond which a deviation is cut off.
const Z_SHOWN: f64 = 6.0;

/// Returns the picture of the sizes of the buckets.
pub(super) fn figure(id: &str, report: &Report) -> Figure {
    let title = "Buckets by the number of their keys, beside the ideal";
    figure_of(format!("{id}-sizes"), title, "key", &SizeClass::of(report))
}

/// Returns the same picture of a table of other things than keys, by their name in the singular.
pub(super) fn figure_of(id: String, title: &str, noun: &str, classes: &[SizeClass]) -> Figure {
    let legend = legend([
        (html! { rect.measured x="3" y="1" width="16" height="8" {} }, "measured"),
        (html! { path.ideal d="M3 5H19" {} }, "ideal"),
        (html! { rect.band x="3" y="1" width="16" height="8" {} }, "2 standard deviations"),
        (html! { path.out d="M11 0L15.5 5L11 10L6.5 5Z" {} }, "beyond them"),
    ]);
    let (data, letters) = (Some(data(title, noun, classes)), Letters::Data);
    let figure = Figure::new(id, title, in_words(noun, classes), drawing(noun, classes));
    Figure { height: 352.0, legend, data, letters, ..figure }
}

fn in_words(noun: &str, classes: &[SizeClass]) -> String {
    let outside = classes.iter().filter(|class| class.z().abs() > BAND).count();
    let worst = classes.iter().max_by(|one, other| one.z().abs().total_cmp(&other.z().abs()));
    let Some(worst) = worst else { return "There are no buckets.".to_string() };
    let heading = match outside {
        0 if classes.len() == 1 => "The only class of sizes is within the band.".to_string(),
        0 => format!("All {} classes of sizes are within the band.", classes.len()),
        1 => format!("1 of {} classes of sizes is outside the band.", classes.len()),
        _ => format!("{outside} of {} classes of sizes are outside the band.", classes.len()),
    };
    format!(
        "{heading} Farthest: buckets of {}, {} where {} are ideal ({} standard deviations). \
         Chance alone puts about 1 in 20 outside.",
        worst.in_words(noun),
        grouped(worst.bucket_count),
        expected(worst.ideal),
        signed(worst.z()),
    )
}

fn signed(z: f64) -> String {
    let size = if z.abs() < 100.0 { fixed(z.abs(), 1) } else { significant(z.abs()) };
    format!("{}{size}", if z < 0.0 { "-" } else { "+" })
}

fn drawing(noun: &str, classes: &[SizeClass]) -> Markup {
    let [left, right] = SIDES;
    let step = (right - left) / classes.len().max(1) as f64;
    let middle = |index: usize| left + step * (index as f64 + 0.5);
    let x_title = format!("{noun}s in the bucket");
    let x = Axis {
        scale: Scale::linear([0.0, classes.len() as f64], SIDES),
        ticks: labels(classes, step, middle),
        title: &x_title,
    };
    let most = classes
        .iter()
        .map(|class| (class.bucket_count as f64).max(class.ideal + BAND * class.deviation))
        .fold(1.0, f64::max);
    let y = Axis::new(Scale::linear([0.0, most], [200.0, 24.0]), 4, "buckets");
    let z = Axis {
        scale: Scale::linear([-Z_SHOWN, Z_SHOWN], [346.0, 262.0]),
        ticks: Vec::new(),
        title: "",
    };
    let width = (step * 0.62).clamp(2.0, 40.0);
    html! {
        (frame(&x, &y))
        @for (index, class) in classes.iter().enumerate() {
            (bar(*class, noun, middle(index), width, y.scale))
        }
        (deviations(classes, middle, z.scale))
    }
}

/// Labels of ranges are long, so it omits some where they would touch.
fn labels(classes: &[SizeClass], step: f64, middle: impl Fn(usize) -> f64) -> Vec<Tick> {
    let mut ticks = Vec::new();
    let mut free_from = f64::MIN;
    for (index, class) in classes.iter().enumerate() {
        let (label, at) = (class.label(), middle(index));
        let half = 3.4 * label.len() as f64;
        if at - half >= free_from || step > 2.0 * half {
            free_from = at + half + 4.0;
            ticks.push(Tick { at, label });
        }
    }
    ticks
}

fn bar(class: SizeClass, noun: &str, middle: f64, width: f64, y: Scale) -> Markup {
    let [bottom, _] = y.ends();
    let (left, right) = (middle - width / 2.0, middle + width / 2.0);
    let top = y.at(class.bucket_count as f64);
    let ideal = y.at(class.ideal);
    let band = [BAND, -BAND].map(|away| y.at(class.ideal + away * class.deviation));
    let [band_left, band_right] = [left - 2.0, right + 2.0];
    html! {
        g {
            title {
                (class.in_words(noun)) ": " (counted(class.bucket_count, "bucket")) ", ideal "
                (expected(class.ideal)) " +- " (expected(class.deviation))
            }
            rect.measured x=(at(left)) y=(at(top)) width=(at(width)) height=(at(bottom - top)) {}
            rect.band x=(at(band_left)) y=(at(band[0])) width=(at(band_right - band_left))
                height=(at(band[1] - band[0])) {}
            path.ideal d={ "M" (at(band_left)) " " (at(ideal)) "H" (at(band_right)) } {}
        }
    }
}

fn deviations(classes: &[SizeClass], middle: impl Fn(usize) -> f64, z: Scale) -> Markup {
    let [left, right] = SIDES;
    let [high, zero, low] = [BAND, 0.0, -BAND].map(|value| z.at(value));
    html! {
        g.axis {
            text x="2" y=(at(z.at(Z_SHOWN) - 9.0)) { "distance from the ideal in standard deviations" }
            rect.band x=(at(left)) y=(at(high)) width=(at(right - left)) height=(at(low - high)) {}
            line.base x1=(at(left)) x2=(at(right)) y1=(at(zero)) y2=(at(zero)) {}
            @for (value, label) in [(BAND, "+2"), (0.0, "0"), (-BAND, "-2")] {
                text.e x=(at(left - 5.0)) y=(at(z.at(value) + 3.5)) { (label) }
            }
        }
        @for (index, class) in classes.iter().enumerate() {
            (deviation(class.z(), middle(index), z))
        }
    }
}

/// A dot inside the band, a diamond outside, a triangle where it would leave the picture.
fn deviation(value: f64, x: f64, z: Scale) -> Markup {
    let (zero, y) = (z.at(0.0), z.at(value));
    let stem = format!("M{} {}V{}", at(x), at(zero), at(y));
    let mark = if value.abs() > Z_SHOWN {
        let back = if value > 0.0 { 7.0 } else { -7.0 };
        format!("M{0} {1}L{2} {3}H{4}Z", at(x), at(y), at(x + 4.5), at(y + back), at(x - 4.5))
    } else {
        format!("M{0} {1}l4.5 5l-4.5 5l-4.5 -5Z", at(x), at(y - 5.0))
    };
    html! {
        path.stem d=(stem) {}
        @if value.abs() > BAND { path.out d=(mark) {} }
        @else { circle.in cx=(at(x)) cy=(at(y)) r="3" {} }
    }
}

fn data(title: &str, noun: &str, classes: &[SizeClass]) -> Table {
    let mut table = Table::new(title)
        .numbers(["size", "buckets"])
        .numbers([format!("{noun}s")])
        .numbers(["sum-pct", "ideal", "deviation"])
        .wide()
        .numbers(["sd"]);
    for class in classes {
        let distance = match signed(class.z()) {
            number if class.z().abs() > BAND => Line::alarm(number),
            number => number.into(),
        };
        let (measured, ideal) = (class.bucket_count as f64, class.ideal);
        let band = [-BAND, BAND].map(|away| ideal + away * class.deviation);
        table.push_bar(
            cells![
                class.label(),
                class.bucket_count,
                class.key_count,
                fixed(class.cumulative_percent, 2),
                expected(ideal),
                significant(class.deviation),
                Cell::ordered(class.z(), distance),
            ],
            Bar { measured, ideal, band: Some(band) },
        );
    }
    table
}
