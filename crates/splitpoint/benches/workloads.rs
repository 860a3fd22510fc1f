//! The whole workloads W1, W2 and W3 of `docs/bench.md`, once each, with every answer checked.
//!
//! ```text
//! cargo bench --bench workloads -- [W1|W2|W3]... [--records N] [--memory] [--words FILE] [--json]
//! ```
//!
//! Keys and values are made before the clock starts. A figure is nanoseconds per operation unless
//! it says otherwise.

#![expect(clippy::print_stdout, reason = "a program that prints its measurements")]

use std::path::PathBuf;
use std::time::Instant;

use splitpoint::{Db, Options};

type Run = Result<(), Box<dyn std::error::Error>>;

fn main() -> Run {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut plan = Plan::default();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value"));
        match arg.as_str() {
            "--records" => plan.record_count = value()?.replace('_', "").parse()?,
            "--words" => plan.words = Some(value()?.into()),
            "--dir" => plan.dir = Some(value()?.into()),
            "--memory" => plan.in_memory = true,
            "W1" | "W2" | "W3" => plan.workloads.push(arg),
            _ => return Err(format!("unknown argument {arg}").into()),
        }
    }
    if plan.workloads.is_empty() {
        plan.workloads = vec!["W1".into(), "W2".into(), "W3".into()];
    }
    for workload in &plan.workloads {
        match workload.as_str() {
            "W1" => words(&plan)?,
            "W2" => random_keys(&plan, "W2", 16, 100)?,
            _ => random_keys(&plan, "W3", 8, 8)?,
        }
    }
    Ok(())
}

struct Plan {
    workloads: Vec<String>,
    record_count: usize,
    in_memory: bool,
    words: Option<PathBuf>,
    dir: Option<PathBuf>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            workloads: Vec::new(),
            record_count: 10_000_000,
            in_memory: false,
            words: None,
            dir: None,
        }
    }
}

impl Plan {
    fn dir(&self) -> Result<tempfile::TempDir, std::io::Error> {
        match &self.dir {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir_in("."),
        }
    }
}

