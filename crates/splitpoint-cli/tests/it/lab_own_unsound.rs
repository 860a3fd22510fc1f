//! The user's own functions where something is wrong with them: what cannot be measured is an error
//! or is said, and nothing hangs.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab_own::{NUMBER, hashes, with_keys};
use crate::sandbox::{HANG, Outcome, Sandbox, end_of, tool};

/// What cannot be measured is refused, not left out.
#[test]
fn a_function_of_the_lab_beside_hashes_without_keys_is_refused() {
    let sandbox = with_keys();
    sandbox.write("mine", hashes(|hash| format!("{hash:#x}")).as_bytes());
    for command in ["hash", "sweep"] {
        sandbox
            .run(&["lab", command, "--hashes", "mine", "--hash", "sdbm"])
            .check_error(2, "--hash sdbm needs the keys");
    }
    let all = sandbox.run(&["lab", "gate", "keys", "--hashes", "mine", "--max-cost", "9"]);
    assert_eq!((all.exit, all.stderr.as_str()), (0, ""));
}

#[test]
fn recommend_refuses_your_own_function_where_keys_are_hostile() {
    let own = ["--hash-command", NUMBER, "--hashes-as", "decimal", "--hostile"];
    let advice = with_keys().run(&[&["lab", "recommend", "keys"], &own[..]].concat());
    let expected = "--hostile asks for a function with a secret key, which your own has not";
    advice.check_error(2, expected);
}

/// A gate that counts the pairs of a sample would be met by a function that has many.
#[test]
fn a_gate_on_equal_hashes_is_not_met_by_a_sample_of_them() {
    let sandbox = with_keys();
    let gate = |limit: &[&str]| {
        let args = ["lab", "gate", "keys", "-q", "--hash", "sdbm", "--memory-bytes", "100000"];
        sandbox.run(&[&args[..], limit].concat())
    };
    gate(&["--max-collisions", "0"]).check_error(
        2,
        "the pairs of equal hashes cannot be told: the hashes do not fit into memory",
    );
    assert_eq!(gate(&["--max-cost", "9"]).exit, 0);
}

