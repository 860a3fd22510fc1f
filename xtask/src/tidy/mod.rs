//! Rules that no compiler checks.
//!
//! What protects the architecture fails: [`CHECKS`]. What is taste is reported only: `taste`. Every
//! check is a pure function of the [`Tree`], and has tests in which it finds something.

use std::fmt;
use std::path::Path;

use crate::tree::Tree;
use crate::{Failure, console};

mod arrows;
mod doors;
mod names;
mod promises;
mod tables;
mod taste;
mod words;

/// Something that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// Counted from 1; 0 for the whole file.
    line: usize,
    /// What is wrong, and what to do.
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

/// The checks that fail, each with the rule it holds.
const CHECKS: [(&str, Check); 12] = [
    ("modules use only modules below them", arrows::modules_use_only_those_below),
    ("`unsafe` is only where ARCHITECTURE.md lists it", doors::unsafe_is_listed),
    ("only storage/ names the operating system", doors::only_storage_names_the_system),
    ("the tables of docs/format.md are those of the sources", tables::format_tables_are_current),
    (
        "the fields of docs/lab-json.md are those of the sources",
        tables::fields_of_studies_are_current,
    ),
    ("module names say what is inside", names::modules_are_named_by_content),
    ("open ends have an issue number", words::open_ends_are_numbered),
    ("no test is left out", words::no_ignored_test),
    ("sources are ASCII", words::sources_are_ascii),
    ("no paths of one machine", words::no_machine_paths),
    ("documents name files that exist", promises::named_files_exist),
    ("documents name commands that exist", promises::named_commands_exist),
];

/// Reads the repository at `root`, prints what the checks find, and fails if one that matters does.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let tree = Tree::read(root)?;
    for remark in taste::remarks(&tree) {
        console::say(&format!("remark: {remark}"));
    }
    let mut count = 0;
    for (rule, check) in CHECKS {
        let findings = check(&tree);
        count += findings.len();
        if !findings.is_empty() {
            console::say(&format!("\nrule: {rule}"));
        }
        for finding in findings {
            console::say(&format!("  {finding}"));
        }
    }
    let rules = CHECKS.len();
    match count {
        0 => console::say(&format!("tidy: {} files, {rules} rules kept", tree.texts.len())),
        _ => return Err(format!("tidy found {count} places where a rule is broken")),
    }
    Ok(())
}

/// Runs one check on a tree of these files and compares the places it finds, as `path:line`.
#[cfg(test)]
#[track_caller]
fn check_finds(check: Check, files: &[(&str, &str)], expected: &[&str]) {
    let findings = check(&Tree::of(files));
    let places: Vec<String> =
        findings.iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect();
    assert_eq!(places, expected, "{findings:#?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::has_extension;

    #[test]
    fn findings_are_printed_as_places_that_an_editor_opens() {
        assert_eq!(Finding::new("a.rs", 3, "no").to_string(), "a.rs:3: no");
        assert_eq!(Finding::new("a.rs", 0, "no").to_string(), "a.rs: no");
    }

    #[test]
    fn an_empty_repository_breaks_no_rule_but_that_of_its_documents() {
        for (rule, check) in CHECKS {
            let findings = check(&Tree::of(&[]));
            let is_of_a_document = findings.iter().all(|finding| {
                has_extension(&finding.path, "md") || finding.path.starts_with("docs/")
            });
            assert!(is_of_a_document, "{rule}: {findings:?}");
        }
    }
}