fn splitmix64(i: u64) -> u64 {
    let z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Writes key `i` of a workload.
fn write_key(i: u64, key: &mut [u8]) {
    let bits = splitmix64(i);
    if key.len() == 8 {
        key.copy_from_slice(&bits.to_le_bytes());
        return;
    }
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (digit, byte) in key.iter_mut().enumerate() {
        *byte = DIGITS[(bits >> (60 - 4 * digit) & 15) as usize];
    }
}

/// Keys one after the other in memory.
struct Keys {
    bytes: Vec<u8>,
    len: usize,
}

impl Keys {
    fn new(indices: impl Iterator<Item = u64>, len: usize) -> Self {
        let mut bytes = Vec::new();
        let mut key = vec![0; len];
        for i in indices {
            write_key(i, &mut key);
            bytes.extend_from_slice(&key);
        }
        Self { bytes, len }
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks_exact(self.len)
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.len
    }
}

/// Runs `work`, prints nanoseconds per operation and returns what it returns.
fn timed<T>(name: &str, count: usize, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let elapsed = start.elapsed();
    println!(
        "  {name:<22} {:>10.1} ns/op   {:>8.3} s",
        elapsed.as_nanos() as f64 / count.max(1) as f64,
        elapsed.as_secs_f64()
    );
    result
}

fn open(plan: &Plan, path: &std::path::Path) -> splitpoint::Result<Db> {
    if plan.in_memory { Options::new().in_memory() } else { Db::open(path) }
}

fn random_keys(plan: &Plan, name: &str, key_bytes: usize, value_bytes: usize) -> Run {
    let n = plan.record_count;
    println!(
        "{name}: {n} records of {key_bytes} + {value_bytes} bytes{}",
        if plan.in_memory { " in memory" } else { "" }
    );
    let keys = Keys::new(0..n as u64, key_bytes);
    let values: Vec<u8> =
        (0..(1 << 20) / 8).flat_map(|i| splitmix64(i ^ 0x5555).to_le_bytes()).collect();
    let value_of = |i: usize| &values[(i * 8) % (values.len() - 128)..][..value_bytes];
    let dir = plan.dir()?;
    let path = dir.path().join("bench.spt");
    let db = open(plan, &path)?;
    let mut worst = 0;
    timed("create", n, || -> splitpoint::Result<()> {
        for (i, key) in keys.iter().enumerate() {
            db.put(key, value_of(i))?;
        }
        Ok(())
    })?;
    let db = if plan.in_memory {
        db
    } else {
        timed("sync + close", 1, || db.close())?;
        timed("reopen", 1, || Db::open(&path))?
    };
    let stats = db.stats()?;
    println!("  {:<22} {:>10.1} B/record", "file", stats.file_bytes as f64 / n as f64);
    println!(
        "  {:<22} {:>10.3} of {} buckets, probes {:.3} hit {:.3} miss",
        "overflow lines/bucket",
        stats.overflow_line_count as f64 / stats.geometry.bucket_count() as f64,
        stats.geometry.bucket_count(),
        stats.chains.probes_hit,
        stats.chains.probes_miss
    );
    let picks: Vec<u64> = (0..n as u64 / 2).map(|i| splitmix64(i ^ 0xabcd) % n as u64).collect();
    let hits = Keys::new(picks.iter().copied(), key_bytes);
    for round in 0..2 {
        timed(if round == 0 { "hit, first pass" } else { "hit" }, hits.count(), || {
            for (key, &i) in hits.iter().zip(&picks) {
                let value = db.get(key).unwrap().expect("the key is there");
                assert!(value.len() == value_bytes);
                if i % 256 == 0 {
                    assert_eq!(&*value, value_of(i as usize));
                }
            }
        });
    }
    let misses = Keys::new((0..n as u64 / 2).map(|i| i + 0x1_0000_0000), key_bytes);
    timed("miss", misses.count(), || {
        for key in misses.iter() {
            assert!(db.get(key).unwrap().is_none());
        }
    });
    let refs: Vec<&[u8]> = hits.iter().collect();
    timed("hit, get_many of 32", refs.len(), || {
        for (batch, picks) in refs.chunks(32).zip(picks.chunks(32)) {
            for (value, &i) in db.get_many(batch).unwrap().iter().zip(picks) {
                let value = value.as_ref().expect("the key is there");
                assert!(value.len() == value_bytes);
                if i % 256 == 0 {
                    assert_eq!(&**value, value_of(i as usize));
                }
            }
        }
    });
    let mut sum = 0_u64;
    let count = timed("scan with data", n, || {
        let mut count = 0;
        for entry in db.scan().unwrap() {
            let entry = entry.unwrap();
            sum += u64::from(entry.value[0]) + entry.key.len() as u64;
            count += 1;
        }
        count
    });
    assert_eq!(count, n);
    std::hint::black_box(sum);
    let overwritten = n / 5;
    timed("overwrite", overwritten, || {
        for (key, &i) in hits.iter().zip(&picks).take(overwritten) {
            db.put(key, value_of(i as usize)).unwrap();
        }
    });
    let mut deleted = 0;
    let deletes = Keys::new((0..overwritten as u64).map(|i| i * 5 + 1), key_bytes);
    timed("delete", deletes.count(), || {
        for key in deletes.iter() {
            deleted += usize::from(db.delete(key).unwrap());
        }
    });
    assert_eq!(db.len() as usize, n - deleted);
    if !plan.in_memory {
        timed("sync + close", 1, || db.close())?;
    }
    drop(dir);
    // Apart, since the clock costs as much as a fifth of a put.
    let dir = plan.dir()?;
    let db = open(plan, &dir.path().join("bench.spt"))?;
    let mut latencies = Vec::with_capacity(n);
    for (i, key) in keys.iter().enumerate() {
        let start = Instant::now();
        db.put(key, value_of(i))?;
        let ns = start.elapsed().as_nanos() as u64;
        worst = worst.max(ns);
        latencies.push(ns);
    }
    latencies.sort_unstable();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    println!(
        "  {:<22} p50 {} ns, p99 {} ns, p99.99 {} us, worst {:.3} ms",
        "put",
        at(0.5),
        at(0.99),
        at(0.9999) / 1000,
        worst as f64 / 1e6
    );
    Ok(())
}

fn words(plan: &Plan) -> Run {
    let path = plan.words.clone().unwrap_or("/usr/share/dict/american-english-huge".into());
    let Ok(text) = std::fs::read(&path) else {
        println!("W1: skipped, no word list at {} (Debian: wamerican-huge)", path.display());
        return Ok(());
    };
    let all: Vec<&[u8]> =
        text.split(|&byte| byte == b'\n').filter(|word| !word.is_empty()).collect();
    for count in [24_474.min(all.len()), all.len()] {
        let words = &all[..count];
        let values: Vec<String> = (1..=count).map(|i| i.to_string()).collect();
        let mut millis: Vec<f64> = Vec::new();
        for _ in 0..7 {
            let dir = plan.dir()?;
            let start = Instant::now();
            let db = open(plan, &dir.path().join("words.spt"))?;
            for (word, value) in words.iter().zip(&values) {
                db.put(word, value.as_bytes())?;
            }
            db.sync()?;
            for word in words {
                assert!(db.get(word)?.is_some());
            }
            for (word, value) in words.iter().zip(&values) {
                assert_eq!(db.get(word)?.as_deref(), Some(value.as_bytes()));
            }
            assert_eq!(db.scan()?.filter(Result::is_ok).count(), count);
            db.close()?;
            millis.push(start.elapsed().as_secs_f64() * 1e3);
        }
        millis.sort_by(f64::total_cmp);
        println!(
            "W1: {count} words, everything: median {:.1} ms, {:.1} to {:.1} of 7 runs",
            millis[3], millis[0], millis[6]
        );
    }
    Ok(())
}
