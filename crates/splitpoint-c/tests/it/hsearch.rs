//! `libsplitpoint_hsearch`, from C.

use crate::support::{Link, Program};

const LIBRARY: &[&str] = &["splitpoint_hsearch"];

#[test]
fn tables_grow_entries_stay_and_every_rule_is_kept() {
    for link in [Link::Shared, Link::Archive, Link::Static] {
        Program::new("hsearch.c", LIBRARY, link).run(&[]);
    }
}

#[test]
fn nothing_leaks_and_nothing_is_used_after_its_end() {
    Program::new("hsearch.c", LIBRARY, Link::Shared).run_checked(&[]);
}

#[test]
fn any_number_of_threads_may_look_up() {
    let program = Program::new("hsearch_threads.c", LIBRARY, Link::Shared);
    program.run(&[]);
    program.run_checked(&[]);
}
