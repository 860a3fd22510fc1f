//! Times `apply` and a transaction of so many new keys, in a new store in a directory: `COUNT DIR`.

use std::time::{Duration, Instant};

use splitpoint::{Change, Db, TableExt as _};

fn micros(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

fn main() {
    let mut args = std::env::args().skip(1);
    let count: u64 = args.next().unwrap().parse().unwrap();
    let path = std::path::Path::new(&args.next().unwrap()).join("timed.spt");
    let keys: Vec<String> = (0..count).map(|i| format!("key {i:010}")).collect();
    let value = [7; 100];

    let _ = std::fs::remove_file(&path);
    let db = Db::open(&path).unwrap();
    let batch: Vec<Change<'_>> =
        keys.iter().map(|key| Change::Put { key: key.as_bytes(), value: &value }).collect();
    let begun = Instant::now();
    db.apply(&batch).unwrap();
    let apply = begun.elapsed();
    assert_eq!(db.len(), count);
    db.close().unwrap();

    std::fs::remove_file(&path).unwrap();
    let db = Db::open(&path).unwrap();
    let mut transaction = db.begin().unwrap();
    let begun = Instant::now();
    for key in &keys {
        transaction.put(key, value).unwrap();
    }
    let put = begun.elapsed();
    let begun = Instant::now();
    transaction.commit().unwrap();
    let commit = begun.elapsed();
    assert_eq!(db.len(), count);
    db.close().unwrap();
    println!(
        "{count} keys, us each: apply {:.2}, put {:.2}, commit {:.2}",
        micros(apply, count),
        micros(put, count),
        micros(commit, count)
    );
}
