//! Every store to an index line or to the live header as the last one of a process.
//!
//! The stores call [`may_be_killed`] before and after; a test makes of that what it wants: an end,
//! or a copy of the machine as a killed process leaves it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::hash::{HashFunction, HashId};
use crate::{Create, Db, Durability, Options, Recovery, SimDisk};

type Observer = Box<dyn FnMut()>;

thread_local! {
    static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
}

/// Tells the test of this thread, if there is one, that a store is about to happen or has.
pub(crate) fn may_be_killed() {
    // The observer itself may store.
    let observer = OBSERVER.take();
    if let Some(mut observer) = observer {
        observer();
        OBSERVER.set(Some(observer));
    }
}

/// Runs `change` while `observer` is told of each place.
fn observe<T>(observer: impl FnMut() + 'static, change: impl FnOnce() -> T) -> T {
    OBSERVER.set(Some(Box::new(observer)));
    let result = change();
    OBSERVER.set(None);
    result
}

/// Runs `change` and kills it at place `at`; returns whether it was still running.
pub(crate) fn is_killed(at: u64, change: impl FnOnce()) -> bool {
    let left = Cell::new(at);
    let observer = move || match left.get() {
        0 => std::panic::resume_unwind(Box::new("killed")),
        more => left.set(more - 1),
    };
    let change = std::panic::AssertUnwindSafe(|| observe(observer, change));
    let result = std::panic::catch_unwind(change);
    OBSERVER.set(None);
    result.is_err()
}

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn content(db: &Db) -> Content {
    let mut content = Content::new();
    for entry in db.scan().unwrap() {
        let entry = entry.unwrap();
        let earlier = content.insert(entry.key.to_vec(), entry.value.to_vec());
        assert_eq!(earlier, None, "a scan returned a key twice");
    }
    content
}

fn options(fill_factor: f64) -> Options {
    let few_bits = |key: &[u8], _| crate::hash::fnv1a_64(key) & 0b0001_0011;
    let hash = HashFunction::user(HashId(0x8000_0001), "few-bits", few_bits).unwrap();
    let options = Options::new().hash(hash).fill_factor(fill_factor).seed(1);
    options.segment_bytes_min(4096).durability(Durability::Buffered)
}

/// Opens the machine that a kill has left and checks that it holds `before` or `after`.
fn assert_left(disk: &SimDisk, options: &Options, before: &Content, after: &Content, at: &str) {
    let db = disk.open(&options.clone().create(Create::Never)).unwrap();
    let found = content(&db);
    assert!(found == *before || found == *after, "{at}: {} keys", found.len());
    assert_eq!(db.len(), found.len() as u64, "{at}");
    for (key, value) in &found {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]), "{at}");
    }
    let report = db.check().unwrap();
    assert!(report.is_clean(), "{at}: {:?}", report.damages);
    if let Recovery::TakenOver { records } = db.recovery() {
        assert!(records <= 2, "{at}: {records} records applied");
    }
    // What is left must also take changes: a line used twice would show now.
    for i in 0..12_u8 {
        db.put(&[200, i], &[i; 3]).unwrap();
        let _ = db.delete(&[i]).unwrap();
    }
    let report = db.check().unwrap();
    assert!(report.is_clean(), "{at}, later: {:?}", report.damages);
}

/// Kills a store at every store of a word while it grows, overwrites, shrinks, closes and is
/// opened again: the next process finds the change made or not made, and nothing else changed.
#[test]
fn a_kill_at_any_store_leaves_the_change_made_or_not_made() {
    let mut kill_count = 0;
    for fill_factor in [1.0, 7.0] {
        let options = options(fill_factor);
        let disk = Rc::new(SimDisk::new());
        let mut db = Some(disk.open(&options).unwrap());
        let mut model = Content::new();
        for step in 0..170_u64 {
            let before = model.clone();
            let key = vec![(step % 60) as u8];
            let value = vec![step as u8; if step % 17 == 3 { 1500 } else { 20 }];
            let copies = Rc::new(RefCell::new(Vec::new()));
            let observer = {
                let (disk, copies) = (disk.clone(), copies.clone());
                move || copies.borrow_mut().push(disk.kill())
            };
            observe(observer, || match step {
                80 | 130 => {
                    db.take().unwrap().close().unwrap();
                    db = Some(disk.open(&options).unwrap());
                }
                0..90 => {
                    db.as_ref().unwrap().put(&key, &value).unwrap();
                    model.insert(key.clone(), value.clone());
                }
                _ => {
                    let was_there = model.remove(&key).is_some();
                    assert_eq!(db.as_ref().unwrap().delete(&key).unwrap(), was_there);
                }
            });
            for (place, copy) in copies.take().iter().enumerate() {
                let at = format!("fill {fill_factor}, step {step}, place {place}");
                assert_left(copy, &options, &before, &model, &at);
                kill_count += 1;
            }
        }
        assert_eq!(content(db.as_ref().unwrap()), model);
    }
    assert!(kill_count > 1500, "{kill_count}");
}
