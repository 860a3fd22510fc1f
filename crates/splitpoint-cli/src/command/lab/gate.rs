//! `splitpoint lab gate`: fail a build if a hash function misses a limit.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use splitpoint_lab::gate::Limits;
use splitpoint_lab::study::{Duplicates, KeyFacts};
use splitpoint_lab::{Report, Setup, Specimen, Study};

use super::keys::KeyArgs;
use super::list::{FunctionName, by_name};
use super::measuring::setup;
use super::saving::{self, Output};
use crate::bytes::shown;
use crate::command::shared::parse_seed;
use crate::console::Console;
use crate::failure::{Exit, Failure, Result};
use crate::files::read_whole;
use crate::number::{count, counted, grouped};

/// Fail if a hash function does not fit your keys, for continuous integration
///
/// Measures like `lab table` and compares the figures with limits. Prints each missed limit on a
/// separate line and exits with code 1. Without limits, a hit may cost up to 1.1 times the ideal.
///
/// To test your own function, in any language, have your program write the hash of every key to a
/// file, in the order of the keys, and pass that file to --hashes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  splitpoint lab gate keys.txt --hash fnv1a-32 --max-cost 1.05
  splitpoint lab gate keys.txt --hash sdbm --buckets 1024 --buckets 65536
  splitpoint lab gate keys.txt --hashes hashes.txt --max-collisions 0
  splitpoint lab gate --hashes hashes.bin --hashes-as u64 --reduction high
  splitpoint lab gate keys.txt --hash fnv1a-32 --json | jq '.gates[]'")]
pub(super) struct Args {
    #[command(flatten)]
    keys: KeyArgs,

    /// The hash function
    #[arg(
        long,
        value_name = "NAME",
        value_parser = FunctionName,
        hide_possible_values = true,
        required_unless_present = "hashes",
        conflicts_with = "hashes"
    )]
    hash: Option<String>,

    /// A file with the hash of every key, in the order of the keys, computed by your program
    #[arg(long, value_name = "FILE")]
    hashes: Option<PathBuf>,

    /// The format of the hashes [default: hex, if 0x or a letter shows that they are]
    #[arg(long, value_enum, value_name = "FORMAT", requires = "hashes")]
    hashes_as: Option<HashFormat>,

    /// Width of the hashes [default: 32 if all of them fit, otherwise 64]
    #[arg(long, value_name = "BITS", value_parser = ["32", "64"], requires = "hashes")]
    width: Option<String>,

    /// How a hash becomes a bucket: low, high, shift:N, modulus, prime, range, split, hashbrown, or
    /// own (the reduction published with the function, or low if there is none)
    #[arg(long, default_value = "own")]
    reduction: String,

    /// Number of buckets; repeat it to check several sizes [default: the number of keys, rounded up
    /// as the reduction requires]
    #[arg(long, value_name = "N")]
    buckets: Vec<u64>,

    /// The seed of seeded functions, in decimal or in hex with 0x
    #[arg(long, default_value = "0", value_parser = parse_seed)]
    seed: u64,

    #[command(flatten)]
    limits: LimitArgs,

    #[command(flatten)]
    output: Output,
}

/// The limits.
#[derive(Debug, clap::Args)]
struct LimitArgs {
    /// Maximum cost of a hit, relative to the ideal
    #[arg(long, value_name = "RATIO", value_parser = positive)]
    max_cost: Option<f64>,

    /// Maximum number of keys in the fullest bucket
    #[arg(long, value_name = "KEYS")]
    max_chain: Option<u64>,

    /// Minimum probability that an ideal hash fills a bucket as much as the fullest one
    #[arg(long, value_name = "P", alias = "max-chain-p", value_parser = share)]
    min_chain_p: Option<f64>,

    /// Minimum probability that an ideal hash spreads the keys as unevenly
    #[arg(long, value_name = "P", value_parser = share)]
    min_spread_p: Option<f64>,

    /// Minimum share of buckets that hold a key, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    min_utilization: Option<f64>,

