//! Words and letters that do not belong in a source.

use super::Finding;
use crate::tree::Tree;

/// Marks of unfinished work that may stand with an issue number, and those that may not.
///
/// Written in two halves, so that this file does not find itself.
const NUMBERED: &str = concat!("TO", "DO");
const REFUSED: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];

/// Directories that one machine has and others do not, and the measured records that may tell of
/// the machine they were measured on.
const MACHINE_PATHS: [&str; 4] = ["/work", "/home", "/root", "/tmp"];
const RECORDS: &str = "record/";

pub(super) fn open_ends_are_numbered(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, line, text) in lines(tree) {
        if let Some(mark) = REFUSED.iter().find(|mark| has_word(text, mark)) {
            findings.push(Finding::new(path, line, format!("{mark}: settle it, or open an issue")));
        }
        if has_word(text, NUMBERED) && !is_numbered(text) {
            let message = format!("{NUMBERED} without an issue number, as in `{NUMBERED}(#12)`");
            findings.push(Finding::new(path, line, message));
        }
    }
    findings
}

fn is_numbered(text: &str) -> bool {
    text.split_once(&format!("{NUMBERED}(#")).is_some_and(|(_, after)| {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        digits > 0 && after[digits..].starts_with(')')
    })
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|part| part == word)
}

pub(super) fn no_ignored_test(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in &tree.rust {
        for &line in &file.ignore_lines {
            let message = "an ignored test tests nothing: make it short, with more rounds under \
                SPLITPOINT_SLOW=1";
            findings.push(Finding::new(path, line, message));
        }
    }
    findings
}

pub(super) fn sources_are_ascii(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, line, text) in lines(tree) {
        if let Some(letter) = text.chars().find(|letter| !letter.is_ascii()) {
            let message =
                format!("{} is not ASCII: write \\u{{...}} or a word", letter.escape_unicode());
            findings.push(Finding::new(path, line, message));
        }
    }
    findings
}

pub(super) fn no_machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, line, text) in lines(tree) {
        if path.starts_with(RECORDS) || tree.is_test(path, line) {
            continue;
        }
        if let Some(found) = MACHINE_PATHS.iter().find(|found| names_directory(text, found)) {
            let message =
                format!("`{found}` is of one machine: use a path from the root, or an option");
            findings.push(Finding::new(path, line, message));
        }
    }
    findings
}

/// Returns true if `text` names `directory` from the root, or something in it.
fn names_directory(text: &str, directory: &str) -> bool {
    let is_of_name = |letter: u8| letter.is_ascii_alphanumeric() || b"_-.~}".contains(&letter);
    text.match_indices(directory).any(|(start, _)| {
        let before = start.checked_sub(1).map(|at| text.as_bytes()[at]);
        let after = text.as_bytes().get(start + directory.len()).copied();
        // `docs/work/` and `a/b` in prose go on from a name; `/workspace` goes on to one.
        !before.is_some_and(|letter| is_of_name(letter) || letter == b'/')
            && !after
                .is_some_and(|letter| letter.is_ascii_alphanumeric() || b"_-".contains(&letter))
    })
}

/// Returns the lines of all texts but the directories' lists in this file's own tests.
fn lines(tree: &Tree) -> impl Iterator<Item = (&str, usize, &str)> {
    let this = file!();
    tree.texts.iter().filter(move |(path, _)| !this.ends_with(path.as_str())).flat_map(
        |(path, text)| {
            text.split('\n').enumerate().map(|(index, line)| (path.as_str(), index + 1, line))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::*;

    #[test]
    fn open_ends_without_a_number_are_found() {
        let refused = REFUSED[0];
        let text = format!(
            "// {NUMBERED}(#12): fine\n// {NUMBERED}: no\n// {NUMBERED}(#x): no\n\
             // {refused}(#12)\nfn f() {{}} // METHODOLOGY",
        );
        check_finds(open_ends_are_numbered, &[("a.rs", &text)], &["a.rs:2", "a.rs:3", "a.rs:4"]);
    }

    #[test]
    fn ignored_tests_are_found() {
        let text = "#[test]\n#[ignore = \"slow\"]\nfn f() {}\nmod m {\n #[ignore]\n fn g() {}\n}";
        check_finds(no_ignored_test, &[("a.rs", text)], &["a.rs:2", "a.rs:5"]);
    }

    #[test]
    fn letters_outside_ascii_are_found() {
        check_finds(sources_are_ascii, &[("a.md", "fine\n\u{e9}t\u{e9}")], &["a.md:2"]);
    }

    #[test]
    fn paths_of_one_machine_are_found_outside_tests_and_records() {
        let text = "const A: &str = \"/work/main\";\nconst B: &str = \"docs/work/x\";\n\
            // see /home/me\n#[cfg(test)]\nmod t {\n const C: &str = \"/tmp/x\";\n}";
        check_finds(
            no_machine_paths,
            &[
                ("a.rs", text),
                ("tests/it.md", "`/tmp`"),
                ("crates/a/tests/it/main.rs", "const A: &str = \"/tmp\";"),
                ("record/2026/README.md", "/root/x"),
                ("b.md", "in /workspace and target/tmp, ~/home/x, read/root; `/root`"),
            ],
            &["a.rs:1", "a.rs:3", "b.md:1", "tests/it.md:1"],
        );
    }
}
