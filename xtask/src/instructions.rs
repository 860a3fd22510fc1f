//! The layer `instructions`: a regression that a noisy machine would hide.
//!
//! The program in `peers/instructions` does a known number of each operation under callgrind, which
//! counts instructions. More than [`TOLERANCE_PERCENT`] above the committed count fails.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::process::{command, output, run as run_program, target};
use crate::{Failure, console};

/// The committed counts: a function of the program and its instructions in each line.
const COUNTS: &str = "peers/instructions/counts.txt";

/// How much a count may rise. Compilers and C libraries differ by less.
const TOLERANCE_PERCENT: u64 = 5;

/// Counts, compares, and returns how many functions were compared.
pub(crate) fn test(root: &Path) -> Result<u64, Failure> {
    let text = fs::read_to_string(root.join(COUNTS))
        .map_err(|cause| format!("cannot read `{COUNTS}`: {cause}"))?;
    let committed = parse_committed(&text)?;
    let build = ["build", "--quiet", "--release", "--locked", "--package", "instructions"];
    run_program(&mut command(root, "cargo", &build))?;
    let target = target(root);
    let file = target.join("callgrind.out");
    let mut callgrind = command(root, "valgrind", &["--quiet", "--tool=callgrind"]);
    callgrind.arg(format!("--callgrind-out-file={}", file.display()));
    callgrind.arg(target.join("release/instructions"));
    output(&mut callgrind)?;
    let profile = fs::read_to_string(&file)
        .map_err(|cause| format!("cannot read `{}`: {cause}", file.display()))?;
    compare(&committed, &inclusive_counts(&profile))
}

/// Reads lines like `instructions::hits 4500000`; those that begin with `#` are comments.
fn parse_committed(text: &str) -> Result<Vec<(String, u64)>, Failure> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let counts: Vec<(String, u64)> = lines
        .map(|line| {
            let parts = line.split_once(' ');
            parts
                .and_then(|(name, count)| Some((name.to_owned(), count.trim().parse().ok()?)))
                .ok_or_else(|| format!("`{COUNTS}`: `{line}` is not a function and its count"))
        })
        .collect::<Result<_, _>>()?;
    if counts.is_empty() { Err(format!("`{COUNTS}` has no counts")) } else { Ok(counts) }
}

/// Returns the instructions of each function with all that it calls, as its callers count them.
///
/// A name is written once, as `fn=(12) name` or `cfn=(12) name`, and is `(12)` from then on. A call
/// is `cfn=`, then `calls=`, then a line with a position and what the call cost.
fn inclusive_counts(profile: &str) -> BTreeMap<String, u64> {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut by_id: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut called, mut is_cost) = ("", false);
    for line in profile.lines() {
        if let Some(rest) = line.strip_prefix("cfn=").or_else(|| line.strip_prefix("fn=")) {
            let (id, name) = rest.split_once(' ').unwrap_or((rest, ""));
            if !name.is_empty() {
                names.insert(id, name);
            }
            if line.starts_with("cfn=") {
                called = id;
            }
        } else if line.starts_with("calls=") {
            is_cost = true;
        } else if is_cost {
            is_cost = false;
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
            *by_id.entry(called).or_default() += cost.unwrap_or(0);
        }
    }
    let named = by_id.iter().filter_map(|(id, cost)| Some(((*names.get(id)?).to_owned(), *cost)));
    named.collect()
}

/// Compares what was counted with what is committed, and prints both.
fn compare(committed: &[(String, u64)], found: &BTreeMap<String, u64>) -> Result<u64, Failure> {
    let mut more = Vec::new();
    for (name, expected) in committed {
        let Some(&count) = found.get(name) else {
            return Err(format!("callgrind saw no call of `{name}`: see `{COUNTS}`"));
        };
        let change = (count as f64 / *expected as f64 - 1.0) * 100.0;
        console::say(&format!("{name:<24} {count:>12} instructions, {change:+.1} %"));
        if count * 100 > expected * (100 + TOLERANCE_PERCENT) {
            more.push(format!("{name} {count}"));
        } else if count * 100 < expected * (100 - TOLERANCE_PERCENT) {
            console::say(&format!("  fewer than before: write `{name} {count}` in `{COUNTS}`"));
        }
    }
    if more.is_empty() {
        return Ok(committed.len() as u64);
    }
    Err(format!(
        "instructions rose by more than {TOLERANCE_PERCENT} %; if that is right, say why in the commit and \
         write in `{COUNTS}`: {}",
        more.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
fn=(1) instructions::hits
5 100
fn=(2) main
7 10
cfn=(1)
calls=1 5
8 4000
cfn=(3) instructions::puts
calls=1 9
9 500
+1 3
cfn=(3)
calls=1 9
* 700
";

    fn found() -> BTreeMap<String, u64> {
        inclusive_counts(PROFILE)
    }

    #[test]
    fn calls_are_summed_up_by_the_names_of_what_is_called() {
        let expected = [("instructions::hits", 4000), ("instructions::puts", 1200)];
        let expected = expected.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(found(), BTreeMap::from(expected));
    }

    #[test]
    fn a_rise_beyond_the_tolerance_fails_and_a_smaller_one_does_not() {
        let committed = |text: &str| parse_committed(text).expect("it is right");
        let same = committed("# why\ninstructions::hits 4000\ninstructions::puts 1200\n");
        assert_eq!(compare(&same, &found()), Ok(2));
        assert_eq!(compare(&committed("instructions::hits 3810\n"), &found()), Ok(1));
        let failure = compare(&committed("instructions::hits 3809\n"), &found());
        let failure = failure.expect_err("5.01 % more");
        assert!(failure.ends_with("instructions::hits 4000"), "{failure}");
        assert_eq!(compare(&committed("instructions::hits 9000\n"), &found()), Ok(1));
    }

    #[test]
    fn a_function_that_was_not_called_fails() {
        let committed = parse_committed("instructions::misses 1\n").expect("it is right");
        let failure = compare(&committed, &found()).expect_err("it is not in the profile");
        assert!(failure.contains("no call of `instructions::misses`"), "{failure}");
    }

    #[test]
    fn a_file_without_counts_is_refused() {
        for text in ["", "# nothing\n", "instructions::hits many\n", "hits\n"] {
            assert!(parse_committed(text).is_err(), "{text:?}");
        }
    }
}
