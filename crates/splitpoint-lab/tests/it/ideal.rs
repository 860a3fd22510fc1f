//! The statistics against simulation: an ideal hash passes as often as it should, a bad one fails.

use splitpoint_lab::choose::Distribution;
use splitpoint_lab::key_positions::Blame;
use splitpoint_lab::lookups::LookupCost;
use splitpoint_lab::paging::PageCost;
use splitpoint_lab::probing::Probing;
use splitpoint_lab::study::{Avalanche, Manner, Spread};
use splitpoint_lab::{
    KeyPositions, KeySample, Lookups, Reduction, Report, Setup, Specimen, Verdict, compare,
};

const SEEDS: u64 = 200;

/// Keys that are anything but random: what a hash is for.
fn regular_keys(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("key{number:06}").into_bytes()).collect()
}

fn report(name: &str, seed: u64, reduction: Reduction, buckets: u64, keys: &[Vec<u8>]) -> Report {
    let specimen = Specimen::by_name(name).expect("is there");
    let setup = Setup::new(specimen, seed, reduction, buckets).expect("the size suits");
    Report::new(&setup.count(keys.iter().map(Vec::as_slice)))
}

fn ideal_reports(reduction: Reduction, buckets: u64, key_count: u64) -> Vec<Report> {
    let keys = regular_keys(key_count);
    (1..=SEEDS).map(|seed| report("siphash-1-3", seed, reduction, buckets, &keys)).collect()
}

/// Compares p values with the uniform distribution.
///
/// Source: Kolmogorov and Smirnov; the root of `n` times the largest distance exceeds 1.95 with a
/// probability of 0.001. The seeds are fixed, so that the outcome is too.
#[track_caller]
fn check_uniform(what: &str, mut p_values: Vec<f64>) {
    p_values.sort_by(f64::total_cmp);
    let n = p_values.len() as f64;
    let distances = (0..).zip(&p_values).map(|(rank, p)| {
        let rank = f64::from(rank);
        (p - rank / n).abs().max(((rank + 1.0) / n - p).abs())
    });
    let distance = distances.fold(0.0, f64::max) * n.sqrt();
    assert!(distance < 1.95, "{what}: {distance} for {} p values", p_values.len());
}

#[track_caller]
fn check_mean(what: &str, values: &[f64], expected: f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let sd = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    // A full table has no empty bucket at any seed.
    let tolerance = (4.0 * sd / n.sqrt()).max(1e-9 * expected.abs());
    assert!(
        (mean - expected).abs() <= tolerance,
        "{what}: mean {mean} sd {sd}, expected {expected}"
    );
}

fn values(reports: &[Report], value: impl Fn(&Report) -> f64) -> Vec<f64> {
    reports.iter().map(value).collect()
}

/// Full, crowded and half-split tables of an ideal hash: uniform p, and means where they should be.
#[test]
fn an_ideal_hash_gives_uniform_p_values_over_200_seeds() {
    for (reduction, buckets, keys) in [
        (Reduction::LowMask, 1024, 4096),
        (Reduction::HighShift, 64, 8000),
        (Reduction::PrimeModulus, 1009, 3000),
        (Reduction::Range, 700, 700),
        (Reduction::Split, 768, 3000),
    ] {
        let reports = ideal_reports(reduction, buckets, keys);
        let what = |what: &str| format!("{reduction}, {buckets} buckets, {keys} keys: {what}");
        let chi_square = |report: &Report| report.chi_square.expect("many buckets");
        check_uniform(&what("p of chi-square"), values(&reports, |report| chi_square(report).p));
        check_uniform(&what("p of spread"), values(&reports, |report| report.spread_p));
        check_uniform(&what("p of evenness"), values(&reports, |report| report.even_p));
        check_uniform(&what("worst pair"), values(&reports, |r| r.worst_pair.expect("keys").p));
        check_pages(&what("pages"), &reports);
        let fits: Vec<f64> = reports.iter().filter_map(|report| Some(report.fit?.p)).collect();
        assert!(fits.len() == reports.len() || buckets == 64, "{}", what("too few sizes"));
        check_uniform(&what("p of fit"), fits);
        check_mean(&what("z"), &values(&reports, |report| chi_square(report).z), 0.0);
        let squares = values(&reports, |report| chi_square(report).z.powi(2));
        check_mean(&what("variance of z"), &squares, 1.0);
        check_mean(&what("cost"), &values(&reports, |report| report.cost_ratio), 1.0);
        let used = values(&reports, |report| report.used_count as f64);
        check_mean(&what("used"), &used, reports[0].used_ideal);
        let miss = values(&reports, |report| report.probes_miss);
        let miss_ideal = reports[0].probes_miss_ideal;
        if reduction == Reduction::Split {
            check_mean(&what("miss"), &miss, miss_ideal);
        } else {
            assert!(miss.iter().all(|found| (found - miss_ideal).abs() < 1e-9), "{}", what("miss"));
        }
        assert!(reports.iter().all(|report| report.verdict == Verdict::Fits), "{}", what("fits"));
    }
}

