//! Avalanche: what a flipped bit of a key does to each bit of the hash, as a map.

use maud::{Markup, html};

use super::chart::{Axis, frame, shaded, shades};
use super::keys;
use super::number::{counted, percent};
use super::scale::{Scale, Tick};
use crate::document::{Block, Figure, Letters, Line, Table, cells};
use crate::study::{Avalanche, Study};

/// Rows of the map; of longer keys, several bits share a row, which shows the worst of them.
const ROWS_MAX: usize = 192;
/// Deviations that chance explains, in standard deviations: of ten thousand entries, none is
/// further.
const QUIET_Z: f64 = 4.5;
/// Rows that a map of letters has at most if each is a bit of the key; else each is a byte.
const BIT_ROWS_MAX: usize = 64;
/// Letters for what chance gives and for each shade.
const LETTERS: [char; 5] = [' ', '.', '+', '#', '@'];

/// Returns what the keys hold, and each function's picture with what it says.
pub(super) fn section(study: &Study) -> Vec<Block> {
    let mut blocks = vec![keys::held(&study.key_positions)];
    let figures = study.avalanches.iter().enumerate();
    blocks.push(Block::Figures(figures.map(|(index, one)| figure(index, one)).collect()));
    for avalanche in &study.avalanches {
        let words = avalanche.in_words();
        blocks.push(Block::Prose(Line::strong(avalanche.hash.as_str()).then(":")));
        blocks.push(Block::List("", words.iter().map(|words| Line::sentence(words)).collect()));
    }
    blocks
}

fn figure(index: usize, avalanche: &Avalanche) -> Figure {
    let title = format!(
        "{} (seed {}): flips of hash bits by flipped bits of the key",
        avalanche.hash, avalanche.seed
    );
    let summary = format!(
        "Bits of {} were flipped, synthetic neighbors of real keys. {} of the bits of the hash \
         followed; a half is ideal.",
        counted(avalanche.sample_count, "key"),
        percent(avalanche.mean_rate),
    );
    let legend = shades([
        ("low", 4, "never flips"),
        ("low", 2, "seldom"),
        ("even", 0, "as by chance"),
        ("high", 2, "often"),
        ("high", 4, "always flips"),
    ]);
    let (data, letters) = (Some(data(avalanche)), Letters::Lines(map(avalanche)));
    let figure = Figure::new(format!("avalanche-{index}"), title, summary, drawing(avalanche));
    Figure { height: 330.0, legend, data, letters, ..figure }
}

/// Returns a row for each bit or byte of the key, with a letter for each bit of the hash.
fn map(avalanche: &Avalanche) -> Vec<String> {
    let apart = if avalanche.flip_rates.len() <= BIT_ROWS_MAX { 1 } else { 8 };
    let width = avalanche.width_bits as usize;
    let mut lines = vec![format!("{:<11} 0{:>2$}", "bit of hash", width - 1, width - 1)];
    for (row, shades) in folded(avalanche, apart).chunks(width).enumerate() {
        let label = match apart {
            1 => format!("byte {}.{}", row / 8, row % 8),
            _ => format!("byte {row}"),
        };
        let letter = |shade: &i8| LETTERS[usize::from(shade.unsigned_abs())];
        lines.push(format!("{label:<11} {}|", shades.iter().map(letter).collect::<String>()));
    }
    let key = "blank: as by chance; . + # further from a half; @ always or never flips";
    lines.push(key.to_string());
    lines
}

/// Rows of the map, each of `apart` bits of the key.
fn folded(avalanche: &Avalanche, apart: usize) -> Vec<i8> {
    let rows = avalanche.flip_rates.chunks(apart).enumerate().flat_map(|(row, bits)| {
        let shade_of = move |column: usize| {
            let shades = bits.iter().enumerate().filter_map(|(index, rates)| {
                let count = avalanche.key_counts.get(row * apart + index).copied();
                Some(shade(*rates.get(column)?, count.unwrap_or(avalanche.sample_count)))
            });
            shades.max_by_key(|shade| shade.unsigned_abs()).unwrap_or(0)
        };
        (0..avalanche.width_bits as usize).map(shade_of)
    });
    rows.collect()
}

