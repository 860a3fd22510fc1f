//! How long the kernel takes for a key: hash, reduce and count.
//!
//! `cargo bench -p splitpoint-lab --bench counting`. Keys of 16 bytes, 2^20 buckets; the median and
//! the range of 7 runs. The target is 600 ns, a hundred million keys a minute. The second table is of
//! lines of 16 bytes: reading them, finding duplicates, and counting on one thread, from memory and in
//! passes.
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use std::time::Instant;

use splitpoint_lab::drive::{Limits, measure};
use splitpoint_lab::keys::{Bytes, Column, DuplicatePolicy, KeyFormat, Keys};
use splitpoint_lab::{PartialStats, Reduction, Report, Setup, Specimen};

const KEY_COUNT: u64 = 1_000_000;
const RUNS: usize = 7;

fn main() {
    let keys: Vec<[u8; 16]> = (0..KEY_COUNT)
        .map(|n| u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes())
        .collect();
    println!("{:<18}{:>12}{:>12}{:>12}{:>14}", "ns a key", "median", "least", "most", "report, ms");
    for name in [
        "fnv1a-32",
        "db-hash4",
        "linux-4.8-name",
        "linux-jhash",
        "rapidhash-v3",
        "xxh3-64",
        "foldhash-fast",
        "rustc-hash",
        "siphash-1-3",
        "highwayhash-64",
    ] {
        let specimen = Specimen::by_name(name).expect("is there");
        let setup = Setup::new(specimen, 1, Reduction::LowMask, 1 << 20).expect("a power of two");
        let mut times: Vec<f64> = (0..RUNS)
            .map(|_| {
                let start = Instant::now();
                let stats = setup.count(keys.iter().map(<[u8; 16]>::as_slice));
                let time = start.elapsed();
                assert_eq!(stats.key_count(), KEY_COUNT);
                time.as_secs_f64() * 1e9 / KEY_COUNT as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let stats = setup.count(keys.iter().map(<[u8; 16]>::as_slice));
        let start = Instant::now();
        let report = Report::new(&stats);
        let report_ms = start.elapsed().as_secs_f64() * 1e3;
        assert_eq!(report.key_count, KEY_COUNT);
        let (median, least, most) = (times[RUNS / 2], times[0], times[RUNS - 1]);
        println!("{name:<18}{median:>12.1}{least:>12.1}{most:>12.1}{report_ms:>14.1}");
    }
    drive_lines();
}

fn drive_lines() {
    let bytes: Vec<u8> = (0..KEY_COUNT)
        .flat_map(|n| format!("{:016x}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes())
        .collect();
    let column = Column { name: "1".to_owned(), has_header: false };
    let format = KeyFormat::by_name("lines", column).expect("a known name");
    let specimen = Specimen::by_name("xxh3-64").expect("is there");
    let setup = Setup::new(specimen, 1, Reduction::LowMask, 1 << 20).expect("a power of two");
    let limits = Limits { memory_bytes: 1 << 30, thread_count: 1 };
    println!("\n{:<18}{:>12}{:>12}", "lines, ns a key", "read", "count");
    for (name, memory_bytes) in [("held", 1 << 30), ("1 part", 23 << 20), ("6 parts", 4 << 20)] {
        let source = Bytes { bytes: &bytes, format: format.clone() };
        let start = Instant::now();
        let keys = Keys::read(Box::new(source), DuplicatePolicy::Remove, memory_bytes, &mut ())
            .expect("they fit");
        let read = start.elapsed();
        assert_eq!((keys.len(), keys.held().is_some()), (KEY_COUNT, name == "held"));
        let start = Instant::now();
        let outcome = measure(&keys, &[setup], limits, &mut (), PartialStats::key_count);
        let counted = start.elapsed();
        assert_eq!(outcome.expect("they fit").results, [KEY_COUNT]);
        let [read, counted] =
            [read, counted].map(|time| time.as_secs_f64() * 1e9 / KEY_COUNT as f64);
        println!("{name:<18}{read:>12.1}{counted:>12.1}");
    }
}