    /// Maximum number of keys that are not the first in their bucket
    #[arg(long, value_name = "KEYS")]
    max_dupes: Option<u64>,

    /// Maximum number of pairs of keys with equal hashes
    #[arg(long, value_name = "PAIRS")]
    max_collisions: Option<u64>,
}

/// The default limit.
const COST_MAX: f64 = 1.1;

impl LimitArgs {
    fn limits(&self) -> Limits {
        let limits = Limits {
            cost_max: self.max_cost,
            longest_max: self.max_chain,
            longest_p_min: self.min_chain_p,
            spread_p_min: self.min_spread_p,
            utilization_min: self.min_utilization,
            dupes_max: self.max_dupes,
            collisions_max: self.max_collisions,
        };
        if limits.is_empty() { Limits { cost_max: Some(COST_MAX), ..limits } } else { limits }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && f64::is_finite(number) => Ok(number),
        _ => Err("expected a number above 0".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// The format of a file of hashes
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum HashFormat {
    /// One per line, in hex, with or without 0x
    Hex,
    /// One per line, in decimal; negative numbers are signed 64-bit integers
    Decimal,
    /// 4-byte integers, little-endian
    U32,
    /// 8-byte integers, little-endian
    U64,
    /// 4-byte integers, big-endian
    U32Be,
    /// 8-byte integers, big-endian
    U64Be,
}

/// Measures, and fails if a limit is missed.
pub(super) fn run(args: &Args, console: Console) -> Result<()> {
    let mut study = match &args.hashes {
        Some(path) => given(args, path, console)?,
        None => return computed(args, console),
    };
    judge(args, &mut study, console)
}

/// Compares the reports of a study with the limits.
fn judge(args: &Args, study: &mut Study, console: Console) -> Result<()> {
    let limits = args.limits.limits();
    study.gates = study.reports.iter().flat_map(|report| limits.check(report)).collect();
    args.output.deliver(study, console)?;
    match study.gates.iter().filter(|gate| !gate.is_met).count() {
        0 => Ok(()),
        missed => {
            let limits = counted(count(study.gates.len()), "limit");
            let verb = if missed == 1 { "is" } else { "are" };
            let message = format!("{missed} of {limits} {verb} missed");
            Err(Failure::new(Exit::No, message)
                .hint("see the figures with lab table, and better functions with lab recommend"))
        }
    }
}

/// Measures a function on the keys.
fn computed(args: &Args, console: Console) -> Result<()> {
    let specimen = by_name(args.hash.as_deref().unwrap_or_default())?;
    let mut session = args.keys.begin(&args.output, console)?;
    let setups = setups(args, specimen, session.keys().len())?;
    let outcome = session.measure(&args.keys, &setups, Report::new)?;
    let mut study = saving::study(session.keys().facts().clone());
    study.reports = outcome.results;
    study.interruption = outcome.interruption;
    if study.interruption.is_some() {
        // Limits apply only to all of the keys.
        args.output.deliver(&study, console)?;
        return session.end(study.interruption.as_ref());
    }
    judge(args, &mut study, console)
}

/// Measures hashes computed by another program, and reads their keys, if given.
fn given(args: &Args, path: &Path, console: Console) -> Result<Study> {
    args.output.check()?;
    let source = path.display().to_string();
    let malformed = |reason: String| {
        Failure::new(Exit::Usage, format!("`{source}`: {reason}"))
            .hint("set the format of the hashes with --hashes-as, such as hex, decimal or u64")
    };
    let bytes = read(path)?;
    let format = args.hashes_as.map_or_else(|| evident_format(&bytes), Ok);
    let mut hashes = format.and_then(|format| parse(&bytes, format)).map_err(malformed)?;
    drop(bytes);
    if hashes.is_empty() {
        return Err(Failure::new(Exit::No, format!("`{source}` holds no hashes")));
    }
    let facts = if args.keys.has_file() {
        facts_of(args, &source, &mut hashes, console)?
    } else {
        KeyFacts {
            source: source.clone(),
            format: "hashes".to_owned(),
            key_count: count(hashes.len()),
            ..KeyFacts::default()
        }
    };
    let fits_32 = hashes.iter().all(|&hash| u32::try_from(hash).is_ok());
    let specimen = match (args.width.as_deref(), fits_32) {
        (Some("32"), false) => {
            return Err(malformed("a hash has more than the 32 bits of --width".to_owned()));
        }
        (Some("32"), _) | (None, true) => by_name("identity-32")?,
        _ => by_name("identity-64")?,
    };
    let hashes: Vec<[u8; 8]> = hashes.into_iter().map(u64::to_le_bytes).collect();
    let mut study = saving::study(facts);
    for setup in setups(args, specimen, count(hashes.len()))? {
        setup.check_memory(count(hashes.len()), args.keys.memory_bytes).map_err(|error| {
            Failure::new(Exit::Usage, error.to_string()).hint("--memory-bytes allows more")
        })?;
        let mut report = Report::new(&setup.count(hashes.iter().map(<[u8; 8]>::as_slice)));
        report.hash = source.clone().into();
        report.key_bytes = study.keys.key_bytes;
        study.reports.push(report);
    }
    Ok(study)
}

/// Reads the keys of the hashes, and skips the hashes of repeated keys.
fn facts_of(
    args: &Args,
    source: &str,
    hashes: &mut Vec<u64>,
    console: Console,
) -> Result<KeyFacts> {
    let path = args.keys.file().display().to_string();
    // Keep duplicates, so that keys and hashes match by their order; the note below reports them.
    let session = args.keys.with_duplicates().begin(&args.output, Console::new(true))?;
    let Some(keys) = session.keys().held() else {
        return Err(Failure::new(Exit::Usage, format!("`{path}` does not fit into memory"))
            .hint("--memory-bytes allows more; or omit the keys and measure the hashes alone"));
    };
    if hashes.len() != keys.len() {
        let (hashes, keys) = (grouped(count(hashes.len())), counted(count(keys.len()), "key"));
        let message = format!("`{source}` holds {hashes} hashes, `{path}` {keys}");
        return Err(Failure::new(Exit::Usage, message)
            .hint("give one hash per key, in the order of the keys"));
    }
    let mut seen: HashMap<&[u8], u64> = HashMap::with_capacity(hashes.len());
    let mut kept = Vec::with_capacity(hashes.len());
    for (key, &hash) in keys.iter().zip(hashes.iter()) {
        match seen.insert(key, hash) {
            Some(other) if other != hash => {
                let key = shown(key);
                let message = format!("`{key}` has the hashes {other:#x} and {hash:#x}");
                return Err(Failure::new(Exit::Usage, format!("`{source}`: {message}")).hint(
                    "a function gives a key one hash; are the two files in the same order?",
                ));
            }
            Some(_) if !args.keys.keeps_duplicates() => {}
            _ => kept.push(hash),
        }
    }
    let mut facts = session.keys().facts().clone();
    if kept.len() < hashes.len() {
        facts.duplicate_count = count(hashes.len() - kept.len());
        facts.duplicates = Duplicates::Removed;
        facts.key_count = count(kept.len());
        facts.key_bytes = seen.keys().map(|key| count(key.len())).sum();
        let keys = counted(facts.duplicate_count, "duplicate key");
        console.note(format_args!("skipped {keys}, with their hashes"));
    }
    *hashes = kept;
    Ok(facts)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::stdin().lock(), &mut bytes)
            .map_err(|error| Failure::io("read standard input", &error))?;
        return Ok(bytes);
    }
    read_whole(path)
}

/// Returns the format of hashes without `--hashes-as`: hex, unless they could also be decimal.
fn evident_format(bytes: &[u8]) -> Result<HashFormat, String> {
    let could_be_decimal = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_whitespace();
    if !bytes.trim_ascii().is_empty() && bytes.iter().all(could_be_decimal) {
        return Err(
            "its hashes have only the digits 0 to 9, so they may be hex or decimal".to_owned()
        );
    }
    Ok(HashFormat::Hex)
}

fn parse(bytes: &[u8], format: HashFormat) -> Result<Vec<u64>, String> {
    match format {
        HashFormat::Hex => lines(bytes, |text| {
            let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
            u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))
        }),
        HashFormat::Decimal => {
            lines(bytes, |text| text.parse().or_else(|_| text.parse().map(i64::cast_unsigned)).ok())
        }
        HashFormat::U32 => integers(bytes, |part: [u8; 4]| u32::from_le_bytes(part).into()),
        HashFormat::U64 => integers(bytes, u64::from_le_bytes),
        HashFormat::U32Be => integers(bytes, |mut part: [u8; 4]| {
            part.reverse();
            u32::from_le_bytes(part).into()
        }),
        HashFormat::U64Be => integers(bytes, |mut part: [u8; 8]| {
            part.reverse();
            u64::from_le_bytes(part)
        }),
    }
}