/// Returns the shade of a rate: 0 for what chance gives, else 1 to 4 with the sign of its side.
fn shade(rate: f64, key_count: u64) -> i8 {
    let away = rate - 0.5;
    let chance = QUIET_Z * 0.5 / (key_count.max(1) as f64).sqrt();
    if away.abs() <= chance {
        return 0;
    }
    // The last shade is for what never varies.
    let shade = if away.abs() < 0.5 { 1 + (away.abs() / 0.5 * 3.0) as i8 } else { 4 };
    if away < 0.0 { -shade } else { shade }
}

fn drawing(avalanche: &Avalanche) -> Markup {
    let cells = folded(avalanche, avalanche.flip_rates.len().div_ceil(ROWS_MAX).max(1));
    let (columns, key_bits) = (avalanche.width_bits as usize, avalanche.flip_rates.len());
    let rows = cells.len() / columns.max(1);
    let (sides, ends) = ([46.0, 410.0], [24.0, 284.0]);
    let x = bit_axis(columns, sides, 8, "bit of the hash, 0 the lowest");
    let y = byte_axis(key_bits, ends);
    let cell =
        [(sides[1] - sides[0]) / columns.max(1) as f64, (ends[1] - ends[0]) / rows.max(1) as f64];
    let scaled = format!("translate({} {})scale({:.4} {:.4})", sides[0], ends[0], cell[0], cell[1]);
    html! {
        (frame(&x, &y))
        g transform=(scaled) {
            rect.even width=(columns) height=(rows) {}
            (shaded(&cells, columns))
        }
    }
}

fn bit_axis(bits: usize, ends: [f64; 2], apart: usize, title: &str) -> Axis<'_> {
    let scale = Scale::linear([0.0, bits.max(1) as f64], ends);
    let ticks = (0..bits).step_by(apart);
    let ticks =
        ticks.map(|bit| Tick { at: scale.at(bit as f64 + 0.5), label: bit.to_string() }).collect();
    Axis { scale, ticks, title }
}

/// From the top down, since keys are read so; named by bytes.
fn byte_axis<'a>(bits: usize, [top, bottom]: [f64; 2]) -> Axis<'a> {
    let down = Scale::linear([0.0, bits.max(1) as f64], [top, bottom]);
    let apart = bits.div_ceil(8).div_ceil(13).max(1);
    let bytes = (0..bits.div_ceil(8)).step_by(apart);
    let ticks = bytes
        .map(|byte| Tick { at: down.at(byte as f64 * 8.0), label: byte.to_string() })
        .collect();
    let scale = Scale::linear([0.0, 1.0], [bottom, top]);
    Axis { scale, ticks, title: "byte of the key, each with its lowest bit on top" }
}

fn data(avalanche: &Avalanche) -> Table {
    let mut table =
        Table::new("Flip rates by byte of the key, over its bits and those of the hash")
            .numbers(["byte", "keys", "mean", "lowest", "highest"]);
    for (byte, rows) in avalanche.flip_rates.chunks(8).enumerate() {
        let rates = || rows.iter().flatten().copied();
        let count = rates().count().max(1) as f64;
        let keys = avalanche.key_counts.get(8 * byte).copied().unwrap_or_default();
        let [mean, lowest, highest] = [
            rates().sum::<f64>() / count,
            rates().fold(1.0, f64::min),
            rates().fold(0.0, f64::max),
        ]
        .map(percent);
        table.push(cells![byte.to_string(), keys, mean, lowest, highest]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_chance_does_not_give_is_shaded() {
        for (rate, key_count, expected) in [
            (0.5, 100, 0),
            (0.6, 100, 0),
            (0.6, 10_000, 1),
            (0.0, 100, -4),
            (1.0, 100, 4),
            (0.3, 10_000, -2),
            // Of 16 coins, all may be heads.
            (1.0, 16, 0),
            (1.0, 32, 4),
            (0.0, 0, 0),
        ] {
            assert_eq!(shade(rate, key_count), expected, "{rate} of {key_count}");
        }
    }
}
