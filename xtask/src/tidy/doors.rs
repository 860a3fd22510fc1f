//! What only few modules may do: `unsafe`, and talking to the operating system.

use std::collections::BTreeSet;

use super::Finding;
use crate::tree::{Tree, has_extension};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const LIST_START: &str = "<!-- unsafe modules -->";
const LIST_END: &str = "<!-- end -->";

/// Where the engine is.
const ENGINE: &str = "crates/splitpoint/src/";
/// Its door to the operating system.
const DOOR: &str = "crates/splitpoint/src/storage";

/// Compares the files with `unsafe` code with the list in ARCHITECTURE.md, both ways.
pub(super) fn unsafe_is_listed(tree: &Tree) -> Vec<Finding> {
    let Some(architecture) = tree.texts.get(ARCHITECTURE) else {
        return vec![Finding::new(ARCHITECTURE, 0, "missing; it lists the modules with `unsafe`")];
    };
    let Some(listed) = listed_files(architecture) else {
        let message = format!("no list between `{LIST_START}` and `{LIST_END}`");
        return vec![Finding::new(ARCHITECTURE, 0, message)];
    };
    let mut findings = Vec::new();
    for (path, file) in &tree.rust {
        if !listed.contains(path) {
            findings.extend(file.unsafe_lines.iter().map(|&line| {
                let message = format!("`unsafe` in a module that {ARCHITECTURE} does not list");
                Finding::new(path, line, message)
            }));
        }
    }
    for path in &listed {
        let remedy = match tree.rust.get(path) {
            None => "does not exist: take it from the list",
            Some(file) if file.unsafe_lines.is_empty() => "has no `unsafe`: take it from the list",
            Some(_) => continue,
        };
        findings.push(Finding::new(ARCHITECTURE, 0, format!("`{path}` {remedy}")));
    }
    findings
}

/// Returns the files named between the marks: the words that end in `.rs`.
///
/// A path is from `crates/splitpoint/src/`, or from the root if it begins with `crates/` or
/// `peers/`.
fn listed_files(architecture: &str) -> Option<BTreeSet<String>> {
    let (_, after) = architecture.split_once(LIST_START)?;
    let (list, _) = after.split_once(LIST_END)?;
    let is_of_path = |letter: char| letter.is_ascii_alphanumeric() || "/_.-".contains(letter);
    let words = list.split(|letter| !is_of_path(letter)).filter(|word| has_extension(word, "rs"));
    let full = |word: &str| {
        let is_full = ["crates/", "peers/"].iter().any(|start| word.starts_with(start));
        if is_full { word.to_owned() } else { format!("{ENGINE}{word}") }
    };
    Some(words.map(full).collect())
}

/// Finds the crates and modules that reach the operating system, outside `storage`.
pub(super) fn only_storage_names_the_system(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in &tree.rust {
        if !path.starts_with(ENGINE) || path.starts_with(DOOR) {
            continue;
        }
        for used in &file.paths {
            let segments: Vec<&str> = used.segments.iter().map(String::as_str).collect();
            let is_system =
                matches!(segments.as_slice(), ["rustix" | "libc", ..] | ["std", "fs" | "os", ..]);
            if is_system && !tree.is_test(path, used.line) {
                let message = format!(
                    "`{}` outside storage/: ask for what is needed through `Storage`",
                    segments.join("::")
                );
                findings.push(Finding::new(path, used.line, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::*;

    const LIST: &str = "\
Text.\n<!-- unsafe modules -->\n| `storage/mapped.rs` | maps |\n- region.rs\n<!-- end -->\n`db.rs`";

    #[test]
    fn unsafe_outside_the_list_is_found() {
        check_finds(
            unsafe_is_listed,
            &[
                ("ARCHITECTURE.md", LIST),
                ("crates/splitpoint/src/storage/mapped.rs", "unsafe fn f() {}"),
                ("crates/splitpoint/src/region.rs", "fn f() { unsafe {} }"),
                ("crates/splitpoint/src/db.rs", "fn f() {\n unsafe {}\n}"),
                ("crates/splitpoint-cli/src/main.rs", "m!(unsafe {});"),
            ],
            &["crates/splitpoint-cli/src/main.rs:1", "crates/splitpoint/src/db.rs:2"],
        );
    }

    #[test]
    fn listed_modules_without_unsafe_are_found() {
        check_finds(
            unsafe_is_listed,
            &[("ARCHITECTURE.md", LIST), ("crates/splitpoint/src/region.rs", "fn f() {}")],
            &["ARCHITECTURE.md:0", "ARCHITECTURE.md:0"],
        );
    }

    #[test]
    fn a_missing_list_is_found() {
        check_finds(unsafe_is_listed, &[("ARCHITECTURE.md", "none")], &["ARCHITECTURE.md:0"]);
        check_finds(unsafe_is_listed, &[], &["ARCHITECTURE.md:0"]);
    }

    #[test]
    fn files_of_other_crates_are_listed_by_their_whole_path() {
        let list = "<!-- unsafe modules -->crates/capi/src/lib.rs peers/c/lib.rs<!-- end -->";
        let files = [
            ("ARCHITECTURE.md", list),
            ("crates/capi/src/lib.rs", "unsafe fn f() {}"),
            ("peers/c/lib.rs", "unsafe fn f() {}"),
        ];
        check_finds(unsafe_is_listed, &files, &[]);
    }

    #[test]
    fn the_system_named_outside_storage_is_found() {
        let db = "use std::{fs::File, io};\nfn f() { rustix::fs::open() }\n\
            type X = std::os::fd::OwnedFd;\nfn g() { assert!(libc::getpid() > 0) }";
        check_finds(
            only_storage_names_the_system,
            &[
                ("crates/splitpoint/src/db.rs", db),
                ("crates/splitpoint/src/storage/mapped.rs", "use std::fs::File;"),
                ("crates/splitpoint-cli/src/main.rs", "use std::fs;"),
                ("crates/splitpoint/src/log.rs", "#[cfg(test)]\nmod t {\n use std::fs;\n}"),
            ],
            &[
                "crates/splitpoint/src/db.rs:1",
                "crates/splitpoint/src/db.rs:2",
                "crates/splitpoint/src/db.rs:3",
                "crates/splitpoint/src/db.rs:4",
            ],
        );
    }
}
