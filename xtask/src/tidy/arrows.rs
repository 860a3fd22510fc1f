//! The direction of dependencies inside the `splitpoint` crate: an arrow may only point down.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Finding;
use crate::rust::PathUse;
use crate::tree::Tree;

/// Where the modules are.
const SOURCES: &str = "crates/splitpoint/src/";

/// Modules from the top down. A module may use those of the rows below its own; not those beside
/// it, which do not know each other. A submodule or an item that stands lower or higher than its
/// module has its own place. Inside one module the order is its own affair.
const LAYERS: &[&[&str]] = &[
    &["testing"],
    &["storage::sim"], // A store with faults, made for crash tests.
    &["repair"],
    &["url"],
    &["cursor::hash_order"],
    &["db"],
    &["snapshot"],
    &["backup", "rehash"],
    &["check", "cursor", "publisher", "syncer", "recovery"],
    &["store"],
    &["reader"],
    &["checkpoint", "compaction"],
    &["identify"],
    &["log"],
    &["region"],
    &["storage::open"],
    &["live"],
    &["instrument", "piece"],
    &["segments"],
    &["index", "log::record", "space", "residency", "table"],
    &["storage"],
    &["prefaulter"],
    &["background"],
    &["horizons", "moments"],
    &["births", "graves"],
    &["options", "stats"],
    &["format", "health"],
    &["hash", "linear"],
    &["growing"],
    &["batch"],
    &["value"],
    &["pins", "key_list"],
    &["memory"],
    &[
        "error",
        "atomic",
        "bitmap",
        "checksum",
        "storage::fork",
        "testing::meanwhile",
        "testing::mutant",
    ],
    &["file_kind", "holder"],
];

/// Arrows that point up nevertheless, each with its reason. One that is not needed is a finding.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

pub(super) fn modules_use_only_those_below(tree: &Tree) -> Vec<Finding> {
    findings(tree, LAYERS, EXCEPTIONS)
}

type Exceptions<'a> = &'a [(&'a str, &'a str, &'a str)];

fn findings(tree: &Tree, layers: &[&[&str]], exceptions: Exceptions<'_>) -> Vec<Finding> {
    let exports = exports(tree);
    let mut findings = Vec::new();
    let mut unused: BTreeSet<(&str, &str)> = BTreeSet::new();
    // What no file of the tree could need is not missed there.
    let has_file = |module: &str| tree.rust.keys().any(|path| is_file_of(path, module));
    unused.extend(exceptions.iter().map(|(from, to, _)| (*from, *to)));
    unused.retain(|(from, _)| has_file(from));
    for (path, file) in &tree.rust {
        let Some(module) = module_of(path) else { continue };
        let Some(source) = place_of(&module, layers) else {
            let message = format!(
                "module `{}` has no place among the layers: give it one in {}",
                module.join("::"),
                file!(),
            );
            findings.push(Finding::new(path, 0, message));
            continue;
        };
        for used in file.paths.iter().filter(|used| !tree.is_test(path, used.line)) {
            let message = match arrow(&module, source, used, &exports, layers) {
                Ok(()) => continue,
                Err(Fault::Up { to, .. }) if is_excepted((source.1, to), exceptions) => {
                    unused.remove(&(source.1, to));
                    continue;
                }
                Err(fault) => fault.to_string(),
            };
            findings.push(Finding::new(path, used.line, message));
        }
    }
    for (from, to) in unused {
        let message = format!("the exception for `{from}` using `{to}` is not needed: remove it");
        findings.push(Finding::new(file!(), 0, message));
    }
    findings.dedup();
    findings
}

fn is_excepted(arrow: (&str, &str), exceptions: Exceptions<'_>) -> bool {
    exceptions.iter().any(|(from, to, _)| (*from, *to) == arrow)
}

fn is_file_of(path: &str, module: &str) -> bool {
    module_of(path).is_some_and(|found| found.join("::") == module)
}

/// What is wrong with an arrow.
enum Fault<'a> {
    /// It points up or sideways.
    Up { from: &'a str, to: &'a str },
    /// It ends in a module without a place.
    Unknown(String),
    /// It ends anywhere.
    Glob,
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = file!();
        match self {
            Fault::Up { from, to } => write!(
                f,
                "`{from}` may not use `{to}`, which is not below it: turn the arrow round, move \
                 what is shared below both, or change the layers in {table}",
            ),
            Fault::Unknown(name) => {
                write!(f, "`crate::{name}` is of no module that has a place in {table}")
            }
            Fault::Glob => write!(f, "`crate::*` hides what is used: name the modules"),
        }
    }
}

/// Row of the layers, and the name found there.
type Place<'a> = (usize, &'a str);

fn arrow<'a>(
    module: &[String],
    source: Place<'a>,
    used: &PathUse,
    exports: &BTreeMap<String, Vec<String>>,
    layers: &[&'a [&'a str]],
) -> Result<(), Fault<'a>> {
    let [first, second, ..] = used.segments.as_slice() else { return Ok(()) };
    if first != "crate" {
        return Ok(());
    }
    if second == "*" {
        return Err(Fault::Glob);
    }
    let target = exports.get(second).map_or(&used.segments[1..], Vec::as_slice);
    if target.first() == module.first() {
        return Ok(());
    }
    match place_of(target, layers) {
        None => Err(Fault::Unknown(second.clone())),
        Some((row, _)) if row > source.0 => Ok(()),
        Some((_, to)) => Err(Fault::Up { from: source.1, to }),
    }
}

