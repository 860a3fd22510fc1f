//! Times one phase after the other on a file of the 1991 package, in processor time per key.
//!
//! `cargo run --release -p splitpoint-legacy --example race KEYS FILE CACHE_BYTES`, where KEYS has
//! one key a line. What the original and Berkeley DB take for the same is measured by `race.c` in
//! `record/2026-11-21-xeon-2core/db185`, which prints the same lines.

use std::error::Error;
use std::fs;
use std::io::Write as _;

use splitpoint::{PutMode, Table};
use splitpoint_legacy::db185::Options;

/// Returns the processor time of this thread so far, in nanoseconds.
fn processor_ns() -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("no time")?.parse()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, keys, file, cache_bytes] = &arguments[..] else {
        return Err("usage: race KEYS FILE CACHE_BYTES".into());
    };
    let keys = fs::read(keys)?;
    let keys: Vec<&[u8]> =
        keys.split(|&byte| byte == b'\n').filter(|key| !key.is_empty()).collect();
    let _ = fs::remove_file(file);
    let options = Options::new().page_bytes(4096).cache_bytes(cache_bytes.parse()?);
    let mut out = std::io::stdout().lock();
    let mut begun = processor_ns()?;
    let mut phase = |name: &str| -> Result<(), Box<dyn Error>> {
        let now = processor_ns()?;
        writeln!(out, "{name} {}", (now - begun) / keys.len() as u64)?;
        begun = processor_ns()?;
        Ok(())
    };

    let table = options.open(file)?;
    for (number, key) in (1..).zip(&keys) {
        let number: u64 = number;
        table.put(key, number.to_string().as_bytes(), PutMode::Replace)?;
    }
    phase("create")?;
    table.close()?;
    phase("close")?;
    let table = options.open(file)?;
    for key in &keys {
        assert!(table.get(key)?.is_some(), "a key is missing");
    }
    phase("hit")?;
    for key in &keys {
        let absent = [key, &b"~"[..]].concat();
        assert!(table.get(&absent)?.is_none(), "a key is there that nobody put");
    }
    phase("miss")?;
    assert_eq!(table.scan()?.count(), keys.len());
    phase("scan")?;
    for key in &keys {
        assert!(table.delete(key)?, "a key is missing");
    }
    phase("delete")?;
    table.close()?;
    Ok(())
}
