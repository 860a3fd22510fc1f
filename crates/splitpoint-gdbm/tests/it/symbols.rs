//! What the library exports: all of gdbm.h, and nothing else.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{library, succeed, text};

const SYMBOLS: &str = include_str!("../../symbols.txt");

fn exported(library: &std::path::Path) -> BTreeSet<String> {
    let listed = text(succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(library)));
    let names = listed.lines().filter_map(|line| line.split_whitespace().nth(2));
    names.map(str::to_string).collect()
}

#[test]
fn the_library_exports_the_functions_of_the_header_and_nothing_else() {
    let expected: BTreeSet<String> = SYMBOLS.lines().map(str::to_string).collect();
    assert_eq!(exported(&library()), expected);
}

#[test]
fn every_name_of_the_original_is_exported_but_its_internals() {
    let Some(original) = crate::support::original() else {
        return crate::support::skip("the original is not installed");
    };
    let internals = [
        "gdbm_avail_block_validate",
        "gdbm_avail_traverse",
        "gdbm_bucket_avail_table_validate",
        "gdbm_file_sync",
    ];
    let expected = exported(&original).into_iter().filter(|name| !name.starts_with('_'));
    let ours = exported(&library());
    for name in expected.filter(|name| !internals.contains(&name.as_str())) {
        assert!(ours.contains(&name), "{name}");
    }
}
