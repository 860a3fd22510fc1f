//! One table in memory for several threads: readers take no lock, writers take turns.
//!
//! ```sh
//! cargo run --release --example threads_in_memory
//! ```

use std::error::Error;
use std::io::{self, Write};
use std::thread;

use splitpoint::Db;

const THREADS: u64 = 4;
const NUMBERS: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let db = Db::in_memory()?;

    // A clone of the handle is the same table; each thread gets one.
    let writers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let db = db.clone();
            thread::spawn(move || -> splitpoint::Result<()> {
                for number in (thread..NUMBERS).step_by(THREADS as usize) {
                    db.put(number.to_le_bytes(), (number * number).to_le_bytes())?;
                    db.update("sum", |sum| Some((sum.map_or(0, decode) + number).to_le_bytes()))?;
                }
                Ok(())
            })
        })
        .collect();
    for writer in writers {
        writer.join().expect("no writer panics")?;
    }

    // Scoped threads can borrow the handle instead.
    let found: u64 = thread::scope(|scope| {
        let readers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let db = &db;
                scope.spawn(move || -> splitpoint::Result<u64> {
                    let mut found = 0;
                    for number in (thread..NUMBERS).step_by(THREADS as usize) {
                        let square = db.get(number.to_le_bytes())?;
                        found += u64::from(square.is_some_and(|it| decode(&it) == number * number));
                    }
                    Ok(found)
                })
            })
            .collect();
        let found = readers.into_iter().map(|reader| reader.join().expect("no reader panics"));
        found.sum::<splitpoint::Result<u64>>()
    })?;

    let sum = db.get("sum")?.map_or(0, |sum| decode(&sum));
    assert_eq!((found, sum), (NUMBERS, NUMBERS * (NUMBERS - 1) / 2));
    writeln!(io::stdout(), "{found} squares found, the numbers add up to {sum}")?;
    Ok(())
}

fn decode(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("numbers are stored in 8 bytes"))
}
