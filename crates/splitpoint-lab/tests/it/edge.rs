//! Key sets at the edge: none, one, equal, empty and large keys.

use splitpoint_lab::{Reduction, Report, Setup, Specimen, Verdict};

fn reports(keys: &[Vec<u8>]) -> Vec<Report> {
    let reductions = [Reduction::LowMask, Reduction::HighShift, Reduction::Range, Reduction::Split];
    let of_specimen = |specimen: &'static Specimen| {
        reductions.map(|reduction| {
            let setup = Setup::new(specimen, 0, reduction, 16).expect("a power of two");
            Report::new(&setup.count(keys.iter().map(Vec::as_slice)))
        })
    };
    Specimen::all().flat_map(of_specimen).collect()
}

/// Every number of a report is finite, and probabilities are probabilities.
#[track_caller]
fn check_finite(report: &Report) {
    let tests = [report.chi_square, report.fit];
    let of_tests = tests.iter().flatten().flat_map(|test| [test.value, test.dof, test.z]);
    let numbers = [
        report.used_ideal,
        report.utilization,
        report.load_factor,
        report.mean_chain,
        report.longest_ideal,
        report.probes_hit,
        report.probes_hit_ideal,
        report.probes_miss,
        report.probes_miss_ideal,
        report.cost_ratio,
    ];
    assert!(numbers.into_iter().chain(of_tests).all(f64::is_finite), "{report:?}");
    let of_pages = report.pages.iter().flat_map(|page| {
        let hit = [page.reads_hit, page.reads_hit_ideal, page.overflow_share];
        hit.into_iter().chain([page.reads_miss, page.reads_miss_ideal, page.overflow_share_ideal])
    });
    let of_probing = report.probing.iter().flat_map(|found| {
        assert!(found.hit >= 1.0 && found.miss >= 1.0, "{found:?}");
        [found.hit, found.hit_ideal, found.miss, found.miss_ideal]
    });
    let of_shares = report.item_shares.iter().flat_map(|at| [at.share, at.share_ideal]);
    assert!(of_pages.chain(of_probing).chain(of_shares).all(f64::is_finite), "{report:?}");
    assert_eq!(report.strip.keys.iter().sum::<u64>(), report.key_count);
    assert_eq!(report.strip.used.iter().sum::<u64>(), report.used_count);
    assert!(!report.words.verdict.is_empty());
    let of_tests = tests.iter().flatten().map(|test| test.p);
    let of_collisions = report.collisions.iter().map(|collisions| collisions.p);
    let p_values = [report.longest_p, report.spread_p].into_iter().chain(of_tests);
    let of_bits = report.worst_pair.map(|pair| pair.p).into_iter().chain([report.even_p]);
    let mut p_values = p_values.chain(of_collisions).chain(of_bits);
    assert!(p_values.all(|p| (0.0..=1.0).contains(&p)), "{report:?}");
    assert_eq!(report.rows.iter().map(|row| row.bucket_count).sum::<u64>(), report.bucket_count);
    assert_eq!(report.rows.iter().map(|row| row.item_count).sum::<u64>(), report.key_count);
}

#[test]
fn no_keys_are_no_failure() {
    for report in reports(&[]) {
        check_finite(&report);
        assert_eq!((report.key_count, report.longest, report.verdict), (0, 0, Verdict::Fits));
        assert_eq!((report.worst_bit, report.bits_never_set), (None, 0));
        assert!(report.probing.is_empty() && report.item_shares.is_empty());
    }
}

#[test]
fn one_key_fits_any_hash() {
    for key in [vec![], b"a".to_vec(), vec![0xff; 1 << 20]] {
        for report in reports(std::slice::from_ref(&key)) {
            check_finite(&report);
            assert_eq!((report.longest, report.verdict), (1, Verdict::Fits), "{}", report.hash);
            assert_eq!(report.key_bytes, key.len() as u64);
        }
    }
}

#[test]
fn equal_keys_are_the_worst_there_is() {
    for report in reports(&vec![b"same".to_vec(); 1000]) {
        check_finite(&report);
        assert_eq!((report.longest, report.used_count, report.dupe_count), (1000, 1, 999));
        assert!(matches!(report.verdict, Verdict::Worse { .. }), "{}", report.hash);
        assert_eq!(report.item_percentiles.p50, 1000);
        assert_eq!(report.collisions[0].pair_count, 499_500);
    }
}

/// The percentiles are those of a list that is written out and sorted.
#[test]
fn percentiles_are_those_of_the_sorted_list() {
    let keys: Vec<Vec<u8>> = (0..1000).map(|n| format!("{}", n * n).into_bytes()).collect();
    let specimen = Specimen::by_name("netbsd-byte-sum").expect("is there");
    let setup = Setup::new(specimen, 0, Reduction::Modulus, 50).expect("any size");
    let stats = setup.count(keys.iter().map(Vec::as_slice));
    let report = Report::new(&stats);
    let mut buckets: Vec<u64> = stats.chains().filter(|&keys| keys > 0).collect();
    let mut items: Vec<u64> =
        stats.chains().flat_map(|keys| std::iter::repeat_n(keys, keys as usize)).collect();
    buckets.sort_unstable();
    items.sort_unstable();
    let at = |list: &[u64], percent: usize| list[list.len() * percent / 100];
    let found = report.bucket_percentiles;
    assert_eq!([found.p50, found.p90, found.p99], [50, 90, 99].map(|p| at(&buckets, p)));
    let found = report.item_percentiles;
    assert_eq!([found.p50, found.p90, found.p99], [50, 90, 99].map(|p| at(&items, p)));
    assert!(report.item_percentiles.p50 >= report.bucket_percentiles.p50);
}