/// Returns the place of the longest prefix of `path` that has one.
fn place_of<'a>(path: &[String], layers: &[&'a [&'a str]]) -> Option<Place<'a>> {
    for length in (1..=path.len()).rev() {
        let prefix = path[..length].join("::");
        for (row, names) in layers.iter().enumerate() {
            if let Some(name) = names.iter().find(|name| **name == prefix) {
                return Some((row, name));
            }
        }
    }
    None
}

/// Returns the module path of a file; `lib.rs`, which only gathers, has none.
fn module_of(path: &str) -> Option<Vec<String>> {
    let inside = path.strip_prefix(SOURCES)?.strip_suffix(".rs")?;
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    (inside != "lib").then(|| inside.split('/').map(str::to_owned).collect())
}

/// Returns where the names come from that `lib.rs` gathers: `Error` is `error::Error`.
fn exports(tree: &Tree) -> BTreeMap<String, Vec<String>> {
    let Some(lib) = tree.rust.get(&format!("{SOURCES}lib.rs")) else { return BTreeMap::new() };
    let mut exports = BTreeMap::new();
    for used in &lib.paths {
        let mut segments = used.segments.clone();
        if segments.first().is_some_and(|first| first == "crate") {
            segments.remove(0);
        }
        if let Some(name) = &used.name {
            exports.insert(name.clone(), segments);
        }
    }
    exports
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks one file against four rows: `db`, `log` beside `index`, `log::record`, `error`.
    #[track_caller]
    fn check(file: &str, text: &str, expected_lines: &[usize]) {
        let layers: &[&[&str]] = &[&["db"], &["log", "index"], &["log::record"], &["error"]];
        let path = format!("{SOURCES}{file}");
        let tree = Tree::of(&[
            (&format!("{SOURCES}lib.rs"), "mod db;\npub use error::{Error, Kind as ErrorKind};"),
            (&path, text),
        ]);
        let lines: Vec<usize> =
            findings(&tree, layers, &[]).iter().map(|found| found.line).collect();
        assert_eq!(lines, expected_lines, "{file}: {text}");
    }

    #[test]
    fn arrows_down_are_allowed() {
        check("db.rs", "use crate::{log, index::Line, error::Error};", &[]);
        check("log.rs", "use crate::error;\nuse std::io;", &[]);
        check("index/line.rs", "use crate::log::record::Record;", &[]);
    }

    #[test]
    fn arrows_up_are_found() {
        check("log.rs", "\nuse crate::db::Db;", &[2]);
        check("log/append.rs", "use super::super::db::Db;", &[1]);
        check("error.rs", "fn f() {\n crate::log::g()\n}", &[2]);
        check("error.rs", "fn f() {\n assert!(crate::log::X > 1);\n}", &[2]);
        check("log/record.rs", "use crate::db;", &[1]);
    }

    #[test]
    fn arrows_sideways_are_found() {
        check("log.rs", "use crate::index::Line;", &[1]);
        check("index/line.rs", "use crate::log::append;", &[1]);
    }

    #[test]
    fn names_gathered_in_lib_are_followed_to_their_module() {
        check("log.rs", "use crate::{Error, ErrorKind};", &[]);
        check("error.rs", "use crate::ErrorKind;", &[]);
        check("log.rs", "use crate::Unknown;", &[1]);
        check("log.rs", "use crate::*;", &[1]);
    }

    #[test]
    fn submodules_of_one_module_may_use_each_other() {
        check("log/record.rs", "use super::append::X;\nuse crate::log::Y;", &[]);
    }

    #[test]
    fn tests_may_use_everything() {
        check("error.rs", "#[cfg(test)]\nmod tests {\n use crate::db::Db;\n}", &[]);
        check("log/tests.rs", "use crate::db::Db;", &[]);
    }

    #[test]
    fn an_exception_allows_one_arrow_up_and_is_found_when_it_is_not_needed() {
        let layers: &[&[&str]] = &[&["table", "db"], &["log"]];
        let path = format!("{SOURCES}log.rs");
        let count = |text: &str| {
            let tree = Tree::of(&[(&path, text)]);
            findings(&tree, layers, &[("log", "table", "why")]).len()
        };
        assert_eq!(count("use crate::table::Entry;"), 0);
        assert_eq!(count("use crate::table::Entry;\nuse crate::db::Db;"), 1);
        assert_eq!(count("use std::io;"), 1);
    }

    #[test]
    fn a_module_without_a_place_is_found() {
        check("vacuum.rs", "fn f() {}", &[0]);
    }

    #[test]
    fn every_name_has_one_place() {
        let mut names: Vec<&str> = LAYERS.iter().flat_map(|row| row.iter().copied()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
