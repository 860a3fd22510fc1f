//! Keys, values, pairs and batches in every form that programs use.

use std::collections::{BTreeMap, HashMap};

use splitpoint::{Db, ErrorKind, Options};

#[test]
fn keys_and_values_are_taken_in_every_form_that_has_bytes() {
    let db = Db::in_memory().unwrap();
    db.put("str", String::from("a string")).unwrap();
    db.put(vec![1, 2], [3; 4]).unwrap();
    db.put(&vec![5][..], Box::<[u8]>::from([6])).unwrap();
    let value = db.get("str").unwrap().unwrap();
    assert!(db.put_new(&value, value.clone()).unwrap());
    assert_eq!(db.get(String::from("str")).unwrap().unwrap(), "a string");
    assert_eq!(db.get([1, 2]).unwrap().unwrap(), [3; 4]);
    assert_eq!(db.get("a string").unwrap().unwrap(), "a string");
    assert!(db.contains(&[5]).unwrap() && db.delete([5]).unwrap());
    assert!(!db.contains([5]).unwrap());
}

#[test]
fn put_many_and_get_many_take_any_iterator_of_any_length() {
    for count in [0, 1, 31, 32, 33, 64, 65, 1000_u32] {
        let db = Db::in_memory().unwrap();
        db.put_many((0..count).map(|i| (i.to_le_bytes(), format!("value {i}")))).unwrap();
        assert_eq!(db.len(), u64::from(count));
        let values = db.get_many((0..=count).map(u32::to_le_bytes)).unwrap();
        assert_eq!(values.len(), count as usize + 1);
        for (i, value) in values.iter().take(count as usize).enumerate() {
            assert_eq!(*value.as_ref().unwrap(), format!("value {i}"));
        }
        assert_eq!(values[count as usize], None);
    }
}

#[test]
fn put_many_takes_maps_slices_and_what_a_scan_returns() {
    let db = Db::in_memory().unwrap();
    db.put_many(&HashMap::from([("a", vec![1])])).unwrap();
    db.put_many(BTreeMap::from([(String::from("b"), "2")])).unwrap();
    db.put_many(&[("c", "3"), ("d", "4")]).unwrap();
    let copy = Db::in_memory().unwrap();
    copy.put_many(db.scan().unwrap().map(Result::unwrap)).unwrap();
    assert_eq!(copy.len(), 4);
    assert_eq!(copy.get("d").unwrap().unwrap(), "4");
}

/// An iterator that would deadlock if a lock were held while it produces items.
#[test]
fn the_iterator_of_put_many_may_use_the_store() {
    let db = Db::in_memory().unwrap();
    let pairs = (0..100_u8).map(|i| {
        db.put([i, i], "inside").unwrap();
        ([i], db.len().to_le_bytes())
    });
    db.put_many(pairs).unwrap();
    assert_eq!(db.len(), 200);
}

#[test]
fn put_many_of_an_iterator_stores_the_pairs_before_the_one_that_failed() {
    let too_large = vec![0; 1 << 32];
    for refused in [0, 1, 31, 32, 33, 63, 64, 99] {
        let db = Options::new().in_memory().unwrap();
        let value = |i| if i == refused { &too_large[..] } else { b"value" };
        let pairs = (0..100_u8).map(|i| ([i], value(i)));
        assert_eq!(db.put_many(pairs).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(db.len(), u64::from(refused));
        assert!((0..refused).all(|i| db.contains([i]).unwrap()));
    }
}
