//! Avalanche: what a flipped bit of a key does to each bit of the hash, as a map.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::chart::{Axis, Figure, frame};
use super::number::{counted, fixed, grouped, percent, probability};
use super::scale::{Scale, Tick};
use super::table::{Cell, Table};
use crate::study::Avalanche;

/// Rows of the map; of longer keys, several bits share a row, which shows the worst of them.
const ROWS_MAX: usize = 192;
/// Shades on each side of a half.
const SHADES: u8 = 4;
/// Deviations from a half that are not drawn: with few samples, chance reaches this far.
const SIGMAS_HIDDEN: f64 = 3.0;

/// Returns the picture of one function.
pub(super) fn figure(id: &str, avalanche: &Avalanche) -> Figure {
    Figure {
        id: id.to_string(),
        title: format!("{}: flips of hash bits by flipped bits of the key", avalanche.hash),
        summary: in_words(avalanche),
        height: 330.0,
        drawing: drawing(avalanche),
        legend: shades_legend(),
        data: Some(data(avalanche).render()),
    }
}

fn in_words(avalanche: &Avalanche) -> String {
    let mut text = format!(
        "Bits of {} were flipped, synthetic neighbors of real keys. {} of the bits of the hash \
         followed; a half is ideal.",
        counted(avalanche.sample_count, "key"),
        percent(avalanche.mean_rate),
    );
    if let Some(worst) = avalanche.worst {
        let _ = write!(
            text,
            " Worst: bit {} of byte {} flips bit {} of the hash in {} of tries (99 % interval {} \
             to {}); probability of a worst as bad with an ideal hash {}.",
            worst.key_bit % 8,
            worst.key_bit / 8,
            worst.hash_bit,
            percent(worst.rate),
            percent(worst.interval[0]),
            percent(worst.interval[1]),
            probability(avalanche.worst_p),
        );
    }
    if let Some(neighbors) = avalanche.neighbors {
        let _ = write!(
            text,
            " Keys that are neighbors in sorted order differ in {} bits of the hash on average, \
             ideal {} ({} pairs, {} standard deviations).",
            fixed(neighbors.mean_bits, 2),
            fixed(neighbors.mean_bits_ideal, 1),
            grouped(neighbors.pair_count),
            fixed(neighbors.z, 1),
        );
    }
    text
}

/// Rows of the map, each of `apart` bits of the key.
fn folded(avalanche: &Avalanche) -> (Vec<Vec<i8>>, usize) {
    let apart = avalanche.flip_rates.len().div_ceil(ROWS_MAX).max(1);
    let rows = avalanche.flip_rates.chunks(apart).enumerate().map(|(row, bits)| {
        let shade_of = |column: usize| {
            let shades = bits.iter().enumerate().filter_map(|(index, rates)| {
                let count = avalanche.key_counts.get(row * apart + index).copied();
                Some(shade(*rates.get(column)?, count.unwrap_or(avalanche.sample_count)))
            });
            shades.max_by_key(|shade| shade.unsigned_abs()).unwrap_or(0)
        };
        (0..avalanche.width_bits as usize).map(shade_of).collect()
    });
    (rows.collect(), apart)
}

/// Returns the shade of a rate: 0 for what chance gives, else 1 to 4 with the sign of its side.
fn shade(rate: f64, key_count: u64) -> i8 {
    let away = rate - 0.5;
    let chance = SIGMAS_HIDDEN * 0.5 / (key_count.max(1) as f64).sqrt();
    if away.abs() <= chance {
        return 0;
    }
    let shade = (away.abs() / 0.5 * f64::from(SHADES)).ceil().clamp(1.0, f64::from(SHADES)) as i8;
    if away < 0.0 { -shade } else { shade }
}

fn drawing(avalanche: &Avalanche) -> Markup {
    let (rows, apart) = folded(avalanche);
    let (columns, key_bits) = (avalanche.width_bits as usize, avalanche.flip_rates.len());
    let (sides, ends) = ([46.0, 410.0], [24.0, 284.0]);
    let x = bit_axis(columns, sides, 8, "bit of the hash, 0 the lowest");
    let y = byte_axis(key_bits, ends);
    let cell = [
        (sides[1] - sides[0]) / columns.max(1) as f64,
        (ends[1] - ends[0]) / rows.len().max(1) as f64,
    ];
    let scaled = format!("translate({} {})scale({:.4} {:.4})", sides[0], ends[0], cell[0], cell[1]);
    debug_assert!(rows.len() * apart >= key_bits);
    html! {
        (frame(&x, &y))
        g transform=(scaled) {
            rect.even width=(columns) height=(rows.len()) {}
            @for level in 1..=SHADES.cast_signed() {
                @for (side, sign) in [("low", -1), ("high", 1)] {
                    @let path = runs(&rows, level * sign);
                    @if !path.is_empty() { path class={ (side) " d" (level) } d=(path) {} }
                }
            }
        }
    }
}

/// Returns the cells of one shade as strokes along the rows, one unit high.
fn runs(rows: &[Vec<i8>], shade: i8) -> String {
    let mut path = String::new();
    for (row, cells) in rows.iter().enumerate() {
        push_runs(&mut path, row, cells, shade);
    }
    path
}

/// Returns the same of cells that are broken into rows of so many columns.
pub(super) fn runs_of(cells: &[i8], columns: usize, shade: i8) -> String {
    let mut path = String::new();
    for (row, cells) in cells.chunks(columns).enumerate() {
        push_runs(&mut path, row, cells, shade);
    }
    path
}

fn push_runs(path: &mut String, row: usize, cells: &[i8], shade: i8) {
    let mut column = 0;
    for run in cells.chunk_by(|one, other| one == other) {
        if run[0] == shade {
            let _ = write!(path, "M{column} {row}h{}v1H{column}Z", run.len());
        }
        column += run.len();
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

fn shades_legend() -> Markup {
    html! {
        ul.legend {
            @for (side, level, name) in [
                ("low", 4, "never flips"),
                ("low", 2, "seldom"),
                ("even", 0, "as by chance"),
                ("high", 2, "often"),
                ("high", 4, "always flips"),
            ] {
                li {
                    svg.mark viewBox="0 0 22 10" aria-hidden="true" {
                        rect class={ (side) " d" (level) } x="4" y="0" width="14" height="10" {}
                    }
                    (name)
                }
            }
        }
    }
}

fn data(avalanche: &Avalanche) -> Table {
    let mut table =
        Table::new("Flip rates by byte of the key, over its bits and those of the hash")
            .numbers("byte")
            .numbers("keys")
            .numbers("mean")
            .numbers("lowest")
            .numbers("highest");
    for (byte, rows) in avalanche.flip_rates.chunks(8).enumerate() {
        let rates = || rows.iter().flatten().copied();
        let count = rates().count().max(1) as f64;
        let keys = avalanche.key_counts.get(8 * byte).copied().unwrap_or_default();
        table.push([
            Cell::from(byte.to_string()),
            grouped(keys).into(),
            percent(rates().sum::<f64>() / count).into(),
            percent(rates().fold(1.0, f64::min)).into(),
            percent(rates().fold(0.0, f64::max)).into(),
        ]);
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
        ] {
            assert_eq!(shade(rate, key_count), expected, "{rate} of {key_count}");
        }
    }

    #[test]
    fn equal_cells_are_one_stroke() {
        let rows = [vec![0, 4, 4, 4, 0], vec![4, 0, 0, 0, 4]];
        assert_eq!(runs(&rows, 4), "M1 0h3v1H1ZM0 1h1v1H0ZM4 1h1v1H4Z");
        assert_eq!(runs(&rows, -4), "");
    }
}
