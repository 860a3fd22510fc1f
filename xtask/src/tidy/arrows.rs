//! The direction of dependencies inside the `splitpoint` crate: an arrow may only point down.

use std::collections::BTreeMap;

use super::Finding;
use crate::rust::PathUse;
use crate::tree::Tree;

/// Where the modules are.
const SOURCES: &str = "crates/splitpoint/src/";

/// Modules from the top down. A module may use those of the rows below its own; not those beside
/// it, which do not know each other. A submodule that stands lower than its module has its own
/// place. Submodules of one module may use each other.
const LAYERS: &[&[&str]] = &[
    &["table"],
    &["options"],
    &["db"],
    &["cursor", "snapshot", "transaction", "check"],
    &["checkpoint", "recovery", "compaction", "readers"],
    &["log"],
    &["region"],
    &["index", "log::record", "storage"],
    &["stats"],
    &["format", "error"],
    &["hash", "linear", "atomic"],
];

pub(super) fn modules_use_only_those_below(tree: &Tree) -> Vec<Finding> {
    findings(tree, LAYERS)
}

fn findings(tree: &Tree, layers: &[&[&str]]) -> Vec<Finding> {
    let exports = exports(tree);
    let mut findings = Vec::new();
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
        for used in &file.paths {
            if tree.is_test(path, used.line) {
                continue;
            }
            if let Some(message) = complaint(&module, source, used, &exports, layers) {
                findings.push(Finding::new(path, used.line, message));
            }
        }
    }
    findings.dedup();
    findings
}

/// Row of the layers, and the name found there.
type Place<'a> = (usize, &'a str);

fn complaint(
    module: &[String],
    source: Place<'_>,
    used: &PathUse,
    exports: &BTreeMap<String, Vec<String>>,
    layers: &[&[&str]],
) -> Option<String> {
    let [first, second, ..] = used.segments.as_slice() else { return None };
    if first != "crate" {
        return None;
    }
    if second == "*" {
        return Some("`crate::*` hides what is used: name the modules".to_owned());
    }
    let target = exports.get(second).map_or(&used.segments[1..], Vec::as_slice);
    if target.first() == module.first() {
        return None; // Inside one module the order is its own affair.
    }
    let Some((row, name)) = place_of(target, layers) else {
        return Some(format!("`crate::{second}` is of no module that has a place in {}", file!()));
    };
    (row <= source.0).then(|| {
        let side = if row == source.0 { "beside" } else { "above" };
        format!(
            "`{}` may not use `{name}`, which stands {side} it: turn the arrow round, move what is \
             shared below both, or change the layers in {}",
            source.1,
            file!(),
        )
    })
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

    /// Checks file `db.rs` or another one against three rows: `db`, then `log` beside `index`
    /// with `log::record` lower down, then `error`.
    #[track_caller]
    fn check(file: &str, text: &str, expected_lines: &[usize]) {
        let layers: &[&[&str]] = &[&["db"], &["log", "index"], &["log::record"], &["error"]];
        let path = format!("{SOURCES}{file}");
        let tree = Tree::of(&[
            (&format!("{SOURCES}lib.rs"), "mod db;\npub use error::{Error, Kind as ErrorKind};"),
            (&path, text),
        ]);
        let lines: Vec<usize> = findings(&tree, layers).iter().map(|found| found.line).collect();
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
    fn a_module_without_a_place_is_found() {
        check("vacuum.rs", "fn f() {}", &[0]);
    }

    #[test]
    fn every_module_has_one_place() {
        let mut names: Vec<&str> = LAYERS.iter().flat_map(|row| row.iter().copied()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
