use std::cell::Cell;

use splitpoint_legacy::algorithm::Parameters;

use super::*;

fn measured(keys: &[String], variants: Vec<Variant>) -> ClassicsReport {
    let values: Vec<String> = (1..=keys.len()).map(|number| number.to_string()).collect();
    let pairs: Vec<(&[u8], &[u8])> =
        keys.iter().zip(&values).map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
    let parameters = Parameters::default();
    let plan = Plan { source: "test".to_owned(), variants, parameters, seed: 7 };
    measure(&pairs, &plan, &mut |_| (), &|| false).unwrap()
}

fn numbers(count: u32) -> Vec<String> {
    (0..count).map(|number| (number * 37).to_string()).collect()
}

#[test]
fn every_count_is_the_same_from_run_to_run() {
    let run = || {
        let mut report = measured(&numbers(500), variants());
        for row in &mut report.rows {
            (row.store_s, row.hit_s) = (0.0, 0.0);
        }
        report
    };
    let report = run();
    assert_eq!(report, run());
    assert_eq!(report.rows.len(), 34);
    assert_eq!(report.curves.len(), 12);
}

#[test]
fn a_good_digest_mends_every_option_and_the_original_s_none() {
    let report = measured(&numbers(3000), variants());
    for row in report.rows.iter().filter(|row| row.module == "hsearch") {
        let (hit, ideal) = (row.hit.unwrap(), row.hit_ideal.unwrap());
        if row.name.ends_with("-rapidhash") {
            assert!(hit < ideal * 1.1, "{}: {hit} of {ideal}", row.name);
        } else {
            assert!(hit > ideal * 3.0, "{}: {hit} of {ideal}", row.name);
        }
    }
    assert!(report.digest_count < 250);
}

#[test]
fn a_dbm_reads_one_page_and_the_package_few() {
    let variants = ["dbm", "ndbm", "sdbm", "gdbm", "dynahash", "hash"];
    let variants = variants.map(|name| Variant::by_name(name).unwrap()).to_vec();
    let report = measured(&numbers(3000), variants);
    for row in &report.rows {
        assert_eq!(row.stored_count, 3000, "{}", row.name);
        let (hit, ideal) = (row.hit.unwrap(), row.hit_ideal.unwrap());
        assert!((hit / ideal - 1.0).abs() < 0.25, "{}: {hit} of {ideal}", row.name);
        assert!(row.overflow_splits + row.fill_splits > 0 || row.name == "gdbm", "{}", row.name);
    }
}

#[test]
fn refused_keys_have_their_reason_and_the_first_is_named() {
    let long = "x".repeat(600);
    let mut keys = numbers(10);
    keys.extend([long.clone(), format!("{long}y")]);
    let report = measured(&keys, vec![Variant::Dbm]);
    let [failure] = &report.rows[0].failures[..] else { panic!("{:?}", report.rows[0]) };
    assert_eq!((failure.reason, failure.key_count), ("pair exceeds page", 2));
    assert!(failure.first_key.starts_with("xxx") && failure.in_paper.is_some());
    assert_eq!(report.rows[0].stored_count, 10);
}

#[test]
fn no_keys_give_rows_without_means() {
    let report = measured(&[], variants());
    assert!(report.rows.iter().all(|row| row.hit.is_none() && row.miss.is_none()));
    assert!(report.curves.is_empty());
}

#[test]
fn a_stopped_measurement_says_what_is_missing() {
    let plan = Plan {
        source: String::new(),
        variants: variants(),
        parameters: Parameters::default(),
        seed: 0,
    };
    let report = measure(&[(b"k", b"v")], &plan, &mut |_| (), &|| true).unwrap();
    assert_eq!(report.interruption.as_deref(), Some("0 of 34 variants were measured"));
}

#[test]
fn a_measurement_that_is_stopped_in_the_curves_says_so() {
    let keys = numbers(50);
    let pairs: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (key.as_bytes(), &b"v"[..])).collect();
    let variants = vec![Variant::by_name("hsearch").unwrap()];
    let plan = Plan { source: String::new(), variants, parameters: Parameters::default(), seed: 0 };
    let looks = Cell::new(0);
    let stopped_after = |most: u32| {
        looks.set(0);
        let is_stopped = || looks.replace(looks.get() + 1) >= most;
        measure(&pairs, &plan, &mut |_| (), &is_stopped).unwrap()
    };
    assert_eq!((stopped_after(u32::MAX).curves.len(), looks.get() > 12), (12, true));
    let report = stopped_after(looks.get() - 6);
    assert_eq!((report.rows.len(), report.curves.len()), (1, 0));
    assert_eq!(report.interruption.as_deref(), Some("the curves of hsearch are missing"));
}

/// The first keys of a sorted list are alike; the table of the curves has some of all.
#[test]
fn curves_take_keys_from_the_whole_list() {
    let of = |keys: &[String]| {
        let pairs: Vec<(&[u8], &[u8])> =
            keys.iter().map(|key| (key.as_bytes(), &b"v"[..])).collect();
        curve::curves(&pairs, &|| false).unwrap()
    };
    let keys = numbers(2 << 14);
    let every_second: Vec<String> = keys.iter().step_by(2).cloned().collect();
    let (of_all, of_half) = (of(&keys), of(&every_second));
    assert_eq!(of_all[0].slot_count, 1 << 14);
    assert_eq!(of_all, of_half);
    let [double, linear] = ideals(&of_all[0]);
    let at = |curve: &LoadCurve| curve.points[14];
    assert!((at(&double).load - 0.75).abs() < 0.001);
    assert!((at(&double).hit - 1.85).abs() < 0.01 && (at(&linear).hit - 2.5).abs() < 0.01);
}
