//! `splitpoint lab avalanche`: what a flipped bit of a key does to its hash.

use std::fmt::Write as _;

use splitpoint_lab::avalanche::SAMPLE_KEYS;
use splitpoint_lab::key_positions::bits_in_words;
use splitpoint_lab::study::{Avalanche, KeyPosition, Neighbors};
use splitpoint_lab::{KeyPositions, KeySample, Study};

use super::list::by_name;
use super::measuring::Measuring;
use super::saving::{self, Output};
use crate::console::Console;
use crate::failure::Result;
use crate::number::counted;

/// Flip the bits of your keys and see which bits of the hash follow
///
/// Every bit of a sample of the keys is flipped, one at a time: half of the bits of an ideal hash
/// follow, each as likely as the others. Keys next to each other in sorted order, which differ
/// in little, should have hashes that differ as much. What the bytes of the keys hold is told
/// as well: bits that are the same in all of them need not reach the hash.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab avalanche /usr/share/dict/words --hash fnv1a-32
  splitpoint lab avalanche ids --keys u64 --hash rustc-hash --hash xxh3-64
  splitpoint lab avalanche words.spt --keys store --hash sdbm --html map.html")]
pub(super) struct Args {
    #[command(flatten)]
    measuring: Measuring,

    /// The hash function; several are told one after another
    #[arg(long, value_name = "NAME", required = true)]
    hash: Vec<String>,

    /// Keys that are flipped
    #[arg(long, value_name = "N", default_value_t = SAMPLE_KEYS as u64,
        value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    sample: u64,

    #[command(flatten)]
    output: Output,
}

/// Flips.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let specimens = args.hash.iter().map(|name| by_name(name)).collect::<Result<Vec<_>>>()?;
    let session = args.measuring.keys.begin(&args.output, console)?;
    let sample_count = usize::try_from(args.sample).unwrap_or(SAMPLE_KEYS);
    let (mut positions, mut sample) = (KeyPositions::default(), KeySample::new(sample_count));
    session.for_each(&args.measuring.keys, |key| {
        positions.add(key);
        sample.add(key);
        true
    })?;
    let keys = session.keys();
    // Keys that do not fit into memory are not sorted: they get no neighbors.
    let mut sorted: Vec<&[u8]> = keys.held().map_or_else(Vec::new, |keys| keys.iter().collect());
    sorted.sort_unstable();
    let mut study = saving::study(keys.facts().clone());
    study.key_positions = positions.finish();
    let seed = args.measuring.seed();
    for specimen in specimens {
        let mut avalanche = Avalanche::new(specimen, seed, &sample);
        avalanche.neighbors = Neighbors::new(specimen, seed, sorted.iter().copied());
        study.avalanches.push(avalanche);
    }
    args.output.deliver(&study, console, in_words)
}

fn in_words(study: &Study) -> String {
    let facts = &study.keys;
    let mut out = format!("{}: {}\n", facts.source, counted(facts.key_count, "key"));
    push_positions(&study.key_positions, &mut out);
    for avalanche in &study.avalanches {
        let Avalanche { hash, seed, sample_count, mean_rate, .. } = avalanche;
        let _ = writeln!(
            out,
            "\n{hash} (seed {seed}): {} flipped bit by bit\n{:.2} % of the hash's bits follow, \
             50 % are ideal",
            counted(*sample_count, "key"),
            100.0 * mean_rate
        );
        push_map(avalanche, &mut out);
        for sentence in avalanche.in_words() {
            push_wrapped(&sentence, &mut out);
        }
    }
    out
}

/// Appends a sentence in lines of 80 columns, the first with a dash.
pub(super) fn push_wrapped(sentence: &str, out: &mut String) {
    const COLUMNS: usize = 80;
    let mut column = 1;
    out.push('-');
    for word in sentence.split_whitespace() {
        if column + 1 + word.len() > COLUMNS {
            out.push_str("\n ");
            column = 1;
        }
        let _ = write!(out, " {word}");
        column += 1 + word.len();
    }
    out.push('\n');
}

