//! The facts of the keys: where they came from, their lengths, what their bytes hold.

use super::chart::{Column, columns};
use super::number::{bytes, counted, fixed, grouped, percent, probability, significant};
use crate::document::{Block, Figure, Line, Table, cells, shown};
use crate::key_positions::bits_in_words;
use crate::study::{DistinctEstimate, Duplicates, KeyFacts, KeyPosition, LengthRow};

/// Bytes from the start of the keys that are drawn.
const POSITIONS_MAX: usize = 64;

/// Returns the facts, then the pictures.
pub(super) fn section(keys: &KeyFacts, positions: &[KeyPosition]) -> Vec<Block> {
    let mut blocks = vec![Block::Facts(list(keys))];
    if !keys.examples.is_empty() {
        let examples = keys.examples.iter().map(|key| Line::code(shown(key)));
        blocks.push(Block::List("The first keys", examples.collect()));
    }
    let lengths = (keys.lengths.len() > 1).then(|| lengths(keys));
    let entropy = (!positions.is_empty()).then(|| entropy(positions));
    blocks.push(Block::Figures(lengths.into_iter().chain(entropy).collect()));
    blocks
}

/// Says what the bytes of the keys hold: which need not reach the hash.
pub(super) fn held(positions: &[KeyPosition]) -> Block {
    let entropy: f64 = positions.iter().map(|at| at.entropy_bits).sum();
    let mut items = vec![format!(
        "{} looked at, with {entropy:.1} bits of entropy if they were independent",
        counted(positions.len() as u64, "byte")
    )];
    let constant = positions.iter().flat_map(|at| {
        (0..8).filter(|bit| at.constant_mask >> bit & 1 == 1).map(|bit| at.offset * 8 + bit)
    });
    let low = positions.iter().filter(|at| at.constant_mask != 0xff && at.entropy_bits < 1.0);
    let low = low.flat_map(|at| at.offset * 8..at.offset * 8 + 8);
    for (what, bits) in [
        ("the same in all keys", constant.collect::<Vec<u64>>()),
        ("less than one bit of entropy", low.collect()),
    ] {
        if !bits.is_empty() {
            items.push(format!("{what}: {}", bits_in_words(&bits)));
        }
    }
    Block::List("The bytes of the keys", items.into_iter().map(Line::from).collect())
}

fn list(keys: &KeyFacts) -> Vec<(&'static str, Line)> {
    let mut facts = vec![
        ("source", Line::code(shown(&keys.source))),
        ("keys", grouped(keys.key_count).into()),
        ("bytes", bytes(keys.key_bytes).into()),
    ];
    if !keys.format.is_empty() {
        facts.insert(1, ("format", shown(&keys.format).into()));
    }
    if let (Some(first), Some(last)) = (keys.lengths.first(), keys.lengths.last()) {
        let mean = keys.key_bytes as f64 / keys.key_count.max(1) as f64;
        let lengths = if first.bytes_min == last.bytes_max {
            format!("all {}", counted(first.bytes_min, "byte"))
        } else {
            let most = counted(last.bytes_max, "byte");
            format!("{} to {most}, mean {}", grouped(first.bytes_min), significant(mean))
        };
        facts.push(("length", lengths.into()));
    }
    facts.push(("duplicates", duplicates(keys).into()));
    if keys.blank_count > 0 {
        let lines = counted(keys.blank_count, "empty line");
        facts.push(("empty lines", format!("{lines}, left out").into()));
    }
    if keys.carriage_return_count > 0 {
        let keys = Line::strong(counted(keys.carriage_return_count, "key"));
        let where_it_is = " with a carriage return at the end, which was hashed with the rest";
        facts.push(("carriage returns", keys.then(where_it_is)));
    }
    if keys.nul_count > 0 {
        let keys = Line::strong(counted(keys.nul_count, "key"));
        facts.push(("NUL bytes", keys.then(" with a NUL byte, as no text has")));
    }
    facts
}

fn duplicates(keys: &KeyFacts) -> String {
    let count = keys.duplicate_count;
    if let Some(estimate) = keys.distinct_estimate {
        return estimated(keys.key_count, estimate);
    }
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

/// Says how many keys come again, or that an estimate cannot tell.
fn estimated(key_count: u64, estimate: DistinctEstimate) -> String {
    let again = 1.0 - estimate.key_count / key_count.max(1) as f64;
    // Three standard deviations.
    let within = 3.0 * estimate.deviation;
    if key_count == 0 {
        "none".to_string()
    } else if again > within {
        format!(
            "about {} of the keys come again, within {}, by an estimate; they count like other keys",
            percent(again),
            percent(within)
        )
    } else {
        format!("at most {} of the keys, by an estimate", percent(again.max(0.0) + within))
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
    let mut data = Table::new("Keys by length").numbers(["bytes", "keys", "share"]);
    for row in rows {
        let share = row.key_count as f64 / keys.key_count.max(1) as f64;
        data.push(cells![label(row), row.key_count, percent(share)]);
    }
    let column = |row: &LengthRow| Column {
        name: label(row),
        value: row.key_count as f64,
        title: format!("{} bytes: {}", label(row), counted(row.key_count, "key")),
    };
    let drawn: Vec<Column> = rows.iter().map(column).collect();
    let summary = commonest.map_or_else(String::new, |row| {
        format!("Most keys of one length: {} of {} bytes.", grouped(most), label(row))
    });
    let drawing = columns(&drawn, most as f64, None, ["length in bytes", "keys"]);
    let figure = Figure::new("lengths", "Keys by length", summary, drawing);
    Figure { data: Some(data), ..figure }
}

fn entropy(positions: &[KeyPosition]) -> Figure {
    let drawn = &positions[..positions.len().min(POSITIONS_MAX)];
    let constant = positions.iter().filter(|place| place.distinct_count <= 1).count();
    let bits: f64 = positions.iter().map(|place| place.entropy_bits).sum();
    let mut data = Table::new("Bytes of the keys by their place").numbers([
        "byte",
        "keys",
        "different",
        "entropy",
        "constant bits",
    ]);
    for place in positions {
        data.push(cells![
            place.offset,
            place.key_count,
            place.distinct_count,
            format!("{} bits", fixed(place.entropy_bits, 2)),
            format!("{:#04x}", place.constant_mask),
        ]);
    }
    let column = |place: &KeyPosition| {
        let bits = fixed(place.entropy_bits, 2);
        let different = counted(place.distinct_count, "different value");
        let title = format!("byte {}: {bits} bits, {different}", place.offset);
        Column { name: place.offset.to_string(), value: place.entropy_bits, title }
    };
    let bars: Vec<Column> = drawn.iter().map(column).collect();
    let heading = match constant {
        0 => "No place holds the same byte in all keys".to_string(),
        1 => "1 place holds the same byte in all keys that are so long".to_string(),
        _ => format!("{constant} places hold the same byte in all keys that are so long"),
    };
    let drawn = if positions.len() > drawn.len() {
        format!("; the first {} places are drawn", drawn.len())
    } else {
        String::new()
    };
    let summary = format!(
        "{heading}. The entropies add up to {} bits, at most what a key holds, since bytes may \
         depend on each other{drawn}.",
        fixed(bits, 1)
    );
    let titles = ["byte of the key, 0 the first", "entropy in bits, of 8"];
    let title = "Entropy of the bytes of the keys by their place";
    let figure = Figure::new("positions", title, summary, columns(&bars, 8.0, None, titles));
    Figure { data: Some(data), ..figure }
}
