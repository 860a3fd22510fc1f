//! Counts the words of standard input in a store, which keeps the counts from run to run.
//!
//! ```sh
//! cargo run --example word_count counts.spt < README.md
//! ```

use std::error::Error;
use std::io::{self, BufRead, Write};

use splitpoint::Db;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give the path of the store")?;
    let db = Db::open(path)?;
    for line in io::stdin().lock().lines() {
        for word in line?.split_whitespace() {
            db.update(word, |count| Some((count.map_or(0, number) + 1).to_le_bytes()))?;
        }
    }

    let mut counts = Vec::new();
    for entry in &db {
        let entry = entry?;
        counts.push((number(&entry.value), entry.key.into_vec()));
    }
    counts.sort_by(|a, b| b.cmp(a));
    let mut out = io::stdout().lock();
    for (count, word) in counts.iter().take(10) {
        writeln!(out, "{count:>8} {}", String::from_utf8_lossy(word))?;
    }
    db.close()?;
    Ok(())
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("counts are stored in 8 bytes"))
}
