//! The ideal against simulation, published figures and closed forms; the counts against sums.

use super::ideal::{CHANCE_MIN, IDEAL_ROW_MIN, IDEAL_ROWS_MAX, Ideal, real};
use super::*;

const SLOTS: u64 = 7;

/// `SplitMix64` of Steele, Lea and Flood, 2014: the ideal hash of these tests.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Returns the keys of each line of a chain without holes.
fn packed_lines(mut keys: u64) -> Vec<u64> {
    let mut lines = vec![keys.min(SLOTS)];
    keys -= lines[0];
    while keys > 0 {
        lines.push(keys.min(SLOTS));
        keys -= keys.min(SLOTS);
    }
    lines
}

fn count_chains(geometry: Geometry, keys_per_bucket: &[u64]) -> Occupancy {
    let mut occupancy = Occupancy::new(geometry, SLOTS);
    for (bucket, &keys) in (0..).zip(keys_per_bucket) {
        occupancy.add_chain(BucketIndex(bucket), &packed_lines(keys));
    }
    occupancy
}

fn throw_keys(geometry: Geometry, keys: u64, random: &mut SplitMix64) -> Occupancy {
    let mut sizes = vec![0; usize::try_from(geometry.bucket_count()).expect("fits in memory")];
    for _ in 0..keys {
        let bucket = geometry.bucket_of(random.next());
        sizes[usize::try_from(bucket.0).expect("fits in memory")] += 1;
    }
    count_chains(geometry, &sizes)
}

#[track_caller]
fn check_near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found} is not {expected} +- {tolerance}");
}

#[track_caller]
fn check_sums(histogram: &ChainHistogram, bucket_count: u64, key_count: u64) {
    assert_eq!(histogram.rows.iter().map(|row| row.bucket_count).sum::<u64>(), bucket_count);
    assert_eq!(histogram.rows.iter().map(|row| row.item_count).sum::<u64>(), key_count);
    assert!(histogram.rows.windows(2).all(|pair| pair[0].size < pair[1].size));
    let last = histogram.rows.last().expect("there is a bucket");
    check_near(last.cumulative_percent, 100.0, 1e-9);
    assert!(histogram.rows.iter().all(|row| row.ideal_bucket_count.is_finite()));
}

/// A thousand tables of one shape, thrown by an ideal hash: the mean of every figure must lie
/// within five standard errors of the ideal.
#[track_caller]
fn check_against_simulation(bucket_count: u64, keys: u64) {
    const ROUNDS: u32 = 1000;
    let geometry = Geometry::with_bucket_count(bucket_count);
    let mut random = SplitMix64(bucket_count << 32 | keys);
    let histograms: Vec<ChainHistogram> =
        (0..ROUNDS).map(|_| throw_keys(geometry, keys, &mut random).finish()).collect();
    let check = |what: &str, ideal: f64, slack: f64, figure: &dyn Fn(&ChainHistogram) -> f64| {
        let rounds = f64::from(ROUNDS);
        let mean = histograms.iter().map(figure).sum::<f64>() / rounds;
        let squares: f64 = histograms.iter().map(|h| (figure(h) - mean).powi(2)).sum();
        let error = (squares / (rounds - 1.0) / rounds).sqrt();
        let limit = 5.0 * error + slack;
        assert!((mean - ideal).abs() <= limit, "{what}: mean {mean}, ideal {ideal} +- {limit}");
    };
    let first = &histograms[0];
    for &ChainRow { size, ideal_bucket_count, .. } in &first.rows {
        // A row that is hardly ever met has no standard error to speak of.
        check(&format!("size {size}"), ideal_bucket_count, 0.01, &|histogram| {
            let row = histogram.rows.iter().find(|row| row.size == size);
            row.map_or(0.0, |row| real(row.bucket_count))
        });
    }
    check("probes of a hit", first.probes_hit_ideal, 1e-9, &|h| h.probes_hit);
    check("probes of a miss", first.probes_miss_ideal, 1e-9, &|h| h.probes_miss);
    // The ideal takes the buckets for independent, which a small table feels a little.
    check("longest", first.longest_ideal, 0.05, &|h| real(h.longest));
    let fuller = |histogram: &ChainHistogram| f64::from(histogram.longest >= first.longest);
    check("p of the longest", first.longest_p, 0.01, &fuller);
}

#[test]
fn figures_of_a_half_split_table_agree_with_simulation() {
    check_against_simulation(96, 432);
}

#[test]
fn figures_of_a_whole_table_agree_with_simulation() {
    check_against_simulation(128, 576);
}

#[test]
fn figures_of_a_crowded_table_agree_with_simulation() {
    check_against_simulation(45, 2000);
}