/// Reads and overflow of pages, which are a mixture in a half-split table.
#[track_caller]
fn check_pages(what: &str, reports: &[Report]) {
    for (at, ideal) in reports[0].pages.iter().enumerate() {
        let of = |value: fn(&PageCost) -> f64| values(reports, |report| value(&report.pages[at]));
        let what = |cost: &str| format!("{what} of {}: {cost}", ideal.slots);
        check_mean(&what("hit"), &of(|page| page.reads_hit), ideal.reads_hit_ideal);
        check_mean(&what("miss"), &of(|page| page.reads_miss), ideal.reads_miss_ideal);
        let overflow = of(|page| page.overflow_share);
        // The ideal is a difference of large numbers.
        let ideal = ideal.overflow_share_ideal;
        if overflow.iter().any(|&share| share > 0.0) {
            check_mean(&what("overflow"), &overflow, ideal);
        } else {
            assert!(ideal < 1e-4, "{}: {ideal}", what("overflow"));
        }
    }
}

/// `Var = m (m - 1) (1 - 2 / m)^n + E - E^2` for the empty buckets, and the variance of chi-square.
#[test]
fn empty_buckets_and_chi_square_vary_as_computed() {
    let (buckets, keys) = (2048, 3000);
    let reports = ideal_reports(Reduction::LowMask, buckets, keys);
    let (m, n) = (buckets as f64, keys as f64);
    let mean = m * (1.0 - 1.0 / m).powf(n);
    let variance = m * (m - 1.0) * (1.0 - 2.0 / m).powf(n) + mean - mean * mean;
    let empty = values(&reports, |report| m - report.used_count as f64);
    check_mean("empty", &empty, mean);
    check_mean("used ideal", &[m - reports[0].used_ideal, mean], mean);
    let squares: Vec<f64> = empty.iter().map(|found| (found - mean).powi(2)).collect();
    check_mean("variance of empty", &squares, variance);
    let dof = m - 1.0;
    let deviation = |report: &Report| report.chi_square.expect("many buckets").value - dof;
    let squares = values(&reports, |report| deviation(report).powi(2));
    check_mean("variance of chi-square", &squares, 2.0 * dof * (1.0 - 1.0 / n));
}

/// Open addressing on the hashes of SipHash costs what the formulas say.
#[test]
fn probing_with_an_ideal_hash_costs_what_is_ideal() {
    for (reduction, buckets, keys) in
        [(Reduction::LowMask, 1024, 900), (Reduction::PrimeModulus, 1009, 2000)]
    {
        let reports = ideal_reports(reduction, buckets, keys);
        for (at, ideal) in reports[0].probing.iter().enumerate() {
            let of = |value: fn(&Probing) -> f64| {
                let found = values(&reports, |report| value(&report.probing[at]));
                found.iter().sum::<f64>() / SEEDS as f64
            };
            let (hit, miss) = (of(|found| found.hit), of(|found| found.miss));
            // Double hashing is not quite uniform probing in a small table.
            assert!((hit / ideal.hit_ideal - 1.0).abs() < 0.03, "hit {hit}, {ideal:?}");
            assert!((miss / ideal.miss_ideal - 1.0).abs() < 0.1, "miss {miss}, {ideal:?}");
        }
        assert_eq!(reports[0].probing.len(), 3);
    }
}

