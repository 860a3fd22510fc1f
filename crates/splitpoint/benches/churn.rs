//! What compaction costs and saves: a table whose values are overwritten again and again, with
//! compaction and without, by turns.
//!
//! ```sh
//! cargo bench -p splitpoint --bench churn -- [memory] [file] [compacted] [account] [RECORDS [TIMES [ROUNDS]]]
//! cargo bench -p splitpoint --bench churn -- deleted [account] [RECORDS]
//! ```
//!
//! By default in memory, with compaction and without, 250,000 records of 16 + 100 bytes, overwritten ten times, three rounds. `skewed`
//! puts four of five changes on a fifth of the keys. Of a file it prints the largest size while it was
//! used, and the blocks that it has when it is closed, by record. With `account` it also prints what the
//! bytes were for whenever the file had become larger, which takes time that the others do not have.
//!
//! With `deleted` it deletes nine of ten records of a file, and then all of another, and prints the blocks
//! of each when it is closed; with `account` also what they are for, by record that is left.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

mod support;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

use splitpoint::{Db, Durability, Options, Result};

use support::{key, mix, processor_ns};

const VALUE_BYTES: usize = 100;
/// Changes between two looks at the size of the file.
const LOOK_CHANGES: u64 = 4096;

fn value(version: u64) -> [u8; VALUE_BYTES] {
    let mut value = [version as u8; VALUE_BYTES];
    value[..8].copy_from_slice(&version.to_le_bytes());
    value
}

/// Returns the bytes of memory that this process has in use.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Overwrites the records of a new table and prints what that took.
fn run(
    name: &str,
    options: &Options,
    path: Option<&Path>,
    (records, times): (u64, u64),
    is_skewed: bool,
    has_account: bool,
) -> Result<()> {
    let before_bytes = resident_bytes();
    let db: Db = match path {
        Some(path) => options.open(path)?,
        None => options.in_memory()?,
    };
    let mut largest_bytes = 0;
    let begun = processor_ns();
    for number in 0..records {
        db.put(key(number), value(0))?;
    }
    let created = processor_ns();
    let mut versions = vec![0_u64; records as usize];
    let mut latencies = Vec::with_capacity((records * times) as usize);
    for change in 0..records * times {
        let random = mix(change);
        let is_hot = is_skewed && random >> 32 & 0xff < 205;
        let number = random % if is_hot { records / 5 } else { records };
        versions[number as usize] = change + 1;
        let before = Instant::now();
        db.put(key(number), value(change + 1))?;
        latencies.push(u32::try_from(before.elapsed().as_nanos()).unwrap_or(u32::MAX));
        if let Some(path) = path
            && change % LOOK_CHANGES == 0
        {
            let bytes = allocated_bytes(path);
            if has_account && bytes > largest_bytes + records {
                print_account(&db, change, bytes)?;
            }
            largest_bytes = bytes.max(largest_bytes);
        }
    }
    let overwritten = processor_ns();
    for (number, &version) in versions.iter().enumerate() {
        assert_eq!(db.get(key(number as u64))?.expect("it was stored"), value(version));
    }
    let stats = db.stats()?;
    latencies.sort_unstable();
    let quantile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    let of_each = |bytes: u64| bytes as f64 / records as f64;
    println!(
        "{name:<18} create {:>5.0} ns  overwrite {:>5.0} ns  median {:>4}  p99 {:>5}  p99.9 {:>6}  worst {:>8} ns  \
         {:>6.0} B/record in use, {:>6.0} resident  written {:.2}",
        (created - begun) as f64 / records as f64,
        (overwritten - created) as f64 / (records * times) as f64,
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        quantile(1.0),
        of_each(stats.file_bytes),
        of_each(resident_bytes().saturating_sub(before_bytes)),
        stats.write_amplification(),
    );
    if let Some(path) = path {
        db.close()?;
        let begun = Instant::now();
        let db = Db::open(path)?;
        let opened = begun.elapsed();
        assert_eq!(db.len(), records);
        db.close()?;
        println!(
            "{:<18} file {:>6.0} B/record at most, {:>6.0} closed, opened in {:.2} ms",
            "",
            of_each(largest_bytes),
            of_each(allocated_bytes(path)),
            opened.as_secs_f64() * 1000.0,
        );
        let removed = std::fs::remove_file(path);
        removed.expect("the file was closed");
    }
    Ok(())
}

