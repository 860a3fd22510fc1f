//! Transactions beyond `transaction_bytes`, which are kept in files until they commit.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use splitpoint::{Db, Durability, ErrorKind, Options, Savepoint, Sharing, SimDisk, Transaction};

use crate::support::{assert_content, tiny};

const ENOSPC: i32 = 28;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u16),
    Delete(u8),
    Save,
    RollBack(usize),
    Start,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..40_u8, 0..700_u16).prop_map(|(key, bytes)| Step::Put(key, bytes)),
        2 => (0..40_u8).prop_map(Step::Delete),
        1 => Just(Step::Save),
        1 => any::<usize>().prop_map(Step::RollBack),
        1 => (0..30_u8).prop_filter_map("rarely", |i| (i == 0).then_some(Step::Start)),
    ]
}

fn open(path: &Path, transaction_bytes: u64, sharing: Sharing) -> Db {
    let options = Options::new().transaction_bytes(transaction_bytes).sharing(sharing);
    options.segment_bytes_min(4096).open(path).expect("works")
}

fn scanned(tx: &mut Transaction<'_>) -> Content {
    let mut content = Content::new();
    for entry in tx.scan().expect("works") {
        let entry = entry.expect("works");
        let twice = content.insert(entry.key.to_vec(), entry.value.to_vec());
        assert_eq!(twice, None, "each key comes once");
    }
    content
}

fn run(tx: &mut Transaction<'_>, before: &Content, steps: &[Step]) -> Content {
    let mut content = before.clone();
    let mut saved: Vec<(Savepoint, Content)> = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        match step {
            Step::Put(key, bytes) => {
                let value = vec![i as u8; usize::from(*bytes)];
                tx.put([*key], &value).expect("works");
                content.insert(vec![*key], value);
            }
            Step::Delete(key) => {
                tx.delete([*key]).expect("works");
                content.remove(&[*key][..]);
            }
            Step::Save => saved.push((tx.savepoint(), content.clone())),
            Step::RollBack(which) if !saved.is_empty() => {
                saved.truncate(which % saved.len() + 1);
                let (savepoint, then) = saved.last().expect("works");
                tx.rollback_to(*savepoint);
                content.clone_from(then);
            }
            Step::RollBack(_) => {}
            Step::Start => {
                tx.rollback();
                saved.clear();
                content.clone_from(before);
            }
        }
        let key = [(i * 7 % 40) as u8];
        assert_eq!(
            tx.get(key).expect("works").as_deref(),
            content.get(&key[..]).map(Vec::as_slice)
        );
    }
    assert_eq!(scanned(tx), content);
    assert_eq!(tx.len().expect("works"), content.len() as u64);
    content
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_spilled_transaction_reads_and_undoes_as_one_in_memory(
        steps in prop::collection::vec(step(), 0..150),
        transaction_bytes in prop_oneof![Just(0_u64), Just(3000), Just(1 << 20)],
        is_shared in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let sharing = if is_shared { Sharing::Shared } else { Sharing::OneWriter };
        let db = open(&path, transaction_bytes, sharing);
        let mut before = Content::new();
        for key in 0..20_u8 {
            db.put([key], [key; 30]).unwrap();
            before.insert(vec![key], vec![key; 30]);
        }
        let mut tx = db.begin().unwrap();
        let content = run(&mut tx, &before, &steps);
        prop_assert_eq!(db.len(), 20, "not before the commit");
        prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no file has a name");
        tx.commit().unwrap();
        let found: Content =
            db.scan().unwrap().map(|entry| entry.unwrap()).map(|it| (it.key.to_vec(), it.value.to_vec())).collect();
        prop_assert_eq!(&found, &content);
        prop_assert!(db.check().unwrap().is_clean());
        drop(db);
        prop_assert_eq!(open(&path, 0, Sharing::OneWriter).len(), content.len() as u64);
    }
}

