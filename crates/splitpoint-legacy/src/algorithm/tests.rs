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
fn agrees_with_a_map(name: &str, table: &mut dyn Algorithm, steps: &[Step]) {
    let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
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
    assert_eq!(walked(table), map, "{name}");
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
            let small = Parameters { page_bytes: Some(64), expected_records: Some(40), ..Parameters::default() };
            for parameters in [Parameters::default(), small] {
                let mut table = variant.create(&parameters).unwrap();
                agrees_with_a_map(&variant.name(), &mut *table, &steps);
            }
        }
    }

    /// A directory that starts with one entry doubles often.
    #[test]
    fn a_gdbm_that_starts_with_one_bucket_agrees_with_a_map(
        steps in prop::collection::vec(step(), 150..300)
    ) {
        let options = gdbm::Options { block_bytes: 512, directory_bits: Some(0), ..gdbm::Options::default() };
        agrees_with_a_map("gdbm", &mut gdbm::Gdbm::new(options), &steps);
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
    let many = Parameters { expected_records: Some(99_999_999_999), ..Parameters::default() };
    for variant in ["dynahash", "hash", "hsearch", "hsearch-chained"] {
        let refused = Variant::by_name(variant).unwrap().check(&many).unwrap_err().to_string();
        let start = "invalid nelem: 99999999999 entries are more than ";
        assert!(refused.starts_with(start), "{variant}: {refused}");
    }
}

/// A check must not make the table: this one would have 2 GiB.
#[test]
fn a_large_table_is_checked_without_memory() {
    let large = Parameters { expected_records: Some((1 << 28) - 1), ..Parameters::default() };
    for variant in Variant::all() {
        variant.check(&large).unwrap();
    }
    assert_eq!(Variant::by_name("hsearch").unwrap().empty_bytes(&large), 2 << 30);
    assert_eq!(Variant::Dynahash.empty_bytes(&large), 1 << 30);
}

#[test]
fn depths_are_those_of_the_deepest_bucket() {
    for (expected, depth) in [(1, 0), (2, 1), (256, 8)] {
        let parameters = Parameters { expected_records: Some(expected), ..Parameters::default() };
        let table = Variant::Dynahash.create(&parameters).unwrap();
        assert_eq!(table.footprint().depth, depth, "{expected}");
    }
}

/// Both directories copy their old entries when they double.
#[test]
fn a_directory_that_doubles_copies_its_old_entries() {
    let options =
        gdbm::Options { block_bytes: 512, directory_bits: Some(0), ..gdbm::Options::default() };
    let mut table = gdbm::Gdbm::new(options);
    let mut number = 0_u32;
    while table.counts().doublings < 3 {
        table.store(&number.to_le_bytes(), b"", StoreMode::Insert).unwrap();
        number += 1;
    }
    assert_eq!(table.counts().copied_entries, 1 + 2 + 4);
}

#[test]
fn every_drawing_says_where_the_keys_are() {
    for variant in Variant::all() {
        let mut table = variant.create(&Parameters::default()).unwrap();
        let empty = table.show();
        table.store(b"a", b"1", StoreMode::Insert).unwrap();
        let drawing = table.show();
        assert!(drawing.lines().count() > 1, "{}: {drawing}", variant.name());
        assert_ne!(drawing, empty, "{}", variant.name());
    }
}
