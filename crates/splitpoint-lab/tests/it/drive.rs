//! Measurements in threads and in bounded memory give what one thread with all memory gives.

use proptest::prelude::*;
use splitpoint_lab::drive::{Limits, Outcome, measure};
use splitpoint_lab::keys::{
    Bytes, Column, Done, DuplicatePolicy, KeyFormat, Keys, Phase, ReadError, Watch,
};
use splitpoint_lab::{Reduction, Report, Setup, Specimen};

fn lines(keys: &[String]) -> Vec<u8> {
    keys.iter().flat_map(|key| [key.as_bytes(), b"\n"].concat()).collect()
}

fn read(bytes: &[u8], memory_bytes: u64) -> Keys<'_> {
    let column = Column { name: "1".to_owned(), has_header: false };
    let format = KeyFormat::by_name("lines", column).expect("a known name");
    let source = Bytes { bytes, format };
    Keys::read(Box::new(source), DuplicatePolicy::Remove, memory_bytes, &mut ())
        .expect("the keys are lines")
}

fn setups() -> Vec<Setup> {
    let setup = |name: &str, seed, reduction, bucket_count| {
        let specimen = Specimen::by_name(name).expect("is there");
        Setup::new(specimen, seed, reduction, bucket_count).expect("the size suits")
    };
    vec![
        setup("fnv1a-32", 0, Reduction::LowMask, 64),
        setup("xxh3-64", 3, Reduction::Split, 100),
        setup("fnv1a-32", 0, Reduction::Range, 37),
        setup("xxh3-64", 4, Reduction::HighShift, 32),
        setup("netbsd-byte-sum", 0, Reduction::Modulus, 50),
        setup("xxh3-64", 3, Reduction::LowMask, 4096),
    ]
}

/// One setup after the other, one key after the other.
fn serial(keys: &[String]) -> Vec<Report> {
    let mut seen = std::collections::HashSet::new();
    let distinct: Vec<&[u8]> = keys
        .iter()
        .filter(|key| !key.is_empty() && seen.insert(*key))
        .map(String::as_bytes)
        .collect();
    setups().iter().map(|setup| Report::new(&setup.count(distinct.iter().copied()))).collect()
}

fn driven(keys: &Keys<'_>, memory_bytes: u64, thread_count: usize) -> Outcome<Report> {
    let limits = Limits { memory_bytes, thread_count };
    measure(keys, &setups(), limits, &mut (), Report::new).expect("the counts fit")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_number_of_threads_and_rounds_gives_the_serial_reports(
        keys in prop::collection::vec("[a-z]{0,4}", 0..400),
        threads in 1..5_usize,
        rounds_memory in prop::sample::select(vec![48 << 10, 96 << 10, 1 << 20]),
    ) {
        let bytes = lines(&keys);
        let outcome = driven(&read(&bytes, 1 << 20), rounds_memory, threads);
        prop_assert_eq!(outcome.interruption, None);
        prop_assert_eq!(outcome.sampled_count, 0);
        prop_assert_eq!(outcome.results, serial(&keys));
    }
}

#[test]
fn keys_that_are_read_again_and_again_give_the_same_reports() {
    let keys: Vec<String> = (0..90_000_u64).map(|n| (n * n % 70_001).to_string()).collect();
    let bytes = lines(&keys);
    let expected = serial(&keys);
    // Held, and streamed in windows of 2^15 keys.
    for memory_bytes in [1 << 30, 400_000] {
        let keys = read(&bytes, memory_bytes);
        assert_eq!(keys.held().is_some(), memory_bytes == 1 << 30);
        for threads in [1, 3] {
            let outcome = driven(&keys, 8 << 20, threads);
            assert_eq!(outcome.results, expected, "{memory_bytes} {threads}");
        }
    }
}

#[test]
fn hashes_that_do_not_fit_are_sampled_alike_for_any_number_of_threads() {
    let keys: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    let bytes = lines(&keys);
    let keys = read(&bytes, 1 << 30);
    let one = driven(&keys, 64 << 10, 1);
    let two = driven(&keys, 64 << 10, 2);
    assert_eq!((one.sampled_count, two.sampled_count), (6, 6));
    assert_eq!(one.results, two.results);
    let limits = Limits { memory_bytes: 16_000, thread_count: 1 };
    match measure(&keys, &setups(), limits, &mut (), Report::new) {
        Err(ReadError::Memory { needed_bytes: 32_768, allowed_bytes: 16_000 }) => {}
        other => panic!("{other:?}"),
    }
}

/// Stops the work when so many windows have been counted.
struct StopAfter {
    windows: u32,
}

impl Watch for StopAfter {
    fn progress(&mut self, phase: Phase, done: Done) {
        assert_eq!((phase.name, done.key_count_total), ("count", Some(400_000)));
        self.windows = self.windows.saturating_sub(1);
    }

    fn is_stopped(&self) -> bool {
        self.windows == 0
    }
}

#[test]
fn work_that_is_stopped_says_what_is_missing() {
    let keys: Vec<String> = (0..400_000).map(|n| n.to_string()).collect();
    let bytes = lines(&keys);
    let keys = read(&bytes, 1 << 30);
    let stopped = |windows, memory_bytes| {
        let limits = Limits { memory_bytes, thread_count: 2 };
        let outcome = measure(&keys, &setups(), limits, &mut StopAfter { windows }, Report::new)
            .expect("the counts fit");
        let counted: Vec<u64> = outcome.results.iter().map(|report| report.key_count).collect();
        let missing = outcome.interruption.map(|it| (it.key_count, it.missing));
        (counted, missing)
    };
    let (counted, missing) = stopped(1, 1 << 30);
    assert_eq!(counted, [131_072; 6]);
    let expected = "268,928 of 400,000 keys were not counted".to_owned();
    assert_eq!(missing, Some((131_072, expected)));
    // Five windows are one round and a part of the next, with two setups a round.
    let (counted, missing) = stopped(5, 26_000_000);
    assert_eq!(counted.iter().filter(|&&count| count == 400_000).count(), 2);
    assert_eq!(counted.iter().filter(|&&count| count == 131_072).count(), 2);
    let expected = "268,928 of 400,000 keys were not counted, 2 of 6 measurements were not begun";
    assert_eq!(missing, Some((131_072, expected.to_owned())));
    let (counted, missing) = stopped(0, 1 << 30);
    assert!(counted.is_empty(), "{counted:?}");
    let expected = "400,000 of 400,000 keys were not counted, 6 of 6 measurements were not begun";
    assert_eq!(missing, Some((0, expected.to_owned())));
    assert_eq!(stopped(100, 1 << 30), (vec![400_000; 6], None));
}
