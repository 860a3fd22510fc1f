//! What values, scans and backups hold back, through the interface.

use std::ops::ControlFlow;

use crate::index::Lines;
use crate::index::lookup::find_candidate;
use crate::linear::BucketIndex;
use crate::{Db, Entry, Options, Value};

fn capitals() -> Db {
    let db = Options::new().seed(1).in_memory().unwrap();
    db.put_many([("France", "Paris"), ("Peru", "Lima"), ("Mali", "Bamako")]).unwrap();
    db
}

/// Returns whether what is retired now may be used again at once.
fn is_free_to_reuse(db: &Db) -> bool {
    let pins = &db.store().region.pins;
    let ticket = pins.ticket();
    pins.poll() > ticket
}

#[test]
fn a_value_is_pinned_until_it_and_its_copies_are_dropped() {
    let db = capitals();
    let value = db.get("France").unwrap().unwrap();
    assert!(db.stats().unwrap().is_pinned);
    let copy = value.clone();
    drop(value);
    assert!(!is_free_to_reuse(&db));
    assert!(db.stats().unwrap().held_up_for.is_some());
    assert_eq!(copy, "Paris");
    assert_eq!(copy.into_vec(), b"Paris");
    // No change has looked at the pins since.
    let stats = db.stats().unwrap();
    assert!(!stats.is_pinned && stats.held_up_for.is_none());
    assert!(is_free_to_reuse(&db));
}

#[test]
fn a_value_taken_after_the_change_does_not_hold_back_what_was_retired_before() {
    let db = capitals();
    let mut last = db.get("France").unwrap();
    let pins = &db.store().region.pins;
    for round in 0..5 {
        let ticket = pins.ticket();
        // Each value is taken before the last one is dropped.
        let looks = (0..4).take_while(|_| {
            last = db.get("Peru").unwrap();
            pins.poll() <= ticket
        });
        assert!(looks.count() < 4, "round {round}");
    }
    drop(last);
}

#[test]
fn calls_that_return_no_value_leave_nothing_pinned() {
    let db = capitals();
    let mut buf = Vec::new();
    assert!(db.get_into("France", &mut buf).unwrap() && db.contains("Peru").unwrap());
    assert!(db.get("Chile").unwrap().is_none() && !db.contains("Chile").unwrap());
    assert_eq!(db.get_many(["Chile", "Cuba"]).unwrap(), [None, None]);
    db.update("France", |old| old.map(<[u8]>::to_vec)).unwrap();
    assert_eq!(db.retain(|key, _| key != b"Mali").unwrap(), 1);
    assert!(is_free_to_reuse(&db));
}

#[test]
fn each_value_of_a_call_for_many_is_pinned_by_itself() {
    let db = Options::new().seed(1).in_memory().unwrap();
    // More than a bunch of pins, and more than a chunk of keys.
    db.put_many((0..300_u32).map(|i| (i.to_le_bytes(), i.to_le_bytes()))).unwrap();
    let mut values = db.get_many((0..300_u32).map(u32::to_le_bytes)).unwrap();
    while let Some(value) = values.pop() {
        assert!(!is_free_to_reuse(&db));
        assert_eq!(value.unwrap(), (values.len() as u32).to_le_bytes());
    }
    assert!(is_free_to_reuse(&db));
}

#[test]
fn each_entry_of_a_scan_is_pinned_and_outlives_it() {
    let db = capitals();
    let scan = db.scan().unwrap();
    assert!(is_free_to_reuse(&db), "until then the horizon is enough");
    let entries: Vec<Entry<'_>> = scan.map(Result::unwrap).collect();
    assert_eq!(entries.len(), 3);
    for Entry { key, value } in entries {
        drop(key);
        assert!(!is_free_to_reuse(&db));
        drop(value);
    }
    assert!(is_free_to_reuse(&db));
}

#[test]
fn a_scan_and_a_backup_hold_what_dies_after_they_began() {
    let db = capitals();
    let horizons = &db.store().horizons;
    let scan = db.scan().unwrap();
    let stamp = horizons.now();
    assert!(!horizons.are_past(stamp));
    drop(scan);
    assert!(horizons.are_past(stamp));
    let mut calls = 0;
    let watch = |_| {
        calls += 1;
        assert!(!horizons.are_past(horizons.now()));
        assert!(!is_free_to_reuse(&db));
        ControlFlow::Continue(())
    };
    db.backup_with().on_progress(watch).write_to(Vec::new()).unwrap();
    assert!(calls > 0, "the backup was watched");
    assert!(horizons.are_past(horizons.now()) && is_free_to_reuse(&db));
}

#[test]
fn values_and_scans_may_be_sent_and_shared() {
    fn assert_shareable<T: Send + Sync>(_: &T) {}
    let db = capitals();
    let value: Value<'_> = db.get("France").unwrap().unwrap();
    assert_shareable(&value);
    assert_shareable(&db.scan().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| drop(value));
    });
    assert!(is_free_to_reuse(&db), "another thread has dropped it");
}

/// The reader is interrupted between its candidate and its pin. Meanwhile the buckets move, and the space
/// of every record is used again.
#[test]
fn a_lookup_that_pins_after_its_buckets_moved_finds_its_key() {
    let options = Options::new().seed(1).fill_factor(1.0).segment_bytes_min(4096);
    let db = options.poison_freed().in_memory().unwrap();
    let region = &db.store().region;
    let first_bucket = || std::ptr::from_ref(region.windows.bucket(BucketIndex(0)));
    let before_move = first_bucket();
    let key = |i: u64| i.to_le_bytes();
    (0..500).for_each(|i| db.put(key(i), [1; 20]).unwrap());
    assert_eq!(first_bucket(), before_move, "a small table is in one block");
    let candidate = |i| {
        let hash = db.store().hash_of(&key(i));
        (i, hash, find_candidate(&region.windows, hash).unwrap().expect("the tag is there"))
    };
    let candidates: Vec<_> = (0..500).map(candidate).collect();
    // No more than it takes: splits change the epoch as well.
    let mut added = 500..600;
    while first_bucket() == before_move {
        db.put(key(added.next().expect("it outgrows its block")), [1; 20]).unwrap();
    }
    (0..20).for_each(|_| (0..500).for_each(|i| db.put(key(i), [2; 20]).unwrap()));
    for (i, hash, candidate) in candidates {
        let _pin = region.pins.pin();
        let found = candidate.find_pinned(&region.windows, hash, |addr| {
            let pair = region.view.pair(addr)?;
            Ok((pair.key == key(i)).then_some(pair.value))
        });
        assert_eq!(found.unwrap(), Some(&[2; 20][..]), "key {i}");
    }
}