/// A trace that asks for few keys often costs what the ideal says on the average over seeds.
#[test]
fn lookups_of_a_trace_cost_what_is_ideal_over_seeds() {
    let keys = regular_keys(1000);
    let absent: Vec<Vec<u8>> = (0..300).map(|n| format!("no{n}").into_bytes()).collect();
    let hits = (0..1000).flat_map(|at| std::iter::repeat_n(&keys[at], 1000 / (at + 1)));
    let trace: Vec<(&[u8], bool)> = hits
        .map(|key| (key.as_slice(), true))
        .chain(absent.iter().map(|key| (key.as_slice(), false)))
        .collect();
    let cost = |name: &str, seed: u64| {
        let specimen = Specimen::by_name(name).expect("is there");
        let setup = Setup::new(specimen, seed, Reduction::LowMask, 512).expect("a power of two");
        let stats = setup.count(keys.iter().map(Vec::as_slice));
        let mut lookups = Lookups::count(&stats, trace[..500].iter().copied());
        lookups.merge(&Lookups::count(&stats, trace[500..].iter().copied()));
        let mut report = Report::new(&stats);
        report.add_lookups(&stats, &lookups);
        report.lookups.expect("was just added")
    };
    let costs: Vec<_> = (0..SEEDS).map(|seed| cost("siphash-1-3", seed)).collect();
    assert_eq!(costs[0].hit_count + costs[0].miss_count, trace.len() as u64);
    assert_eq!(costs[0].miss_count, 300);
    let of = |value: fn(&LookupCost) -> f64| costs.iter().map(value).collect::<Vec<f64>>();
    check_mean("hit", &of(|cost| cost.probes_hit), costs[0].probes_hit_ideal);
    check_mean("miss", &of(|cost| cost.probes_miss), costs[0].probes_miss_ideal);
    check_mean("cost", &of(|cost| cost.cost_ratio), 1.0);
    let bad = cost("netbsd-byte-sum", 0);
    assert!(bad.cost_ratio > 3.0 && bad.percentiles.p50 > 10, "{bad:?}");
}

/// E\[max\] treats the buckets as independent, which they are not quite.
#[test]
fn the_longest_chain_expected_is_that_of_simulation() {
    for (buckets, keys) in [(1024, 4096), (4096, 2000), (256, 9785)] {
        let reports = ideal_reports(Reduction::LowMask, buckets, keys);
        let mean = reports.iter().map(|report| report.longest as f64).sum::<f64>() / SEEDS as f64;
        let expected = reports[0].longest_ideal;
        assert!((mean - expected).abs() < 0.02 * expected + 0.1, "{mean}, expected {expected}");
        let rare = reports.iter().filter(|report| report.longest_p < 0.01).count();
        assert!(rare <= 8, "{rare} of {SEEDS} with p below 0.01");
    }
}

/// Few keys in a large table, where pairs are counted, and windows of 32 bits of the hashes.
#[test]
fn pairs_and_collisions_of_an_ideal_hash_are_as_many_as_expected() {
    let reports = ideal_reports(Reduction::LowMask, 1 << 16, 2000);
    let dupes = values(&reports, |report| report.dupe_count as f64);
    check_mean("dupes", &dupes, 2000.0 - reports[0].used_ideal);
    let rare = reports.iter().filter(|report| report.spread_p < 0.05).count();
    assert!((1..=22).contains(&rare), "{rare} of {SEEDS} with p below 0.05");
    // 19,900 keys have 0.046 pairs of equal 32 bits: over 60 seeds and two windows 5.5.
    let keys = regular_keys(19_900);
    let (mut pairs, mut rare) = (0, 0);
    for seed in 0..60 {
        let report = report("siphash-1-3", seed, Reduction::LowMask, 16, &keys);
        let [all, high, low, worst] = &report.collisions[..] else { panic!("four windows") };
        assert_eq!((worst.test_count, worst.width_bits), (9, 32));
        rare += usize::from(worst.p < 0.05);
        assert_eq!((all.pair_count, high.width_bits, low.width_bits), (0, 32, 32));
        assert!((high.pair_count_ideal - 0.0461).abs() < 1e-3, "{}", high.pair_count_ideal);
        pairs += high.pair_count + low.pair_count;
    }
    assert!((1..=14).contains(&pairs), "{pairs} pairs");
    // Windows overlap and counts are whole, so that the worst is rarer than its p says.
    assert!(rare <= 8, "{rare} of 60 worst windows with p below 0.05");
}

#[test]
fn the_worst_bit_of_an_ideal_hash_has_a_uniform_p() {
    let reports = ideal_reports(Reduction::LowMask, 16, 2000);
    check_uniform("worst bit", values(&reports, |report| report.worst_bit.expect("keys").p));
}