fn push_positions(positions: &[KeyPosition], out: &mut String) {
    let entropy: f64 = positions.iter().map(|at| at.entropy_bits).sum();
    let constant: Vec<u64> = positions
        .iter()
        .flat_map(|at| {
            (0..8_u64).filter(|bit| at.constant_mask >> bit & 1 == 1).map(|bit| at.offset * 8 + bit)
        })
        .collect();
    let _ = writeln!(
        out,
        "{} looked at, with {entropy:.1} bits of entropy if they were independent",
        counted(positions.len() as u64, "byte")
    );
    if !constant.is_empty() {
        push_wrapped(&format!("the same in all keys: {}", bits_in_words(&constant)), out);
    }
    let low: Vec<u64> = positions
        .iter()
        .filter(|at| at.constant_mask != 0xff && at.entropy_bits < 1.0)
        .flat_map(|at| at.offset * 8..at.offset * 8 + 8)
        .collect();
    if !low.is_empty() {
        push_wrapped(&format!("less than one bit of entropy: {}", bits_in_words(&low)), out);
    }
}

/// Rows that a map has at most if each is a bit of the key; else each is a byte.
const BIT_ROWS_MAX: usize = 64;
/// Columns of a row's name.
const LABEL: usize = 11;
/// Deviations that chance explains, in standard deviations: of ten thousand entries, none is
/// further.
const QUIET_Z: f64 = 4.5;

/// Appends the map: a row for each bit or byte of the key, a column for each bit of the hash.
fn push_map(avalanche: &Avalanche, out: &mut String) {
    let bits_per_row = if avalanche.flip_rates.len() <= BIT_ROWS_MAX { 1 } else { 8 };
    let width = avalanche.width_bits as usize;
    let _ = writeln!(out, "{:<LABEL$} 0{:>2$}", "bit of hash", width - 1, width - 1);
    let rows = avalanche.flip_rates.chunks(bits_per_row);
    for (number, (rates, counts)) in
        (0_usize..).zip(rows.zip(avalanche.key_counts.chunks(bits_per_row)))
    {
        let label = match bits_per_row {
            1 => format!("byte {}.{}", number / 8, number % 8),
            _ => format!("byte {number}"),
        };
        let shade_at = |column: usize| {
            let of_bit = |(rates, &count): (&Vec<f64>, &u64)| shade(rates[column], count);
            let levels = rates.iter().zip(counts).map(of_bit);
            levels.max_by_key(|level| SHADES.find(*level)).unwrap_or(' ')
        };
        let shades: String = (0..width).map(shade_at).collect();
        let _ = writeln!(out, "{label:<LABEL$} {shades}|");
    }
    let _ = writeln!(
        out,
        "blank: as an ideal hash; . : + # further from a half; @ always or never flips\n"
    );
}

/// Characters from an ideal rate to none.
const SHADES: &str = " .:+#@";

fn shade(rate: f64, count: u64) -> char {
    if count == 0 {
        return ' ';
    }
    let distance = (rate - 0.5).abs();
    let z = 2.0 * distance * (count as f64).sqrt();
    match distance {
        _ if z < QUIET_Z => ' ',
        0.5.. => '@',
        0.35.. => '#',
        0.2.. => '+',
        0.1.. => ':',
        _ => '.',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_are_of_what_chance_does_not_explain() {
        assert_eq!(
            [0.5, 0.52, 0.56, 0.62, 0.75, 0.9, 0.0].map(|rate| shade(rate, 4096)),
            [' ', ' ', '.', ':', '+', '#', '@']
        );
        // Of 16 coins, all may be heads.
        assert_eq!((shade(1.0, 16), shade(1.0, 32), shade(0.0, 0)), (' ', '@', ' '));
    }

    #[test]
    fn sentences_are_wrapped() {
        let mut out = String::new();
        push_wrapped(&"word ".repeat(40), &mut out);
        assert!(out.lines().all(|line| line.len() <= 80) && out.lines().count() == 3, "{out}");
    }
}