fn lines(bytes: &[u8], of: impl Fn(&str) -> Option<u64>) -> Result<Vec<u64>, String> {
    let mut hashes = Vec::new();
    for (number, line) in (1_u64..).zip(bytes.split(|&byte| byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let hash = std::str::from_utf8(line).ok().and_then(&of);
        hashes.push(
            hash.ok_or_else(|| {
                format!("line {number}: `{}` is not a 64-bit integer", shown(line))
            })?,
        );
    }
    Ok(hashes)
}

fn integers<const N: usize>(bytes: &[u8], of: impl Fn([u8; N]) -> u64) -> Result<Vec<u64>, String> {
    let (parts, rest) = bytes.as_chunks::<N>();
    if !rest.is_empty() {
        let length = bytes.len();
        return Err(format!("{length} bytes are not a whole number of {N}-byte integers"));
    }
    Ok(parts.iter().copied().map(of).collect())
}

/// Returns one measurement for each size.
fn setups(args: &Args, specimen: &'static Specimen, key_count: u64) -> Result<Vec<Setup>> {
    let of = |buckets| setup(specimen, args.seed, &args.reduction, buckets, key_count);
    if args.buckets.is_empty() {
        return Ok(vec![of(None)?]);
    }
    args.buckets.iter().map(|&buckets| of(Some(buckets))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decimal numbers read as hex would give a wrong verdict without any warning.
    #[test]
    fn hashes_that_may_be_hex_or_decimal_are_not_guessed_at() {
        for bytes in [&b"0x10\n0x11\n"[..], b"00000010\n0000001f\n", b"-1\n12\n", b"\n"] {
            assert_eq!(evident_format(bytes), Ok(HashFormat::Hex));
        }
        assert!(evident_format(b"3735928559\n12\n").is_err());
    }

    #[test]
    fn hashes_are_read_in_every_form() {
        for (bytes, format, hashes) in [
            (&b"0xff\nFF\r\n\n 10 \n"[..], HashFormat::Hex, &[255, 255, 16][..]),
            (b"255\n-1\n18446744073709551615", HashFormat::Decimal, &[255, u64::MAX, u64::MAX]),
            (&[1, 0, 0, 0, 2, 0, 0, 0], HashFormat::U32, &[1, 2]),
            (&[1, 0, 0, 0, 2, 0, 0, 0], HashFormat::U64, &[0x2_0000_0001]),
            (&[0, 0, 0, 1], HashFormat::U32Be, &[1]),
            (&[0, 0, 0, 0, 0, 0, 1, 0], HashFormat::U64Be, &[256]),
            (b"", HashFormat::Hex, &[]),
        ] {
            assert_eq!(parse(bytes, format).as_deref(), Ok(hashes), "{format:?}");
        }
        for (bytes, format, error) in [
            (&b"1\nxyz\n"[..], HashFormat::Hex, "line 2: "),
            (b"12345678901234567", HashFormat::Hex, "line 1: "),
            (b"+5", HashFormat::Hex, "line 1: "),
            (b"ff", HashFormat::Decimal, "line 1: "),
            (b"12345", HashFormat::U32, "5 bytes are not a whole number of 4-byte"),
        ] {
            let found = parse(bytes, format).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