#[test]
fn a_command_that_prints_without_end_is_an_error_and_fills_no_memory() {
    let sandbox = with_keys();
    let run = |command| sandbox.run(&["lab", "table", "keys", "--hash-command", command]);
    let many = (0..400_000).map(|n| format!("a{n:06}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", many.as_bytes());
    for command in ["yes 1", "cat /dev/zero"] {
        let endless = run(command);
        let expected = format!("error: `{command}`: it prints more hashes than it gets keys: 1,");
        assert!(endless.exit == 2 && endless.stderr.contains(&expected), "{}", endless.stderr);
    }
}

#[test]
fn a_process_that_a_command_leaves_behind_is_not_waited_for() {
    let sandbox = with_keys();
    let command = format!("sleep 100 2> /dev/null & echo $! > helper; {NUMBER}");
    let args = ["lab", "gate", "keys", "--hash-command", &command, "--hashes-as", "decimal"];
    let mut gate = sandbox.program(&args);
    let child = gate.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a program");
    let found = end_of(child, "a gate with a process that holds the output");
    let helper = String::from_utf8(sandbox.read("helper")).expect("a number");
    let killed = Command::new("kill").arg(helper.trim()).status().expect("kill can be run");
    assert!(found.exit == 0 && killed.success(), "{}", found.stderr);
}

/// Recorded hashes of one seed and flipped keys of another would look like an ideal avalanche.
#[test]
fn a_command_with_another_seed_each_time_tells_nothing_of_flipped_keys() {
    let Some(python) = tool("python3", "python3") else { return };
    let sandbox = with_keys();
    let program = "import sys\nfor line in sys.stdin: print(hash(line))";
    let command = format!("{} -c '{program}'", python.display());
    let run = |environment: Option<&str>| {
        let own = ["--hash-command", &command, "--hashes-as", "decimal"];
        let args = [&["lab", "avalanche", "keys", "--sample", "16", "--json"], &own[..]].concat();
        let mut run = sandbox.program(&args);
        run.env_remove("PYTHONHASHSEED");
        run.envs(environment.map(|seed| ("PYTHONHASHSEED", seed)));
        let found = Outcome::of(&run.output().expect("the program can be run"));
        assert_eq!(found.exit, 0, "{}", found.stderr);
        let flips = found.json()["avalanches"][0]["key_counts"].clone();
        // Of the first byte: it is the same in all keys, so no flipped key is in the file.
        let flips = flips.as_array().expect("counts").iter().take(8).filter_map(Value::as_u64);
        (flips.sum::<u64>(), found.stderr)
    };
    let (flips, said) = run(None);
    assert!(said.contains("gives other hashes each time it runs"), "{said}");
    assert_eq!((flips, said.matches("gives other hashes").count()), (0, 1), "{said}");
    let (flips, said) = run(Some("1"));
    assert!(flips > 0 && said.is_empty(), "{said}");
}

const UNSOUND_LIBRARY: &str = "\
#include <stdint.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static uint64_t fnv(const void *p, size_t n) {
    const unsigned char *key = p;
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < n; i++) hash = (hash ^ key[i]) * 0x100000001b3ull;
    return hash ^ hash >> 32;
}
static void tell(const char *name) {
    FILE *file = fopen(\"telling\", \"w\");
    fprintf(file, \"%d\\n\", (int)getpid());
    fclose(file);
    rename(\"telling\", name);
}
uint64_t narrow_at_first(const void *p, size_t n, uint64_t seed) {
    const unsigned char *key = p;
    uint64_t hash = 0;
    for (size_t i = 0; i < n; i++) hash = hash * 131 + key[i];
    return hash;
}
uint64_t endless(const void *p, size_t n, uint64_t seed) {
    if (n == 7 && memcmp(p, \"a000002\", 7) == 0) { tell(\"begun\"); for (;;) pause(); }
    return fnv(p, n);
}
uint64_t slow(const void *p, size_t n, uint64_t seed) {
    static int calls;
    if (++calls == 500 && access(\"slow\", F_OK) != 0) { tell(\"slow\"); for (;;) pause(); }
    return fnv(p, n);
}
uint64_t own_seed(const void *p, size_t n, uint64_t seed) {
    static int calls;
    if (++calls == 7000) abort();
    return fnv(p, n) ^ (uint64_t)getpid();
}
uint64_t waits(const void *p, size_t n, uint64_t seed) {
    if (n == 7 && memcmp(p, \"a131050\", 7) == 0) {
        tell(\"begun\");
        while (access(\"go\", F_OK) != 0) usleep(1000);
    }
    if (n == 7 && (memcmp(p, \"a262100\", 7) == 0 || memcmp(p, \"a393200\", 7) == 0)) sleep(5);
    return fnv(p, n);
}
";

fn with_library() -> Option<Sandbox> {
    let cc = tool("cc", "gcc")?;
    let sandbox = with_keys();
    sandbox.write("odd.c", UNSOUND_LIBRARY.as_bytes());
    let args = ["-shared", "-fPIC", "-w", "odd.c", "-o", "odd.so"];
    let status = sandbox.command(&cc, &args).status().expect("a compiler");
    assert!(status.success(), "{status}");
    Some(sandbox)
}

/// The first hashes of a function say nothing of its width.
#[test]
fn a_library_has_64_bits_unless_its_width_is_given() {
    let Some(sandbox) = with_library() else { return };
    let numbers = (1..=20_000).map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", numbers.as_bytes());
    let run = |more: &[&str]| {
        let args = ["lab", "table", "keys", "--hash-library", "odd.so:narrow_at_first", "--json"];
        sandbox.run(&[&args[..], more].concat())
    };
    let found = run(&[]);
    assert_eq!(found.exit, 0, "{}", found.stderr);
    assert_eq!(found.json()["reports"][0]["width_bits"], 64);
    let note = "splitpoint: `odd.so:narrow_at_first` counts as a function of 64 bits, but the \
                hashes of the first 4,096 keys fit into 32; if all do, give --width 32\n";
    assert_eq!(found.stderr, note);
    let narrow = run(&["--width", "32"]);
    assert!(narrow.exit == 2 && narrow.stderr.contains("more than the 32 bits of --width"));
    assert!(narrow.stderr.contains("leave --width out"), "{}", narrow.stderr);
}

#[test]
fn a_key_on_which_a_library_does_not_end_is_named() {
    let Some(sandbox) = with_library() else { return };
    let gate = ["lab", "gate", "keys", "--hash-library", "odd.so:endless"];
    sandbox.write("keys", b"a000000\na000001\na000002\na000003\n");
    let mut gate = sandbox.program(&[&gate[..], &["--hash-timeout", "7.5"]].concat());
    let child = gate.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a program");
    let expected = "`odd.so:endless` does not end in 7.5 s on the key `a000002` of 7 bytes";
    end_of(child, "a gate of a function that does not end").check_error(1, expected);
}

/// A function that takes too long for many keys at once, but not for one, is measured: as that one,
/// which does not end the first time that a process has got many.
#[test]
fn a_slow_library_is_asked_key_by_key() {
    let Some(sandbox) = with_library() else { return };
    let gate = ["lab", "gate", "keys", "--hash-library", "odd.so:slow", "--hash-timeout", "10"];
    let found = sandbox.run(&gate);
    assert_eq!((found.exit, found.stderr.as_str()), (0, ""), "{}", found.text());
}

/// The function crashes once, after its 3,000 keys were tried with two seeds, so that it runs in
/// another process.
#[test]
fn a_library_that_draws_a_seed_in_each_process_is_refused() {
    let Some(sandbox) = with_library() else { return };
    let own = ["--hash-library", "odd.so:own_seed"];
    let expected = "`odd.so:own_seed` gives the same key another hash in another process";
    sandbox.run(&[&["lab", "gate", "keys"], &own[..]].concat()).check_error(1, expected);
}

/// Waits until `is_so`, which takes no time.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HANG, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_process_of_a_library_ends_with_the_one_that_measures() {
    let Some(sandbox) = with_library() else { return };
    let gate = ["lab", "gate", "keys", "--hash-library", "odd.so:endless"];
    let mut child = sandbox.program(&gate).spawn().expect("a program");
    wait_until("the function begins", || sandbox.path("begun").exists());
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let worker = String::from_utf8(sandbox.read("begun")).expect("a number");
    let stat = format!("/proc/{}/stat", worker.trim());
    wait_until("the function is left behind", || {
        // A zombie has ended; whether it is reaped is the machine's business.
        std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
}

/// Ctrl-C on a terminal goes to all processes of a group. The process of a library must go on, or
/// there is no partial report. The function waits for it near the end of the first part of the keys,
/// so that little is left to do before the signal is noticed, and in the next two parts, or a
/// machine that is busy enough could do them all first.
#[test]
fn ctrl_c_during_the_measurement_of_a_library_leaves_a_partial_report() {
    use std::os::unix::process::CommandExt as _;
    let Some(sandbox) = with_library() else { return };
    let keys = (0..600_000).map(|n| format!("a{n:06}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", keys.as_bytes());
    let own = ["--hash-library", "odd.so:waits", "--hash-timeout", "900", "--threads", "1"];
    let sweep = ["lab", "sweep", "keys", "--json", "--hash", "sdbm", "--sizes", "4096"];
    let mut sweep = sandbox.program(&[&sweep[..], &own[..]].concat());
    let sweep = sweep.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = sweep.spawn().expect("a program");
    wait_until("the function begins", || sandbox.path("begun").exists());
    let group = format!("-{}", child.id());
    let status = Command::new("kill").args(["-s", "INT", "--", &group]).status();
    assert!(status.expect("kill can be run").success());
    sandbox.write("go", b"");
    let found = end_of(child, "a sweep after Ctrl-C");
    assert_eq!(found.exit, 130, "{}", found.stderr);
    assert!(found.stderr.starts_with("splitpoint: error: interrupted: "), "{}", found.stderr);
    let counted = found.json()["reports"][0]["key_count"].as_u64();
    assert!(counted > Some(0) && counted < Some(600_000), "{counted:?}");
}
