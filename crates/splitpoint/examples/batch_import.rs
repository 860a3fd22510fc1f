//! Imports lines of `key TAB value` from standard input, a thousand at a time. Each batch is stored
//! atomically, together with the number of lines done, so an interrupted import continues where it
//! stopped.
//!
//! ```sh
//! seq 1 100000 | awk '{ print $1 "\t" $1 * $1 }' > squares.tsv
//! cargo run --release --example batch_import squares.spt < squares.tsv
//! ```

use std::error::Error;
use std::io::{self, BufRead, Write};

use splitpoint::{Batch, Durability, Options};

/// Lines per batch.
const BATCH_LINES: u64 = 1000;

/// The key of the number of lines done. No line has this key, because it contains a tab.
const DONE: &str = "\tlines done";

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give the path of the store")?;
    let db = Options::new().durability(Durability::Sync).open(path)?;
    let mut done = match db.get(DONE)? {
        Some(bytes) => u64::from_le_bytes((*bytes).try_into()?),
        None => 0,
    };
    let skipped = done;

    let mut batch = Batch::new();
    for line in io::stdin().lock().lines().skip(usize::try_from(done)?) {
        let line = line?;
        let (key, value) = line.split_once('\t').ok_or_else(|| format!("no tab: {line}"))?;
        batch = batch.put(key, value);
        done += 1;
        if done % BATCH_LINES == 0 {
            db.apply(&batch.put(DONE, done.to_le_bytes()))?;
            batch = Batch::new();
        }
    }
    db.apply(&batch.put(DONE, done.to_le_bytes()))?;

    let (new, keys) = (done - skipped, db.len() - 1);
    writeln!(io::stdout(), "{new} lines imported, {skipped} skipped; {keys} keys")?;
    db.close()?;
    Ok(())
}
