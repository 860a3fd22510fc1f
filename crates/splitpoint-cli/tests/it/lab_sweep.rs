//! `splitpoint lab sweep`.

use crate::sandbox::Sandbox;

/// Addresses of objects of 272 bytes, 30 to a chunk of 8 KiB, in 4 bytes.
fn with_addresses() -> Sandbox {
    let sandbox = Sandbox::new();
    let address = |n: u32| 0xc300_0000 + n / 30 * 8192 + n % 30 * 272;
    let bytes: Vec<u8> = (0..4000).flat_map(|n| address(n).to_le_bytes()).collect();
    sandbox.write("addresses", &bytes);
    let lines: Vec<u8> = (0..4000).flat_map(|n| format!("name{n}\n").into_bytes()).collect();
    sandbox.write("names", &lines);
    sandbox
}

#[test]
fn the_worst_size_is_the_headline_and_sizes_that_fail_are_named() {
    let sandbox = with_addresses();
    let args = ["lab", "sweep", "addresses", "--keys", "u32", "--hash", "linux-hash32"];
    let more = ["--reduction", "high", "--reduction", "shift:17", "--bits", "8..17"];
    let outcome = sandbox.run(&[&args[..], &more].concat());
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
    let text = outcome.text();
    let start = "Hash functions on `addresses`\n4,000 keys, 15.6 KiB, ";
    assert!(text.starts_with(start), "{text}");
    let sizes = "20 measurements of 10 table sizes: 2^8 to 2^17.";
    assert!(text.contains(sizes), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    // 32 bits shifted by 17 leave 15.
    let out_of_reach = "\nLeave buckets out of reach, whatever the keys are:\n\
                        - linux-hash32, shift:17: 2^16 to 2^17 buckets, the last with 25.0 % in \
                        reach\n";
    assert!(text.contains(out_of_reach), "{text}");
    // At the other sizes these bits are those that the addresses share.
    let line = text.lines().find(|line| line.contains("  shift:17  "));
    assert!(line.is_some_and(|line| line.contains("  ~~xxxx")), "{text}");
    assert!(
        text.contains("\n- linux-hash32, shift:17: 2^11 buckets, a hit costs x1.87\n"),
        "{text}"
    );
}

#[test]
fn every_reduction_that_suits_is_measured_at_every_size_and_seed() {
    let sandbox = with_addresses();
    let reports = |more: &[&str]| {
        let args = [&["lab", "sweep", "names", "--hash", "xxh3-64", "--json"], more].concat();
        let outcome = sandbox.run(&args);
        assert_eq!(outcome.exit, 0, "{}", outcome.stderr);
        let json = outcome.json();
        json["reports"].as_array().expect("reports").clone()
    };
    let found = reports(&["--sizes", "1000,1009,1024", "--seeds", "3"]);
    let mut names: Vec<String> = found
        .iter()
        .map(|report| format!("{} {}", report["bucket_count"], report["reduction"]))
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(
        names,
        [
            "1000 \"modulus\"",
            "1000 \"range\"",
            "1000 \"split\"",
            "1009 \"prime\"",
            "1009 \"range\"",
            "1009 \"split\"",
            "1024 \"high\"",
            "1024 \"low\"",
        ]
    );
    assert_eq!(found.len(), 3 * names.len());
    // The bulky parts are left out.
    assert!(found.iter().all(|report| report["rows"].as_array().is_some_and(Vec::is_empty)));
    let primes = reports(&["--primes", "--bits", "8..10", "--reduction", "prime"]);
    let mut sizes: Vec<u64> = primes.iter().filter_map(|it| it["bucket_count"].as_u64()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [257, 521, 1031]);
    let refused = sandbox.run(&["lab", "sweep", "names", "--reduction", "low", "--sizes", "1000"]);
    refused.check_error(2, "no reduction can address a table of these sizes");
    let refused = sandbox.run(&["lab", "sweep", "names", "--bits", "9..8"]);
    assert_eq!(refused.exit, 2);
    let text = sandbox.run(&["lab", "sweep", "names", "--bits", "8..14"]).text();
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}
