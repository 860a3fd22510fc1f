//! The facts of the keys: where they came from, their lengths, what their bytes hold.

use maud::{Markup, html};

use super::chart::{Axis, Figure, SIDES, at, frame};
use super::number::{bytes, counted, fixed, grouped, percent, probability, significant};
use super::plain::shown;
use super::scale::{Scale, Tick};
use super::table::{Table, facts};
use crate::study::{Duplicates, KeyFacts, KeyPosition, LengthRow};

/// Bytes from the start of the keys that are drawn.
const POSITIONS_MAX: usize = 64;

/// Returns the facts, then the pictures.
pub(super) fn section(keys: &KeyFacts, positions: &[KeyPosition]) -> Markup {
    html! {
        (facts(list(keys)))
        @if !keys.examples.is_empty() {
            p { "The first keys:" }
            ul.keys { @for key in &keys.examples { li { code { (shown(key)) } } } }
        }
        div.charts {
            @if keys.lengths.len() > 1 { (lengths(keys).render()) }
            @if !positions.is_empty() { (entropy(positions).render()) }
        }
    }
}

fn list(keys: &KeyFacts) -> Vec<(&'static str, Markup)> {
    let mut facts = vec![
        ("source", html! { code { (shown(&keys.source)) } }),
        ("keys", html! { (grouped(keys.key_count)) }),
        ("bytes", html! { (bytes(keys.key_bytes)) }),
    ];
    if !keys.format.is_empty() {
        facts.insert(1, ("format", html! { (shown(&keys.format)) }));
    }
    if let (Some(first), Some(last)) = (keys.lengths.first(), keys.lengths.last()) {
        let mean = keys.key_bytes as f64 / keys.key_count.max(1) as f64;
        let lengths = if first.bytes_min == last.bytes_max {
            format!("all {}", counted(first.bytes_min, "byte"))
        } else {
            let most = counted(last.bytes_max, "byte");
            format!("{} to {most}, mean {}", grouped(first.bytes_min), significant(mean))
        };
        facts.push(("length", html! { (lengths) }));
    }
    facts.push(("duplicates", html! { (duplicates(keys)) }));
    if keys.blank_count > 0 {
        let lines = counted(keys.blank_count, "empty line");
        facts.push(("empty lines", html! { (lines) ", left out" }));
    }
    if keys.carriage_return_count > 0 {
        facts.push((
            "carriage returns",
            html! {
                strong { (counted(keys.carriage_return_count, "key")) }
                " with a carriage return at the end, which was hashed with the rest"
            },
        ));
    }
    if keys.nul_count > 0 {
        let keys = counted(keys.nul_count, "key");
        facts.push(("NUL bytes", html! { strong { (keys) } " with a NUL byte, as no text has" }));
    }
    facts
}

fn duplicates(keys: &KeyFacts) -> String {
    let count = keys.duplicate_count;
    match keys.duplicates {
        Duplicates::Kept if count == 0 => "kept, if there are any".to_string(),
        Duplicates::Kept => format!("{}, counted like other keys", grouped(count)),
        Duplicates::Unchecked => {
            "not looked for; those there are count like other keys".to_string()
        }
        Duplicates::Removed => format!("{}, left out; compared exactly", grouped(count)),
        Duplicates::RemovedByFingerprint { wrong_p } => format!(
            "{}, left out; compared by 128 bits, wrong with a probability of at most {}",
            grouped(count),
            probability(wrong_p)
        ),
    }
}

