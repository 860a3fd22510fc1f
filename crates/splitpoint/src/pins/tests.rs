//! Pins and grace periods in one thread, step by step, and under threads.

use std::sync::atomic::AtomicBool;

use super::*;

/// Returns whether what was retired with `ticket` may be used again by now.
fn is_past(pins: &Pins, ticket: u64) -> bool {
    pins.poll() > ticket
}

#[test]
fn what_is_retired_while_nothing_is_pinned_is_past_at_once() {
    let pins = Pins::default();
    for _ in 0..5 {
        let ticket = pins.ticket();
        assert!(is_past(&pins, ticket));
    }
    assert_eq!(pins.poll(), pins.poll(), "no period runs unless something waits for it");
}

#[test]
fn a_pin_holds_what_is_retired_after_it_until_it_is_dropped() {
    let pins = Pins::default();
    // On either parity.
    for _ in 0..4 {
        let before = pins.ticket();
        assert!(is_past(&pins, before), "a pin does not hold what was past before it");
        let pin = pins.pin();
        let ticket = pins.ticket();
        for _ in 0..3 {
            assert!(!is_past(&pins, ticket));
        }
        assert!(pins.is_pinned());
        drop(pin);
        assert!(is_past(&pins, ticket));
        assert!(!pins.is_pinned());
    }
}

#[test]
fn a_copy_holds_what_its_pin_held() {
    let pins = Pins::default();
    let pin = pins.pin();
    let ticket = pins.ticket();
    assert!(!is_past(&pins, ticket));
    let copy = pin.clone();
    drop(pin);
    assert!(!is_past(&pins, ticket));
    drop(copy);
    assert!(is_past(&pins, ticket));
}

/// The reason for two counters: the count of all pins is never 0 here.
#[test]
fn pins_that_overlap_do_not_hold_a_period_up_for_ever() {
    let pins = Pins::default();
    let mut last = pins.pin();
    for _ in 0..10 {
        let ticket = pins.ticket();
        let mut rounds = 0;
        while !is_past(&pins, ticket) {
            // The new one is taken before the old one is dropped.
            last = pins.pin();
            rounds += 1;
            assert!(rounds < 4, "the period does not end");
        }
    }
    drop(last);
}

#[test]
fn what_is_retired_during_a_period_waits_for_the_next() {
    let pins = Pins::default();
    let pin = pins.pin();
    let first = pins.ticket();
    assert!(!is_past(&pins, first));
    let second = pins.ticket();
    assert!(second > first, "the first period has begun without it");
    drop(pin);
    // The poll that ends the first period goes on with the second.
    assert!(is_past(&pins, second));
}

#[test]
fn a_bunch_hands_out_pins_of_its_own_age_and_counts_them_all() {
    let pins = Pins::default();
    let mut bunch = pins.bunch();
    let ticket = pins.ticket();
    assert!(!is_past(&pins, ticket));
    let mut taken: Vec<Pin<'_>> = (0..3 * BUNCH).map(|_| bunch.take()).collect();
    drop(bunch);
    while let Some(pin) = taken.pop() {
        assert!(!is_past(&pins, ticket));
        drop(pin);
    }
    assert!(is_past(&pins, ticket));
    drop(pins.bunch());
    assert!(!pins.is_pinned(), "what was not handed out is not counted any more");
}

#[test]
fn the_age_of_what_is_held_up_is_known_until_it_is_past() {
    let pins = Pins::default();
    let pin = pins.pin();
    assert_eq!(pins.held_up_for(), None, "nothing waits");
    let ticket = pins.ticket();
    assert!(!is_past(&pins, ticket));
    let age = pins.held_up_for().expect("the period waits for the pin");
    assert!(!is_past(&pins, ticket));
    assert!(pins.held_up_for().expect("it still does") >= age);
    drop(pin);
    assert!(is_past(&pins, ticket));
    assert_eq!(pins.held_up_for(), None);
}

#[test]
fn a_pin_may_be_dropped_by_another_thread() {
    let pins = Pins::default();
    let pin = pins.pin();
    let ticket = pins.ticket();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!is_past(&pins, ticket));
            drop(pin);
        });
    });
    assert!(is_past(&pins, ticket));
}

/// Readers and a writer in threads: a record of two words that do not match has been overwritten
/// while it was read.
#[test]
fn miri_no_thread_sees_a_record_that_is_overwritten() {
    const RECORDS: usize = 4;
    let reuses_wanted = if cfg!(miri) { 20 } else { 200 };
    let pins = Pins::default();
    let slot = AtomicU64::new(0);
    let records: [[AtomicU64; 2]; RECORDS] = std::array::from_fn(|_| Default::default());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut held = None;
                while !is_over.load(Ordering::Relaxed) {
                    let pin = pins.pin();
                    let record = &records[slot.load(Ordering::Acquire) as usize];
                    let value = record[0].load(Ordering::Relaxed);
                    // Drops the last pin after this one was taken, as many programs do.
                    held = Some(pin);
                    std::hint::spin_loop();
                    assert_eq!(record[1].load(Ordering::Relaxed), value);
                }
                drop(held);
            });
        }
        let mut free: Vec<usize> = (1..RECORDS).collect();
        let mut retired = Vec::new();
        let (mut current, mut reuse_count, mut round) = (0, 0, 0);
        // However seldom the readers run, each drops its pin sooner or later.
        while reuse_count < reuses_wanted {
            round += 1;
            let past = pins.poll();
            retired.retain(|&(ticket, record)| {
                if ticket < past {
                    free.push(record);
                    reuse_count += 1;
                }
                ticket >= past
            });
            let Some(next) = free.pop() else {
                std::thread::yield_now();
                continue;
            };
            for word in &records[next] {
                word.store(round, Ordering::Relaxed);
            }
            slot.store(next as u64, Ordering::Release);
            retired.push((pins.ticket(), current));
            current = next;
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(!pins.is_pinned());
}