/// Every key is new in a store of few buckets.
#[test]
fn a_spilled_transaction_of_many_new_keys_leaves_chains_as_short_as_puts_do() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().seed(3);
    let (spilled, put) = (dir.path().join("spilled.spt"), dir.path().join("put.spt"));
    let (spilled, put) =
        (options.clone().transaction_bytes(1 << 12).open(spilled), options.open(put));
    let (spilled, put) = (spilled.unwrap(), put.unwrap());
    let mut tx = spilled.begin().unwrap();
    for i in 0..30_000_u32 {
        tx.put(i.to_le_bytes(), (!i).to_le_bytes()).unwrap();
        put.put(i.to_le_bytes(), (!i).to_le_bytes()).unwrap();
    }
    tx.commit_with(Durability::Sync).unwrap();
    let (found, expected) = (spilled.stats().unwrap(), put.stats().unwrap());
    assert_eq!(spilled.len(), 30_000);
    for i in (0..30_000_u32).step_by(97) {
        assert_eq!(spilled.get(i.to_le_bytes()).unwrap().unwrap(), (!i).to_le_bytes());
    }
    let buckets = |stats: &splitpoint::stats::Stats| stats.geometry.bucket_count();
    let (found, expected) = (buckets(&found), buckets(&expected));
    assert!((expected * 9 / 10..expected * 11 / 10).contains(&found), "{found} of {expected}");
    // All are deleted again, and the index shrinks.
    let mut tx = spilled.begin().unwrap();
    for i in 0..30_000_u32 {
        tx.delete(i.to_le_bytes()).unwrap();
    }
    tx.commit().unwrap();
    assert!(spilled.is_empty() && spilled.check().unwrap().is_clean());
    assert!(buckets(&spilled.stats().unwrap()) < found / 2);
}

#[test]
fn a_spilled_transaction_conflicts_and_is_run_again_with_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir.path().join("a.spt"), 100, Sharing::OneWriter);
    let mut runs = 0;
    let done = db.transaction(|tx| {
        runs += 1;
        tx.get("counter")?;
        if runs < 3 {
            db.put("counter", [runs as u8])?;
        }
        for i in 0..50_u8 {
            tx.put([i], [i; 50])?;
        }
        Ok(())
    });
    done.unwrap();
    assert_eq!((runs, db.len()), (3, 51));
}

#[test]
fn a_scan_of_a_spilled_transaction_whose_changes_are_rolled_back_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(&dir.path().join("a.spt"), 0, Sharing::OneWriter);
    let mut tx = db.begin().unwrap();
    tx.put("a", "1").unwrap();
    let before = tx.savepoint();
    tx.put("b", "2").unwrap();
    let mut scan = tx.scan().unwrap();
    tx.put("c", "3").unwrap();
    assert_eq!(scan.next().unwrap().unwrap().key, b"a", "not what came later");
    tx.rollback_to(before);
    assert_eq!(scan.next().unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    tx.commit().unwrap();
    assert_eq!(db.len(), 1);
}

/// Nothing of it stays: no change, no bucket, nothing that counts as dead and is not there.
#[test]
fn a_spilled_transaction_that_fails_anywhere_has_changed_nothing() {
    let options = tiny().transaction_bytes(0).durability(Durability::Buffered);
    let (mut error_count, mut is_made) = (0, false);
    for call in (1..).step_by(5) {
        let disk = SimDisk::new();
        let db = disk.open(&options).unwrap();
        let mut before = Content::new();
        // Often enough that records are moved and segments used again.
        for _ in 0..20 {
            for i in 0..40_u32 {
                db.put(i.to_le_bytes(), [9; 60]).unwrap();
                before.insert(i.to_le_bytes().to_vec(), vec![9; 60]);
            }
            db.maintain(u64::MAX).unwrap();
        }
        let stats = db.stats().unwrap();
        assert!(stats.segments.log < 20 * 40 * 60, "it compacts: {stats:#?}");
        let bucket_count = stats.geometry.bucket_count();
        let mut tx = db.begin().unwrap();
        for i in 0..1_000_u32 {
            let value_bytes = if i % 100 == 50 { 30_000 } else { 20 };
            tx.put(i.to_le_bytes(), vec![1; value_bytes]).unwrap();
        }
        disk.fail_call(call, ENOSPC, true);
        let committed = tx.commit();
        disk.fail_call(u64::MAX, ENOSPC, false);
        let Err(error) = committed else {
            is_made = true;
            break;
        };
        error_count += 1;
        assert_eq!(error.kind(), ErrorKind::Io, "call {call}: {error}");
        assert_content(&db, &before);
        for _ in 0..3 {
            db.sync().unwrap();
            db.maintain(u64::MAX).unwrap();
        }
        let stats = db.stats().unwrap();
        assert!(stats.geometry.bucket_count() < 4 * bucket_count, "call {call}: {stats:#?}");
        let used = stats.segments;
        assert!(stats.dead_bytes <= used.log + used.big + used.waiting, "call {call}: {stats:#?}");
        assert!(db.check().unwrap().is_clean(), "call {call}");
    }
    assert!(is_made && error_count > 8, "{error_count} errors");
}