#[test]
fn figures_of_a_sparse_table_agree_with_simulation() {
    check_against_simulation(200, 30);
}

/// The formula of independent buckets, worked out elsewhere: Lever's tables, Mewburn's and Bacik's.
#[test]
fn longest_chain_agrees_with_the_published_tables() {
    for (keys, bucket_count, expected) in [
        (37_256, 16_384, 10.33),
        (2_644, 16_384, 3.35),
        (9_785, 256, 56.8),
        (34_867, 65_536, 5.83),
        (1_000_000, 1 << 24, 4.10),
    ] {
        let ideal = Ideal::new(Geometry::with_bucket_count(bucket_count), keys);
        let tolerance = if expected > 50.0 { 0.05 } else { 0.005 };
        check_near(ideal.longest_mean(), expected, tolerance);
    }
}

/// Lever 2000: 37256 buffers in 16384 buckets should leave 1685.9 empty.
#[test]
fn empty_buckets_agree_with_the_closed_form() {
    let ideal = Ideal::new(Geometry::with_bucket_count(16_384), 37_256);
    check_near(ideal.bucket_count(0), 1685.9, 0.05);
    let exact = 16_384.0 * (37_256.0 * (-1.0_f64 / 16_384.0).ln_1p()).exp();
    check_near(ideal.bucket_count(0), exact, 1e-8);
}

/// Buckets and keys of every shape up to 64 buckets, with few keys and with many.
#[test]
fn ideal_column_adds_up_to_the_buckets_and_the_keys() {
    for bucket_count in 1..=64 {
        let geometry = Geometry::with_bucket_count(bucket_count);
        for keys in [0, 1, 2, 7, 100, 450, 3000] {
            let ideal = Ideal::new(geometry, keys);
            let sizes = 0..=keys;
            let buckets: f64 = sizes.clone().map(|size| ideal.bucket_count(size)).sum();
            let items: f64 = sizes.map(|size| real(size) * ideal.bucket_count(size)).sum();
            check_near(buckets, real(bucket_count), 1e-9);
            check_near(items, real(keys), 1e-9 * real(keys));
        }
    }
}

/// With two buckets everything can be counted on one's fingers: binomial coefficients over 2^n.
#[test]
fn two_buckets_agree_with_pascals_triangle() {
    for keys in 1..=40_u64 {
        let ideal = Ideal::new(Geometry::with_bucket_count(2), keys);
        let mut choose = 1.0;
        for size in 0..=keys {
            let exact = 2.0 * choose / real(1 << keys);
            let found = ideal.bucket_count(size);
            assert!((found / exact - 1.0).abs() < 1e-12, "{keys} keys, {size}: {found} {exact}");
            choose *= real(keys - size) / real(size + 1);
        }
    }
}

#[test]
fn ideal_probes_agree_with_the_sum_over_slots() {
    for (bucket_count, keys) in [(1, 30), (3, 40), (48, 216), (64, 600)] {
        let ideal = Ideal::new(Geometry::with_bucket_count(bucket_count), keys);
        let mut sum = 0.0;
        for size in 0..=keys {
            let lines: u64 = (1..=size).map(|place| place.div_ceil(SLOTS)).sum();
            sum += ideal.bucket_count(size) * real(lines);
        }
        check_near(ideal.probes_hit(SLOTS), sum / real(keys), 1e-12);
    }
}

#[test]
fn empty_table_has_one_row_and_no_probes_of_hits() {
    let histogram = count_chains(Geometry::ONE, &[0]).finish();
    check_sums(&histogram, 1, 0);
    let row = ChainRow {
        size: 0,
        bucket_count: 1,
        item_count: 0,
        cumulative_percent: 100.0,
        ideal_bucket_count: 1.0,
    };
    let expected = ChainHistogram {
        rows: vec![row],
        probes_hit: 0.0,
        probes_hit_ideal: 0.0,
        probes_miss: 1.0,
        probes_miss_ideal: 1.0,
        longest: 0,
        longest_ideal: 0.0,
        longest_p: 1.0,
        longest_by_chance: 0,
        beyond_chance_count: 0,
    };
    assert_eq!(histogram, expected);
}

#[test]
fn one_key_is_where_an_ideal_hash_would_have_it() {
    for bucket_count in [1, 2, 3, 100] {
        let mut sizes = vec![0; bucket_count];
        sizes[bucket_count / 2] = 1;
        let buckets = bucket_count as u64;
        let histogram = count_chains(Geometry::with_bucket_count(buckets), &sizes).finish();
        check_sums(&histogram, buckets, 1);
        assert_eq!((histogram.longest, histogram.longest_by_chance), (1, 1));
        check_near(histogram.longest_ideal, 1.0, 1e-12);
        check_near(histogram.longest_p, 1.0, 1e-12);
        check_near(histogram.probes_hit, 1.0, 0.0);
        check_near(histogram.probes_hit_ideal, 1.0, 1e-12);
        let ideal: f64 = histogram.rows.iter().map(|row| row.ideal_bucket_count).sum();
        check_near(ideal, real(buckets), 1e-9);
    }
}

