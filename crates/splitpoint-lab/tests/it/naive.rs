//! Reductions, statistics and formats against models that are written out from their definitions.

use std::collections::BTreeMap;

use proptest::prelude::*;
use splitpoint_lab::keys::{Column, KeyFormat};
use splitpoint_lab::{Error, Occupancy, Reduction};

fn low_bits(hash: u64, width_bits: u32) -> u64 {
    (u128::from(hash) & ((1_u128 << width_bits) - 1)) as u64
}

/// Returns the bucket by the definition of the reduction, in numbers of any size.
fn bucket_by_definition(name: &str, hash: u64, width_bits: u32, bucket_count: u64) -> u64 {
    let (hash, m) = (u128::from(low_bits(hash, width_bits)), u128::from(bucket_count));
    let bucket = match name {
        "low" | "modulus" | "prime" | "hashbrown" => hash % m,
        // The high bits are what is left of a division.
        "high" if m <= 1 << width_bits => hash / ((1 << width_bits) / m),
        "high" => hash,
        "range" => hash * m / (1 << width_bits),
        "shift:11" => hash / 2048 % m,
        // The larger power of two, unless that names a bucket that is not there yet.
        "split" => {
            let power = m.next_power_of_two();
            if hash % power < m { hash % power } else { hash % (power / 2) }
        }
        other => panic!("no definition of {other}"),
    };
    bucket as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn reductions_are_what_their_definitions_say(
        hash in any::<u64>(),
        width_bits in 1..=64_u32,
        bits in 0..=20_u32,
        odd in 1..100_000_u64,
    ) {
        for name in ["low", "high", "modulus", "prime", "range", "split", "hashbrown", "shift:11"] {
            let reduction: Reduction = name.parse().expect("a reduction");
            for bucket_count in [1 << bits, odd, splitpoint_lab::reduction::prime_at_least(odd)] {
                let Ok(reducer) = reduction.prepare(width_bits, bucket_count) else {
                    continue;
                };
                let expected = bucket_by_definition(name, hash, width_bits, bucket_count);
                prop_assert_eq!(reducer.bucket_of(hash), expected, "{} of {}", name, bucket_count);
            }
        }
    }

    /// The figures of some buckets, each by the definition of the figure, bucket by bucket.
    #[test]
    fn statistics_are_what_their_definitions_say(
        chains in prop::collection::vec(0..12_u64, 2..200)
    ) {
        let mut sizes = BTreeMap::new();
        for &size in &chains {
            *sizes.entry(size).or_insert(0) += 1;
        }
        let found = Occupancy::uniform(sizes);
        let (n, m) = (chains.iter().sum::<u64>(), chains.len() as u64);
        prop_assert_eq!((found.key_count(), found.bucket_count()), (n, m));
        prop_assert_eq!(found.longest(), *chains.iter().max().expect("not empty"));
        let at_least_two = chains.iter().filter(|&&size| size >= 2).count() as u64;
        prop_assert_eq!(found.at_least(2), at_least_two);
        // Every pair of keys in one bucket, counted one by one.
        let pairs: u128 = chains.iter().map(|&c| (0..c).map(u128::from).sum::<u128>()).sum();
        prop_assert_eq!(found.pair_count(), pairs);
        // A hit compares the keys up to its own.
        let compared: u64 = chains.iter().map(|&c| (1..=c).sum::<u64>()).sum();
        let hit = if n == 0 { 0.0 } else { compared as f64 / n as f64 };
        prop_assert!((found.probes_hit() - hit).abs() < 1e-9);
        prop_assert!((found.probes_miss() - n as f64 / m as f64).abs() < 1e-9);
        // By nearest rank, from the list of all keys and of all buckets in use.
        let mut by_key: Vec<u64> =
            chains.iter().flat_map(|&c| std::iter::repeat_n(c, c as usize)).collect();
        let mut by_bucket: Vec<u64> = chains.iter().copied().filter(|&c| c > 0).collect();
        by_key.sort_unstable();
        by_bucket.sort_unstable();
        let rank = |sorted: &[u64], share: f64| {
            let at = (sorted.len() as f64 * share) as usize;
            sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
        };
        let (items, buckets) = (found.item_percentiles(), found.bucket_percentiles());
        prop_assert_eq!((items.p50, items.p99), (rank(&by_key, 0.5), rank(&by_key, 0.99)));
        prop_assert_eq!((buckets.p50, buckets.p90), (rank(&by_bucket, 0.5), rank(&by_bucket, 0.9)));
        // One key says nothing.
        if n > 1 {
            let expected = n as f64 / m as f64;
            let chi_square: f64 =
                chains.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum();
            let test = found.chi_square().expect("two buckets and two keys");
            prop_assert!((test.value - chi_square).abs() < 1e-6 * chi_square.max(1.0));
            prop_assert!((test.dof - (m as f64 - 1.0)).abs() < 1e-9);
        }
    }
}

fn column() -> Column {
    Column { name: "2".to_owned(), has_header: false }
}

#[test]
fn a_format_is_shown_by_the_name_that_it_is_read_by() {
    for name in KeyFormat::names() {
        let format = KeyFormat::by_name(&name, column()).expect("a name of the list");
        let shown = format.to_string();
        let expected = match name.as_str() {
            "csv" | "tsv" => format!("{name}, column 2"),
            "hex" | "base64" => format!("lines as {name}"),
            "decimal" => "lines as u64".to_owned(),
            _ => name.clone(),
        };
        assert_eq!(shown, expected);
        let is_text = ["lines", "nul", "csv", "tsv", "hex", "base64", "decimal"];
        assert_eq!(format.is_text(), is_text.contains(&name.as_str()), "{name}");
        let width_bytes = match name.strip_prefix('u') {
            Some(bits) => bits.trim_end_matches("-be").parse::<u8>().ok().map(|bits| bits / 8),
            None => (name == "decimal").then_some(8),
        };
        assert_eq!(format.width_bytes(), width_bytes, "{name}");
    }
}

#[test]
fn errors_say_what_was_wrong_and_what_is_right() {
    for (error, expected) in [
        (
            Error::UnknownHash { name: "x".to_owned(), nearest: "xxh64" },
            "no hash function is called `x`; the nearest is `xxh64`",
        ),
        (
            Reduction::PrimeModulus.prepare(32, 9).expect_err("9 is 3 times 3"),
            "`prime` needs a prime number, not 9 buckets",
        ),
        (
            "mask".parse::<Reduction>().expect_err("no reduction"),
            "no reduction is called `mask`; there are low, high, shift:N, modulus, prime, range, \
             split and hashbrown",
        ),
        (
            KeyFormat::by_name("line", column()).expect_err("no format"),
            "no format of keys is called `line`; the nearest is `lines`",
        ),
        (
            splitpoint_lab::slots::SlotCounts::new().slots(0).expect_err("no node"),
            "a cluster has 1 to 16384 nodes, not 0",
        ),
    ] {
        assert_eq!(error.to_string(), expected);
    }
}
