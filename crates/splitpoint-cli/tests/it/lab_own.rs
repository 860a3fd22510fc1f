//! The user's own functions, in every command of the lab.

use serde_json::Value;

use crate::sandbox::{Outcome, Sandbox, tool};

/// A directory with a file of 3,000 keys.
pub(crate) fn with_keys() -> Sandbox {
    let sandbox = Sandbox::new();
    let keys = (0..3000).map(|n| format!("a{n:06}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", keys.as_bytes());
    sandbox
}

fn sdbm(key: &str) -> u32 {
    key.bytes().fold(0, |hash: u32, byte| hash.wrapping_mul(65_599).wrapping_add(byte.into()))
}

/// Hashes of the keys by sdbm, written by `form`.
pub(crate) fn hashes(form: impl Fn(u32) -> String) -> String {
    (0..3000).map(|n| form(sdbm(&format!("a{n:06}"))) + "\n").collect()
}

/// Returns the report of the function of this name, without the name.
#[track_caller]
fn report_of(outcome: &Outcome, hash: &str) -> Value {
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""));
    let study = outcome.json();
    let reports = study["reports"].as_array().expect("reports");
    let mut report = reports.iter().find(|it| it["hash"] == hash).expect("the function").clone();
    report["hash"] = Value::Null;
    report
}

#[test]
fn hashes_of_any_radix_are_measured_as_the_function_itself() {
    let sandbox = with_keys();
    for (name, format, text) in [
        ("mine.hex", "hex", hashes(|hash| format!("{hash:#x}"))),
        ("mine.dec", "decimal", hashes(|hash| hash.to_string())),
        ("mine.oct", "octal", hashes(|hash| format!("{hash:o}"))),
        ("mine.bin", "binary", hashes(|hash| format!("{hash:b}"))),
    ] {
        sandbox.write(name, text.as_bytes());
        let size = ["--buckets", "4096", "--json"];
        let own = ["--hashes", name, "--hashes-as", format];
        let run = |command, function: &[&str], more: &[&str]| {
            sandbox.run(&[&["lab", command, "keys"], function, more].concat())
        };
        let built_in = report_of(&run("table", &["--hash", "sdbm"], &size), "sdbm");
        let found = report_of(&run("table", &own, &size), name);
        for figure in ["cost_ratio", "verdict", "rows", "collisions", "worst_pair", "width_bits"] {
            assert_eq!(found[figure], built_in[figure], "{figure} of {name}");
        }
        let beside = [&own[..], &["--hash", "xxh3-64", "--no-times"]].concat();
        assert_eq!(report_of(&run("hash", &beside, &size), name)["rows"], built_in["rows"]);
        let gate = [&own[..], &["--max-cost", "9"]].concat();
        assert_eq!(report_of(&run("gate", &gate, &size), name)["rows"], built_in["rows"]);
        let one = ["--sizes", "4096", "--reduction", "low", "--hash", "sdbm"];
        let swept = run("sweep", &own, &[&one[..], &["--json"]].concat());
        assert_eq!(report_of(&swept, name), report_of(&swept, "sdbm"));
    }
}

/// A file says nothing of keys that are not in it; a word of the blame says so.
#[test]
fn what_hashes_alone_cannot_tell_is_said() {
    let sandbox = with_keys();
    sandbox.write(
        "keys",
        (0..3000)
            .map(|n| format!("{}\n", n * 1_000_003_u64))
            .collect::<Vec<_>>()
            .concat()
            .as_bytes(),
    );
    sandbox.write("same", "0x7\n".repeat(3000).as_bytes());
    let table = sandbox.run(&["lab", "table", "keys", "--hashes", "same"]);
    let text = table.text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("only the hashes of the keys are known"), "{text}");
    assert!(text.contains("worse: same, low does not fit these keys"), "{text}");
    let alone = sandbox.run(&["lab", "table", "--hashes", "same"]);
    assert!(alone.text().contains("\nVerdict\nworse: same, low"), "{}", alone.text());
    sandbox.write("asked", b"1000003\nnever\n");
    let lookups = ["lab", "table", "keys", "--hashes", "same", "--lookups", "asked"];
    sandbox.run(&lookups).check_error(2, "the hash of the lookup `never` is not known");
    let both = ["lab", "table", "keys", "--hashes", "same", "--hash", "sdbm"];
    sandbox.run(&both).check_error(2, "2 hash functions are given, one is needed");
    sandbox.run(&["lab", "table", "keys"]).check_error(2, "no hash function is given");
    let none = sandbox.run(&["lab", "avalanche", "--hashes", "same"]);
    none.check_error(2, "no file with keys is given");
}

/// The number in a key, as a program in awk finds it: an identity.
pub(crate) const NUMBER: &str = "awk '{ print substr($0, 2) + 0 }'";

