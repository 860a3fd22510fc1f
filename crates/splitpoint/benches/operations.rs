//! Single operations on a table of a million records, in memory and in a file, by criterion.
//!
//! ```text
//! cargo bench -p splitpoint --bench operations
//! ```

use criterion::{Criterion, criterion_group, criterion_main};
use splitpoint::Db;

const RECORD_COUNT: u64 = 1_000_000;

/// Returns key `i`: 16 bytes that look random and cost nothing to make.
fn key(i: u64) -> [u8; 16] {
    let bits = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let both = u128::from(bits) << 64 | u128::from(bits.rotate_left(32));
    both.to_le_bytes()
}

/// Returns keys to use one after the other, in no order.
fn keys(first: u64) -> Vec<[u8; 16]> {
    (0..RECORD_COUNT).map(|i| key(first + i.wrapping_mul(7_919) % RECORD_COUNT)).collect()
}

fn filled(db: Db) -> Db {
    for i in 0..RECORD_COUNT {
        db.put(&key(i), &[7; 100]).expect("there is room");
    }
    db
}

fn operations(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("bench.spt");
    for (place, db) in [("memory", Db::in_memory()), ("file", Db::open(&path))] {
        reads(criterion, place, &filled(db.expect("a store")));
    }
    changes(criterion);
}

fn reads(criterion: &mut Criterion, place: &str, db: &Db) {
    let mut group = criterion.benchmark_group(place);
    let (present, absent) = (keys(0), keys(RECORD_COUNT));
    let mut next = (0..present.len()).cycle();
    let mut at = move || next.next().expect("it never ends");
    group.bench_function("get hit", |bencher| {
        bencher.iter(|| db.get(&present[at()]).expect("no damage").expect("it is there").len());
    });
    let mut next = (0..absent.len()).cycle();
    let mut at = move || next.next().expect("it never ends");
    group.bench_function("get miss", |bencher| {
        bencher.iter(|| assert!(db.get(&absent[at()]).expect("no damage").is_none()));
    });
    let refs: Vec<&[u8]> = present.iter().map(|key| &key[..]).collect();
    let mut batches = refs.chunks_exact(32).cycle();
    group.bench_function("get_many of 32", |bencher| {
        bencher
            .iter(|| db.get_many(batches.next().expect("it never ends")).expect("no damage").len());
    });
    group.bench_function("scan of 1,000,000", |bencher| {
        bencher.iter(|| db.scan().expect("no damage").flatten().count());
    });
    group.finish();
}

fn changes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memory");
    let db = Db::in_memory().expect("a table");
    let mut next = 0..;
    group.bench_function("put new", |bencher| {
        bencher.iter(|| db.put(&key(next.next().expect("it never ends")), &[7; 100]));
    });
    let keys: Vec<_> = (0..db.len().min(RECORD_COUNT)).map(key).collect();
    let mut again = keys.iter().cycle();
    group.bench_function("put again", |bencher| {
        bencher.iter(|| db.put(again.next().expect("it never ends"), &[8; 100]));
    });
    group.finish();
}

criterion_group!(benches, operations);
criterion_main!(benches);
