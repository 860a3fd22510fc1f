//! Copies a store while another thread writes to it. The copy is consistent: it has every change up
//! to one moment, and none after it.
//!
//! ```sh
//! cargo run --release --example backup_while_writing
//! ```

use std::error::Error;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use splitpoint::Db;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path().join("live.spt"))?;
    db.put_many((0..100_000_u64).map(|i| (i.to_le_bytes(), "from before the backup")))?;

    let is_done = AtomicBool::new(false);
    let copy_path = dir.path().join("copy.spt");
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut next = 100_000_u64;
            while !is_done.load(Relaxed) {
                db.put(next.to_le_bytes(), "from during the backup")?;
                next += 1;
            }
            Ok::<u64, splitpoint::Error>(next)
        });
        let copied = db.backup(&copy_path);
        is_done.store(true, Relaxed);
        let written = writer.join().expect("the writer does not panic")?;
        copied.map(|_report| written)
    })?;

    let copy = Db::open(&copy_path)?;
    let keys = copy.len();
    // The writer stores numbers in order, so the copy has the first ones without a gap.
    for number in 0..keys {
        assert!(copy.contains(number.to_le_bytes())?);
    }
    writeln!(io::stdout(), "the store has {written} keys; the copy has the first {keys}")?;
    Ok(())
}