fn lengths(keys: &KeyFacts) -> Figure {
    let rows = &keys.lengths;
    let most = rows.iter().map(|row| row.key_count).max().unwrap_or(1);
    let commonest = rows.iter().find(|row| row.key_count == most);
    let label = |row: &LengthRow| {
        if row.bytes_min == row.bytes_max {
            grouped(row.bytes_min)
        } else {
            format!("{}-{}", grouped(row.bytes_min), grouped(row.bytes_max))
        }
    };
    let mut data = Table::new("Keys by length").numbers("bytes").numbers("keys").numbers("share");
    for row in rows {
        let share = row.key_count as f64 / keys.key_count.max(1) as f64;
        data.push([label(row).into(), grouped(row.key_count).into(), percent(share).into()]);
    }
    let bars: Vec<(String, f64, String)> = rows
        .iter()
        .map(|row| {
            let title = format!("{} bytes: {}", label(row), counted(row.key_count, "key"));
            (label(row), row.key_count as f64, title)
        })
        .collect();
    Figure {
        id: "lengths".to_string(),
        title: "Keys by length".to_string(),
        summary: commonest.map_or_else(String::new, |row| {
            format!("Most keys of one length: {} of {} bytes.", grouped(most), label(row))
        }),
        height: 220.0,
        drawing: columns(&bars, most as f64, ["length in bytes", "keys"]),
        legend: html! {},
        data: Some(data.render()),
    }
}

fn entropy(positions: &[KeyPosition]) -> Figure {
    let drawn = &positions[..positions.len().min(POSITIONS_MAX)];
    let constant = positions.iter().filter(|place| place.distinct_count <= 1).count();
    let bits: f64 = positions.iter().map(|place| place.entropy_bits).sum();
    let mut data = Table::new("Bytes of the keys by their place")
        .numbers("byte")
        .numbers("keys")
        .numbers("different")
        .numbers("entropy")
        .numbers("constant bits");
    for place in positions {
        data.push([
            grouped(place.offset).into(),
            grouped(place.key_count).into(),
            grouped(place.distinct_count).into(),
            format!("{} bits", fixed(place.entropy_bits, 2)).into(),
            format!("{:#04x}", place.constant_mask).into(),
        ]);
    }
    let bars: Vec<(String, f64, String)> = drawn
        .iter()
        .map(|place| {
            let bits = fixed(place.entropy_bits, 2);
            let different = counted(place.distinct_count, "different value");
            let title = format!("byte {}: {bits} bits, {different}", place.offset);
            (place.offset.to_string(), place.entropy_bits, title)
        })
        .collect();
    let heading = match constant {
        0 => "No place holds the same byte in all keys".to_string(),
        1 => "1 place holds the same byte in all keys that are so long".to_string(),
        _ => format!("{constant} places hold the same byte in all keys that are so long"),
    };
    Figure {
        id: "positions".to_string(),
        title: "Entropy of the bytes of the keys by their place".to_string(),
        summary: format!(
            "{heading}. The entropies add up to {} bits, at most what a key holds, since bytes may \
             depend on each other{}.",
            fixed(bits, 1),
            if positions.len() > drawn.len() {
                format!("; the first {} places are drawn", drawn.len())
            } else {
                String::new()
            }
        ),
        height: 220.0,
        drawing: columns(&bars, 8.0, ["byte of the key, 0 the first", "entropy in bits, of 8"]),
        legend: html! {},
        data: Some(data.render()),
    }
}

/// Draws columns side by side, each with its name and what to say of it; some names are left out.
pub(super) fn columns(
    bars: &[(String, f64, String)],
    most: f64,
    [x_title, y_title]: [&str; 2],
) -> Markup {
    let [left, right] = SIDES;
    let step = (right - left) / bars.len().max(1) as f64;
    let middle = |index: usize| left + step * (index as f64 + 0.5);
    let longest = bars.iter().map(|(name, ..)| name.len()).max().unwrap_or(1) as f64;
    let apart = ((longest * 6.6 + 6.0) / step).ceil().max(1.0) as usize;
    let names = bars.iter().enumerate().step_by(apart);
    let x = Axis {
        scale: Scale::linear([0.0, 1.0], SIDES),
        ticks: names.map(|(i, (name, ..))| Tick { at: middle(i), label: name.clone() }).collect(),
        title: x_title,
    };
    let y = Axis::new(Scale::linear([0.0, most], [174.0, 24.0]), 4, y_title);
    let width = (step * 0.72).clamp(1.0, 36.0);
    html! {
        (frame(&x, &y))
        @for (index, (_, value, title)) in bars.iter().enumerate() {
            @let top = y.scale.at(*value);
            rect.measured x=(at(middle(index) - width / 2.0)) y=(at(top)) width=(at(width))
                height=(at(174.0 - top)) { title { (title) } }
        }
    }
}