#[test]
fn a_command_is_a_function_in_every_command() {
    let sandbox = with_keys();
    let own = ["--hash-command", NUMBER, "--hashes-as", "decimal"];
    let run = |command, more: &[&str]| {
        let outcome = sandbox.run(&[&["lab", command, "keys"], &own[..], more].concat());
        assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""), "{command}");
        outcome.text()
    };
    let table = run("table", &["--html", "page.html", "-q"]);
    assert!(table.contains("\nVerdict\nstructured: awk '{"), "{table}");
    // The command ran again for keys with flipped bits.
    assert!(
        table
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .contains("of the key move a key by a few distances"),
        "{table}"
    );
    let page = String::from_utf8(sandbox.read("page.html")).expect("text");
    assert!(
        page.contains("<div class=\"beside\">") && page.contains("awk &#39;{")
            || page.contains("awk '{")
    );
    let flips = run("avalanche", &["--sample", "64"]);
    assert!(
        flips.contains("the worst entry is bit") || flips.contains("The worst entry is bit"),
        "{flips}"
    );
    assert!(run("hash", &["--hash", "xxh3-64", "--no-times"]).contains("awk"));
    assert!(run("sweep", &["--hash", "xxh3-64", "--bits", "8..12"]).contains("awk"));
    assert!(run("gate", &[]).contains("\nmet "));
    assert!(run("compare", &["--hash", "xxh3-64"]).contains("keys looked at, hit"));
    let advice = run("recommend", &["--hash", "xxh3-64", "--hash", "siphash-1-3"])
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(advice.contains("whose time is not known"), "{advice}");
}

#[test]
fn a_command_that_fails_is_an_error() {
    let sandbox = with_keys();
    let table = |command| sandbox.run(&["lab", "table", "keys", "--hash-command", command]);
    table("cat > /dev/null; exit 3")
        .check_error(2, "`cat > /dev/null; exit 3` failed: exit status: 3");
    table("sed s/a/x/").check_error(2, "`sed s/a/x/`: line 1: `x000000` is not a 64-bit integer");
    let few = "awk 'NR < 9 { print \"0x\" NR }'";
    table(few).check_error(2, &format!("`{few}` printed 8 hashes for 3,000 keys"));
    let none = table("no-such-program-here");
    assert!(none.exit == 2 && none.stderr.contains("failed: exit status: 127"), "{}", none.stderr);
}

const LIBRARY: &str = "\
#include <stdint.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
uint64_t sdbm(const void *p, size_t n, uint64_t seed) {
    const unsigned char *key = p;
    uint32_t hash = 0;
    for (size_t i = 0; i < n; i++) hash = hash * 65599u + key[i];
    return hash;
}
uint64_t fnv(const void *p, size_t n, uint64_t seed) {
    const unsigned char *key = p;
    uint64_t hash = 0xcbf29ce484222325ull ^ seed;
    for (size_t i = 0; i < n; i++) hash = (hash ^ key[i]) * 0x100000001b3ull;
    printf(\"words that must not get between the answers\\n\");
    fflush(stdout);
    return hash ^ hash >> 32;
}
uint64_t crashes(const void *p, size_t n, uint64_t seed) {
    if (n == 7 && memcmp(p, \"a002047\", 7) == 0) *(volatile int *)8 = 1;
    return n;
}
";

#[test]
fn a_function_of_a_library_runs_in_a_process_of_its_own() {
    let Some(cc) = tool("cc", "gcc") else { return };
    let sandbox = with_keys();
    sandbox.write("mine.c", LIBRARY.as_bytes());
    let args = ["-shared", "-fPIC", "-w", "mine.c", "-o", "libmine.so"];
    let status = sandbox.command(&cc, &args).status().expect("a compiler");
    assert!(status.success(), "{status}");
    let run = |command, function: &str, more: &[&str]| {
        let own = ["lab", command, "keys", "--hash-library", function];
        sandbox.run(&[&own[..], more].concat())
    };
    let size = ["--buckets", "4096", "--reduction", "low", "--json"];
    let of_32 = [&size[..], &["--width", "32"]].concat();
    let found = report_of(&run("table", "libmine.so:sdbm", &of_32), "libmine.so:sdbm");
    let built_in = ["lab", "table", "keys", "--hash", "sdbm"];
    let built_in = report_of(&sandbox.run(&[&built_in[..], &size].concat()), "sdbm");
    assert_eq!(found, built_in, "blame and all");
    // With a seed, a width of 64 bits, and a time.
    let chatty = run("sweep", "./libmine.so:fnv", &["--seeds", "3", "--sizes", "4096", "--json"]);
    assert_eq!(chatty.exit, 0, "{}", chatty.stderr);
    let reports = chatty.json()["reports"].as_array().map(|all| {
        all.iter().filter(|it| it["hash"] == "./libmine.so:fnv" && it["width_bits"] == 64).count()
    });
    assert_eq!(reports, Some(6), "3 seeds, low and high");
    let beside = ["--hash", "sdbm", "--width", "32", "--json"];
    let compared = run("compare", "libmine.so:sdbm", &beside).json();
    let hashes: Vec<&Value> =
        compared["timings"].as_array().expect("timings").iter().map(|it| &it["hash"]).collect();
    assert_eq!(hashes, ["sdbm", "libmine.so:sdbm"]);
    let crash = run("table", "libmine.so:crashes", &[]);
    let expected =
        "`libmine.so:crashes` crashed on the key `a002047` of 7 bytes (signal: 11 (SIGSEGV)";
    assert!(crash.exit == 1 && crash.stderr.contains(expected), "{}", crash.stderr);
    assert_eq!(crash.stdout, b"");
    let absent = run("table", "libmine.so:nothing", &[]);
    assert!(absent.exit == 3 && absent.stderr.contains("undefined symbol"), "{}", absent.stderr);
    run("table", "libmine.so", &[]).check_error(2, "`libmine.so` is not FILE:SYMBOL");
}