/// Three buckets, of which 0 and 2 were one: 1 is hashed to as often as both together.
#[test]
fn divided_buckets_weigh_half_in_misses() {
    let geometry = Geometry::with_bucket_count(3);
    let lines = |keys_per_bucket| count_chains(geometry, keys_per_bucket).finish().probes_miss;
    check_near(lines(&[8, 0, 0]), 1.25, 0.0);
    check_near(lines(&[0, 8, 0]), 1.5, 0.0);
    check_near(lines(&[0, 0, 8]), 1.25, 0.0);
}

#[test]
fn holes_are_probed() {
    let mut occupancy = Occupancy::new(Geometry::ONE, SLOTS);
    occupancy.add_chain(BucketIndex(0), &[2, 0, 1]);
    let histogram = occupancy.finish();
    check_near(histogram.probes_hit, (1.0 + 1.0 + 3.0) / 3.0, 1e-15);
    check_near(histogram.probes_miss, 3.0, 0.0);
    check_near(histogram.probes_hit_ideal, 1.0, 1e-15);
}

/// All of a million keys in one of 222 buckets: a row far below the others, and none between.
#[test]
fn pathological_chain_has_its_row_and_is_beyond_chance() {
    let mut sizes = vec![0; 222];
    sizes[200] = 1_000_000;
    let histogram = count_chains(Geometry::with_bucket_count(222), &sizes).finish();
    check_sums(&histogram, 222, 1_000_000);
    assert!(histogram.rows.len() <= IDEAL_ROWS_MAX + 2, "{} rows", histogram.rows.len());
    assert_eq!((histogram.longest, histogram.beyond_chance_count), (1_000_000, 1));
    assert!(histogram.longest_p < CHANCE_MIN, "p {}", histogram.longest_p);
    assert!(histogram.probes_hit > 70_000.0 && histogram.probes_hit_ideal < 1000.0);
}

#[test]
fn chains_beyond_chance_are_counted_from_the_first_improbable_size() {
    let geometry = Geometry::with_bucket_count(1000);
    let ideal = Ideal::new(geometry, 4500);
    let limit = ideal.longest_by_chance();
    assert!(ideal.longest_at_least(limit) >= CHANCE_MIN);
    assert!(ideal.longest_at_least(limit + 1) < CHANCE_MIN);
    assert!((24..40).contains(&limit), "limit {limit}");
    let mut sizes = vec![4; 1000];
    sizes[0] = limit;
    sizes[1] = limit + 1;
    sizes[2] = limit + 2;
    // The keys left over stay under the limit.
    let left = 4500 - sizes.iter().sum::<u64>();
    for size in sizes.iter_mut().rev().take(usize::try_from(left).expect("small")) {
        *size += 1;
    }
    let histogram = count_chains(geometry, &sizes).finish();
    check_sums(&histogram, 1000, 4500);
    assert_eq!((histogram.longest_by_chance, histogram.beyond_chance_count), (limit, 2));
}

/// The chance of a false alarm in 10,000 tables is 10^-8.
#[test]
fn ideal_hash_is_never_beyond_chance() {
    let mut random = SplitMix64(7);
    for bucket_count in 1..=200 {
        let geometry = Geometry::with_bucket_count(bucket_count);
        let histogram = throw_keys(geometry, bucket_count * 9 / 2, &mut random).finish();
        assert_eq!(histogram.beyond_chance_count, 0, "{bucket_count} buckets");
        check_sums(&histogram, bucket_count, bucket_count * 9 / 2);
    }
}

#[test]
fn merged_parts_equal_the_whole() {
    let geometry = Geometry::with_bucket_count(100);
    let sizes: Vec<u64> = (0..100).map(|bucket| bucket * bucket % 23).collect();
    let whole = count_chains(geometry, &sizes);
    let mut parts = [(); 3].map(|()| Occupancy::new(geometry, SLOTS));
    for (bucket, &keys) in sizes.iter().enumerate() {
        parts[bucket % 3].add_chain(BucketIndex(bucket as u64), &packed_lines(keys));
    }
    let [mut left, middle, right] = parts;
    let mut right_first = right.clone();
    left.merge(&middle);
    right_first.merge(&left);
    left.merge(&right);
    left.merge(&Occupancy::new(geometry, SLOTS));
    assert_eq!(left, whole);
    assert_eq!(right_first, whole);
}

