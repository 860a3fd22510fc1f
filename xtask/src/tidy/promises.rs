//! What README, ARCHITECTURE and the other documents promise, as far as it is cheap to check.

use super::Finding;
use crate::tree::{Tree, has_extension};

/// Directories from which a document may name a file.
const BASES: [&str; 7] = [
    "",
    "crates/",
    "crates/splitpoint/src/",
    "crates/splitpoint-lab/src/",
    "crates/splitpoint-legacy/src/",
    "docs/",
    "peers/",
];

/// Endings by which a word is known to be a file.
const ENDINGS: [&str; 4] = [".rs", ".md", ".toml", ".sh"];

/// Commands of `cargo xtask`.
const COMMANDS: [&str; 8] = ["test", "stage", "tidy", "docs", "race", "ci-deps", "help", "--help"];

/// Documents that tell of the past, when there were other files.
const HISTORY: [&str; 2] = ["CHANGELOG.md", "record/"];

pub(super) fn named_files_exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, line, text) in document_lines(tree) {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        for word in quoted(text).filter(|word| is_file_name(word)) {
            if !BASES.iter().any(|base| exists(tree, &format!("{base}{word}"))) {
                findings.push(Finding::new(path, line, format!("there is no `{word}`")));
            }
        }
        for target in link_targets(text) {
            if !exists(tree, target) && !exists(tree, &joined(directory, target)) {
                findings.push(Finding::new(path, line, format!("the link `{target}` is broken")));
            }
        }
    }
    findings
}

pub(super) fn named_commands_exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, line, text) in document_lines(tree) {
        for (start, call) in text.match_indices("cargo xtask ") {
            let rest = &text[start + call.len()..];
            let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
            let command = rest.split(|letter| !is_of_name(letter)).next().unwrap_or("");
            if !command.is_empty() && !COMMANDS.contains(&command) {
                let message = format!("there is no `cargo xtask {command}`");
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

fn document_lines(tree: &Tree) -> impl Iterator<Item = (&str, usize, &str)> {
    let documents = tree.texts.iter().filter(|(path, _)| {
        has_extension(path, "md") && !HISTORY.iter().any(|history| path.starts_with(history))
    });
    documents.flat_map(|(path, text)| {
        text.lines().enumerate().map(|(index, line)| (path.as_str(), index + 1, line))
    })
}

/// Returns the words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_file_name(word: &str) -> bool {
    let is_plain = |letter: u8| letter.is_ascii_alphanumeric() || b"/_.-".contains(&letter);
    let is_known = ENDINGS.iter().any(|ending| word.ends_with(ending) && word.len() > ending.len())
        || word.ends_with('/');
    is_known && word.bytes().all(is_plain) && !word.starts_with('/') && !word.starts_with("target/")
}

/// Returns the files that Markdown links of this line lead to.
fn link_targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let (target, _) = rest.split_once(')')?;
        let target = target.split('#').next().unwrap_or("");
        (!target.is_empty() && !target.contains(':') && !target.contains(' ')).then_some(target)
    })
}

fn exists(tree: &Tree, path: &str) -> bool {
    let directory = format!("{}/", path.trim_end_matches('/'));
    tree.paths.contains(path)
        || tree
            .paths
            .range(directory.clone()..)
            .next()
            .is_some_and(|next| next.starts_with(&directory))
}

/// Returns `target` as seen from `directory`, with `..` taken out.
fn joined(directory: &str, target: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::*;

    const PRESENT: [(&str, &str); 2] =
        [("docs/format.md", "x"), ("crates/splitpoint/src/log/mod.rs", "")];

    #[track_caller]
    fn check(check: super::super::Check, path: &str, text: &str, expected: &[&str]) {
        let mut files = PRESENT.to_vec();
        files.push((path, text));
        check_finds(check, &files, expected);
    }

    #[test]
    fn files_that_exist_are_found_from_every_base() {
        let text = "`docs/format.md` `format.md` `log/mod.rs` `log/` `splitpoint/` `a + b.rs`\n\
            [x](docs/format.md#top) [y](https://example.org/z.md) `cargo run x.md` `.rs`";
        check(named_files_exist, "README.md", text, &[]);
        check(named_files_exist, "docs/other.md", "[x](format.md) [y](../crates/)", &[]);
    }

    #[test]
    fn files_that_do_not_exist_are_reported() {
        let text = "`log/append.rs`\n[x](docs/gone.md)\n`docs/format.md` and `bench/`\n";
        check(named_files_exist, "README.md", text, &["README.md:1", "README.md:2", "README.md:3"]);
        check(named_files_exist, "CHANGELOG.md", text, &[]);
    }

    #[test]
    fn commands_that_do_not_exist_are_reported() {
        let text =
            "`cargo xtask test`, `cargo xtask tidy`\n`cargo xtask dist`\ncargo xtask ci-deps\n";
        check(named_commands_exist, "README.md", text, &["README.md:2"]);
    }
}
