//! Every interleaving of readers that pin with a writer that uses a record again, by loom.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p splitpoint --profile loom --lib loom
//! ```

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::Pins;
use crate::atomic::{AtomicU64, Ordering};
use crate::testing::mutant::{self, Mutant};

/// Grace periods that the writer begins.
const PERIODS: usize = 2;

/// A slot that leads to one record after the other, and the pins of its readers.
struct Table {
    pins: Pins,
    slot: AtomicU64,
    /// Loom fails when one thread writes to a cell that another may be reading.
    records: [UnsafeCell<u64>; PERIODS + 1],
}

impl Table {
    fn new() -> Self {
        Self {
            pins: Pins::default(),
            slot: AtomicU64::new(0),
            records: std::array::from_fn(|_| UnsafeCell::new(0)),
        }
    }

    /// Reads the record that the slot leads to.
    fn read(&self, place: usize) {
        let pin = self.pins.pin_at(place);
        let record = self.slot.load(Ordering::Acquire) as usize;
        self.records[record].with(|_| ());
        drop(pin);
    }

    /// Replaces the record some times, and overwrites each old one when its period is over.
    fn replace(&self) {
        let mut retired = Vec::new();
        for record in 0..PERIODS {
            self.slot.store(record as u64 + 1, Ordering::Release);
            retired.push((self.pins.ticket(), record));
            let past = self.pins.poll();
            retired.retain(|&(ticket, record)| {
                if ticket < past {
                    self.records[record].with_mut(|_| ());
                }
                ticket >= past
            });
        }
    }
}

/// Runs readers beside a writer. Each reader has its own place, or all have the first.
fn read_during_replacements(reader_count: usize, places: usize) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let table = Arc::new(Table::new());
        let readers: Vec<_> = (0..reader_count)
            .map(|reader| {
                let table = table.clone();
                thread::spawn(move || table.read(reader % places))
            })
            .collect();
        table.replace();
        for reader in readers {
            reader.join().unwrap();
        }
        // Nobody is left, so what waits is over.
        let ticket = table.pins.ticket();
        assert!(table.pins.poll() > 0);
        assert!(table.pins.poll() > ticket);
    });
}

#[test]
fn loom_no_record_is_overwritten_while_it_is_read() {
    read_during_replacements(2, 2);
}

#[test]
fn loom_no_record_is_overwritten_while_threads_share_a_place() {
    read_during_replacements(2, 1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_one_look_at_the_pins_misses_a_reader_that_slept_through_a_flip() {
    mutant::with(Mutant::OneLookAtPins, || read_during_replacements(1, 1));
}

/// A copy may be dropped by another thread, and last.
#[test]
fn loom_a_copy_of_a_pin_holds_the_record_as_the_pin_did() {
    loom::model(|| {
        let table = Arc::new(Table::new());
        let reader = {
            let table = table.clone();
            thread::spawn(move || {
                let pin = table.pins.pin_at(0);
                let record = table.slot.load(Ordering::Acquire) as usize;
                let copy = pin.clone();
                drop(pin);
                table.records[record].with(|_| ());
                drop(copy);
            })
        };
        table.replace();
        reader.join().unwrap();
    });
}