#[test]
fn a_bad_hash_fails() {
    let keys = regular_keys(10_000);
    let report = report("netbsd-byte-sum", 0, Reduction::LowMask, 1024, &keys);
    let Verdict::Worse { cost_ratio } = report.verdict else { panic!("{}", report.verdict) };
    assert!(cost_ratio > 5.0, "{cost_ratio}");
    assert!(report.spread_p < 1e-100 && report.longest_p < 1e-12);
    assert!(report.collisions[0].p < 1e-12 && report.collisions[0].shared.len() == 8);
    assert!(report.bits_never_set.count_ones() >= 20, "{:x}", report.bits_never_set);
    let page = report.pages[0];
    assert!(page.reads_miss > 1.2 * page.reads_miss_ideal, "{page:?}");
    assert!(page.overflow_share > 2.0 * page.overflow_share_ideal, "{page:?}");
    for found in &report.probing {
        assert!(found.hit > 3.0 * found.hit_ideal, "{found:?}");
    }
    assert!(report.words.verdict.starts_with("worse by x"), "{:?}", report.words);
    assert!(report.alternatives.len() == 3, "{:?}", report.alternatives);
    let pair = report.worst_pair.expect("bits that are not dead");
    assert!(pair.p < 1e-9 && pair.test_count < 496, "{pair:?}");
    assert!(report.even_p > 0.999_999);
}

/// Consecutive numbers in a table larger than they are: no two share a bucket.
#[test]
fn a_hash_that_keeps_the_order_of_its_keys_is_called_structured() {
    let keys: Vec<Vec<u8>> = (0..50_000_u32).map(|n| n.to_le_bytes().to_vec()).collect();
    let report = report("linux-uid", 0, Reduction::LowMask, 1 << 16, &keys);
    assert_eq!((report.dupe_count, report.verdict), (0, Verdict::Structured));
    assert!(report.verdict.to_string().contains("will not survive other keys"));
}

/// A sample of one in four finds a quarter of the pairs.
#[test]
fn sampled_collisions_are_their_share_of_all() {
    let keys = regular_keys(100_000);
    let specimen = Specimen::by_name("db-hash1").expect("is there");
    let setup = Setup::new(specimen, 0, Reduction::LowMask, 1 << 10).expect("a power of two");
    let count = |setup: Setup| {
        let report = Report::new(&setup.count(keys.iter().map(Vec::as_slice)));
        report.collisions[0].pair_count as f64
    };
    let share = count(setup.sample_hashes(2)) / count(setup);
    assert!((share - 0.25).abs() < 0.03, "{share}");
}

/// 400 seeds of an ideal hash raise no alarm in what any command says of them.
#[test]
fn four_hundred_seeds_of_a_good_hash_raise_no_alarm() {
    let keys = regular_keys(4000);
    let bytes = || keys.iter().map(Vec::as_slice);
    let siphash = Specimen::by_name("siphash-1-3").expect("is there");
    let mut positions = KeyPositions::default();
    bytes().for_each(|key| positions.add(key));
    let sample = KeySample::of(128, bytes());
    let mut distribution =
        Distribution::new(siphash, Reduction::LowMask, 4096).expect("a power of two");
    let first = report("siphash-1-3", 0, Reduction::LowMask, 4096, &keys);
    for seed in 1..=400 {
        let setup = Setup::new(siphash, seed, Reduction::LowMask, 4096).expect("a power of two");
        let stats = setup.count(bytes());
        let found = Report::new(&stats);
        assert_eq!(found.verdict, Verdict::Fits, "{seed}: {found:?}");
        assert_eq!(found.words.blame, [""; 0], "{seed}");
        assert_eq!(Blame::new(&setup, &positions, &sample).bits, [], "{seed}");
        let alarms = compare::reports("", &first, &found);
        let alarms: Vec<_> = alarms.iter().filter(|it| it.is_beyond_chance()).collect();
        assert!(alarms.is_empty(), "{seed}: {alarms:?}");
        let hashes: Vec<u64> = bytes().map(|key| siphash.hash(key, seed)).collect();
        distribution.add(&hashes);
        let avalanche = Avalanche::new(siphash, seed, &sample);
        assert!(avalanche.worst_p > 2_f64.powi(-20), "{seed}: {:?}", avalanche.worst);
    }
    let line = Spread { median: 10.0, ..Spread::default() };
    let choice = distribution.choice(siphash, Some(5.0), &line);
    assert_eq!((choice.manner, choice.trial_count), (Manner::Fits, 2800), "{choice:?}");
}
