//! Claims about every variant.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// Keys short enough to come again, and of few bytes, so that they collide.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(&b"abc\0\xe9"[..]), 0..6)
}

#[derive(Clone, Debug)]
enum Step {
    Store(Vec<u8>, usize, StoreMode),
    Fetch(Vec<u8>),
    Delete(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop::sample::select(&[StoreMode::Insert, StoreMode::Replace][..]);
    prop_oneof![
        4 => (key(), 0..60_usize, mode).prop_map(|(key, bytes, mode)| Step::Store(key, bytes, mode)),
        2 => key().prop_map(Step::Fetch),
        1 => key().prop_map(Step::Delete),
    ]
}

/// Runs `steps` on a table and on a map, and compares them after each.
fn agrees_with_a_map(variant: Variant, parameters: &Parameters, steps: &[Step]) {
    let mut table = variant.create(parameters).unwrap();
    let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let name = variant.name();
    for (number, step) in (0_u8..=255).cycle().zip(steps) {
        match step {
            Step::Store(key, bytes, mode) => {
                let value = vec![number; *bytes];
                let expected = match (map.contains_key(key), mode) {
                    (false, _) => Stored::New,
                    (true, StoreMode::Insert) => Stored::Kept,
                    (true, StoreMode::Replace) => Stored::Replaced,
                };
                match table.store(key, &value, *mode) {
                    Ok(stored) => {
                        assert_eq!(stored, expected, "{name} {step:?}");
                        if stored != Stored::Kept {
                            map.insert(key.clone(), value);
                        }
                    }
                    Err(refusal) => {
                        assert!(refusal.reason() != Reason::Failed, "{name}: {refusal}");
                    }
                }
            }
            Step::Fetch(key) => {
                let found = table.fetch(key).unwrap();
                assert_eq!(found.as_deref(), map.get(key).map(|value| &value[..]), "{name}");
            }
            Step::Delete(key) => {
                assert_eq!(table.delete(key).unwrap(), map.remove(key).is_some(), "{name}");
            }
        }
        assert_eq!(table.len(), map.len() as u64, "{name} {step:?}");
    }
    assert_eq!(walked(&mut *table), map, "{name}");
    for (key, value) in &map {
        assert_eq!(table.fetch(key).unwrap().as_deref(), Some(&value[..]), "{name}");
    }
}

fn walked(table: &mut dyn Algorithm) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut pairs = BTreeMap::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        assert!(pairs.insert(key.to_vec(), value.to_vec()).is_none(), "a key comes twice");
        ControlFlow::Continue(())
    };
    table.walk(&mut visit).unwrap();
    pairs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_variant_agrees_with_a_map(steps in prop::collection::vec(step(), 1..200)) {
        for variant in Variant::all() {
            agrees_with_a_map(variant, &Parameters::default(), &steps);
            let small = Parameters { page_bytes: Some(64), expected_records: Some(40), ..Parameters::default() };
            agrees_with_a_map(variant, &small, &steps);
        }
    }
}

#[test]
fn names_are_unique_and_lead_back() {
    let all = Variant::all();
    let names: BTreeSet<String> = all.iter().map(|variant| variant.name()).collect();
    assert_eq!(names.len(), all.len());
    for variant in all {
        assert_eq!(Variant::by_name(&variant.name()), Some(variant));
    }
}

#[test]
fn counts_are_the_same_from_run_to_run() {
    for variant in Variant::all() {
        let run = || {
            let parameters = Parameters { expected_records: Some(1000), ..Parameters::default() };
            let mut table = variant.create(&parameters).unwrap();
            for number in 0..1000_u32 {
                let key = format!("key {number}");
                table.store(key.as_bytes(), b"value", StoreMode::Insert).unwrap();
                table.fetch(key.as_bytes()).unwrap();
            }
            (table.counts(), table.footprint())
        };
        assert_eq!(run(), run(), "{}", variant.name());
    }
}

/// 2,000 keys with one hash of dbm, one of gdbm and one digest of hsearch.
#[test]
fn keys_that_all_collide_are_stored_or_refused_with_the_reason_of_the_paper() {
    let keys = twins::of(2000);
    for variant in Variant::all() {
        let parameters = Parameters { expected_records: Some(2000), ..Parameters::default() };
        let mut table = variant.create(&parameters).unwrap();
        let mut reasons = BTreeSet::new();
        for key in &keys {
            if let Err(refusal) = table.store(key, b"value", StoreMode::Insert) {
                reasons.insert(refusal.reason());
            }
        }
        let expected: &[Reason] = match variant {
            Variant::Dbm | Variant::Ndbm | Variant::Sdbm => &[Reason::CollidingKeys],
            Variant::Gdbm => &[Reason::DirectoryLimit],
            _ => &[],
        };
        assert_eq!(reasons.into_iter().collect::<Vec<_>>(), expected, "{}", variant.name());
        let stored = keys.iter().filter(|key| table.fetch(key).unwrap().is_some()).count() as u64;
        assert_eq!(stored, table.len(), "{}", variant.name());
    }
}

#[test]
fn parameters_out_of_range_are_refused() {
    let page = |bytes| Parameters { page_bytes: Some(bytes), ..Parameters::default() };
    let refused = Variant::Ndbm.create(&page(65_536)).err().unwrap();
    assert_eq!(
        refused.to_string(),
        "invalid page size: 65536 bytes are not 32 to 32768, which offsets of 16 bits reach"
    );
    assert!(Variant::Sdbm.create(&page(16)).is_err());
    assert!(Variant::Hash.create(&page(1 << 20)).is_err());
    let fill = Parameters { fill_factor: Some(0), ..Parameters::default() };
    assert!(Variant::Dynahash.create(&fill).is_err() && Variant::Hash.create(&fill).is_err());
}

#[test]
fn every_drawing_says_where_the_keys_are() {
    for variant in Variant::all() {
        let mut table = variant.create(&Parameters::default()).unwrap();
        table.store(b"a", b"1", StoreMode::Insert).unwrap();
        let drawing = table.show();
        assert!(drawing.lines().count() > 1, "{}: {drawing}", variant.name());
    }
}