/// The corners of the range, and shapes around them: every figure finite and in its bounds.
#[test]
fn figures_stay_finite_from_one_bucket_to_the_most() {
    let shapes = [1, 2, 3, 5, 96, 1000, 1 << 20, (1 << 20) + 1, (1 << 32) - 1, 1 << 32];
    for bucket_count in shapes {
        for keys in [0, 1, 2, 7, 1000, 123_456, 10_000_000, 10_000_000_000] {
            let ideal = Ideal::new(Geometry::with_bucket_count(bucket_count), keys);
            let context = format!("{keys} keys in {bucket_count} buckets");
            let mean = real(keys) / real(bucket_count);
            let longest = ideal.longest_mean();
            let bounds = mean * (1.0 - 1e-12)..=real(keys) * (1.0 + 1e-12);
            assert!(bounds.contains(&longest), "{context}: longest {longest}");
            let by_chance = ideal.longest_by_chance();
            assert!(by_chance <= keys && real(by_chance) >= longest.floor(), "{context}");
            let (hit, miss) = (ideal.probes_hit(SLOTS), ideal.probes_miss(SLOTS));
            assert!(keys == 0 || hit >= 1.0 - 1e-9, "{context}: hit {hit}");
            assert!(hit <= mean + 2.0 && miss <= mean + 2.0, "{context}: {hit} {miss}");
            assert!(miss >= 1.0 - 1e-9, "{context}: miss {miss}");
            let sizes = ideal.likely_sizes(IDEAL_ROW_MIN, IDEAL_ROWS_MAX);
            assert!(sizes.len() <= IDEAL_ROWS_MAX, "{context}");
            for size in [0, 1, 2, by_chance, keys] {
                let p = ideal.longest_at_least(size);
                assert!((0.0..=1.0).contains(&p), "{context}: p of {size} is {p}");
                let buckets = ideal.bucket_count(size);
                assert!(buckets >= 0.0 && buckets <= real(bucket_count) * (1.0 + 1e-9));
            }
        }
    }
}

#[test]
fn rows_that_only_the_ideal_has_are_bounded() {
    // Ten million keys in each of the three buckets: the ideal spreads over thousands of sizes.
    let mut occupancy = Occupancy::new(Geometry::with_bucket_count(3), 1 << 24);
    for bucket in 0..3 {
        occupancy.add_chain(BucketIndex(bucket), &[10_000_000 + bucket]);
    }
    let sizes: Vec<u64> = occupancy.finish().rows.iter().map(|row| row.size).collect();
    assert_eq!(sizes, [10_000_000, 10_000_001, 10_000_002]);
}

#[test]
#[should_panic(expected = "bucket 3 is not in the table")]
fn a_bucket_outside_the_table_is_refused() {
    Occupancy::new(Geometry::with_bucket_count(3), SLOTS).add_chain(BucketIndex(3), &[1]);
}

/// A power of two and no bucket divided: the two ways to ask must give one answer.
#[test]
fn a_uniform_ideal_is_that_of_a_table_between_rounds() {
    let by_shape = Ideal::new(Geometry::with_bucket_count(256), 9785);
    let uniform = Ideal::uniform(256, 9785);
    for size in 0..100 {
        let (one, other) = (by_shape.bucket_count(size), uniform.bucket_count(size));
        check_near(one, other, 1e-12 * one);
    }
    check_near(uniform.longest_mean(), by_shape.longest_mean(), 1e-9);
    check_near(uniform.probes_miss(1), by_shape.probes_miss(1), 1e-9);
    check_near(uniform.pair_probability(), 1.0 / 256.0, 1e-15);
}

/// Of 1009 buckets, which no shift addresses, against simulation.
#[test]
fn a_uniform_ideal_of_a_prime_number_of_buckets_agrees_with_simulation() {
    let (mut random, rounds, keys) = (SplitMix64(1009), 400, 2000);
    let (mut empty, mut pairs) = (0_u64, 0_u64);
    for _ in 0..rounds {
        let mut sizes = [0_u64; 1009];
        for _ in 0..keys {
            sizes[usize::try_from(random.next() % 1009).expect("below 1009")] += 1;
        }
        empty += sizes.iter().filter(|&&size| size == 0).count() as u64;
        pairs += sizes.iter().map(|size| size * (size.max(&1) - 1) / 2).sum::<u64>();
    }
    let ideal = Ideal::uniform(1009, keys);
    // Standard deviations of one round: about 9.2 buckets and 44 pairs.
    let per_round = |sum: u64| real(sum) / real(rounds);
    check_near(per_round(empty), ideal.bucket_count(0), 4.0 * 9.2 / 20.0);
    let expected = real(keys * (keys - 1) / 2) * ideal.pair_probability();
    check_near(per_round(pairs), expected, 4.0 * 44.5 / 20.0);
}