/// Stores records in a file, deletes all but one of `kept_of` or all, and prints what blocks the file has
/// when it is closed.
fn delete(
    options: &Options,
    path: &Path,
    records: u64,
    kept_of: Option<u64>,
    has_account: bool,
) -> Result<()> {
    let db = options.open(path)?;
    for number in 0..records {
        db.put(key(number), value(0))?;
    }
    db.close()?;
    let full_bytes = allocated_bytes(path);
    let db = options.open(path)?;
    let begun = processor_ns();
    for number in 0..records {
        if kept_of.is_none_or(|count| !mix(number).is_multiple_of(count)) {
            db.delete(key(number))?;
        }
    }
    let deleted = processor_ns();
    let (left, live_bytes) = (db.len(), db.stats()?.live_bytes);
    if has_account {
        print_account(&db, records, allocated_bytes(path))?;
    }
    db.close()?;
    if has_account {
        print_account(&options.clone().read_only().open(path)?, records, allocated_bytes(path))?;
    }
    println!(
        "{records} records, {} MiB: {left} are left, {:.1} MiB live; a delete {:.0} ns, the close {:.2} s; \
         {:.3} MiB closed, {:.2} of live",
        full_bytes >> 20,
        live_bytes as f64 / f64::from(1 << 20),
        (deleted - begun) as f64 / (records - left) as f64,
        (processor_ns() - deleted) as f64 / 1e9,
        allocated_bytes(path) as f64 / f64::from(1 << 20),
        allocated_bytes(path) as f64 / live_bytes as f64,
    );
    let removed = std::fs::remove_file(path);
    removed.expect("the file was closed");
    Ok(())
}

/// Prints what the bytes of a file are for, by record: `allocated_bytes` are those that it has on the disk.
fn print_account(db: &Db, change: u64, allocated_bytes: u64) -> Result<()> {
    let stats = db.stats()?;
    let of_each = |bytes: u64| bytes as f64 / stats.record_count.max(1) as f64;
    let segments = stats.segments;
    let used = [
        ("live", stats.live_bytes),
        ("dead", stats.dead_bytes),
        ("ends", (segments.log + segments.big).saturating_sub(stats.live_bytes + stats.dead_bytes)),
        ("waiting", segments.waiting),
        ("index", segments.index + segments.overflow),
        ("checkpoints", segments.checkpoint),
        ("table", segments.header + segments.segment_table),
    ];
    print!("    change {change:>8} {:>6.1} on the disk =", of_each(allocated_bytes));
    let sum: u64 = used.iter().map(|&(_, bytes)| bytes).sum();
    for (name, bytes) in used {
        print!("  {name} {:.1}", of_each(bytes));
    }
    println!("  free {:.1}", of_each(allocated_bytes.saturating_sub(sum)));
    Ok(())
}

/// Returns the bytes of the blocks that a file has.
fn allocated_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.blocks() * 512)
}

fn main() -> Result<()> {
    let numbers: Vec<u64> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let number = |i: usize, otherwise| numbers.get(i).copied().unwrap_or(otherwise);
    let (records, times, rounds) = (number(0, 250_000), number(1, 10), number(2, 3));
    let options = Options::new().durability(Durability::Buffered);
    let has = |word: &str| std::env::args().any(|arg| arg == word);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("churn.spt");
    if has("deleted") {
        delete(&options, &file, records, Some(10), has("account"))?;
        return delete(&options, &file, records, None, has("account"));
    }
    let places = [(has("memory") || !has("file"), None), (has("file"), Some(&*file))];
    for _ in 0..rounds {
        for (_, path) in places.into_iter().filter(|(is_asked, _)| *is_asked) {
            for is_skewed in [false, true] {
                let kind = if is_skewed { "skewed" } else { "uniform" };
                let plain = options.clone().keep_dead_records();
                if !has("compacted") {
                    run(
                        &format!("{kind}, kept"),
                        &plain,
                        path,
                        (records, times),
                        is_skewed,
                        has("account"),
                    )?;
                }
                let compacted = options.clone().live_share(0.78);
                run(
                    &format!("{kind}, 0.78"),
                    &compacted,
                    path,
                    (records, times),
                    is_skewed,
                    has("account"),
                )?;
            }
        }
    }
    Ok(())
}
