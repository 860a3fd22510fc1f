//! The files of the repository, as tidy sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::Failure;
use crate::rust::RustFile;

/// Directories that hold no sources.
const SKIPPED: [&str; 2] = [".git", "target"];

/// Endings of the files that people write, and of one that `cargo xtask docs` writes.
const TEXT_ENDINGS: [&str; 7] =
    [".rs", ".toml", ".md", ".sh", ".yml", ".ci/run", "docs/lab-schema.json"];

/// All files of the repository. Paths are relative to its root, with `/`.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Every file.
    pub(crate) paths: BTreeSet<String>,
    /// The text of those that people write.
    pub(crate) texts: BTreeMap<String, String>,
    /// What the Rust sources say.
    pub(crate) rust: BTreeMap<String, RustFile>,
    /// Rust files that only tests compile.
    test_files: BTreeSet<String>,
}

impl Tree {
    /// Reads the repository at `root`.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let mut paths = Vec::new();
        collect(root, "", &mut paths)?;
        let mut tree = Self::default();
        for path in paths {
            if TEXT_ENDINGS.iter().any(|ending| path.ends_with(ending)) {
                let bytes = fs::read(root.join(&path))
                    .map_err(|cause| format!("cannot read `{path}`: {cause}"))?;
                let text =
                    String::from_utf8(bytes).map_err(|_| format!("`{path}` is not UTF-8"))?;
                tree.add(&path, text)?;
            }
            tree.paths.insert(path);
        }
        tree.find_test_files();
        Ok(tree)
    }

    /// Makes a tree of these files, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.add(path, (*text).to_owned()).expect("the source parses");
            tree.paths.insert((*path).to_owned());
        }
        tree.find_test_files();
        tree
    }

    fn add(&mut self, path: &str, text: String) -> Result<(), Failure> {
        if has_extension(path, "rs") {
            let parsed = RustFile::parse(path, &text)?;
            self.rust.insert(path.to_owned(), parsed);
        }
        self.texts.insert(path.to_owned(), text);
        Ok(())
    }

    /// Returns true if line `line` of `path` is compiled for tests and benches only.
    pub(crate) fn is_test(&self, path: &str, line: usize) -> bool {
        self.test_files.contains(path)
            || self.rust.get(path).is_some_and(|file| file.is_test_line(line))
    }

    /// Follows `#[cfg(test)] mod name;` to the file, and to those under it.
    fn find_test_files(&mut self) {
        let mut roots = Vec::new();
        for (path, file) in &self.rust {
            let directory = child_directory(path);
            for module in &file.test_modules {
                roots.push(format!("{directory}{module}.rs"));
                roots.push(format!("{directory}{module}/"));
            }
        }
        for path in self.rust.keys() {
            let is_by_place = path.contains("/tests/")
                || path.contains("/benches/")
                || path.ends_with("/tests.rs")
                || path.ends_with("/build.rs");
            if is_by_place || roots.iter().any(|root| path.starts_with(root.as_str())) {
                self.test_files.insert(path.clone());
            }
        }
    }
}

/// Returns true if `path` ends in `.` and `extension`. The case counts, as it does on most systems.
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, found)| found == extension)
}

/// Returns the directory, with its `/`, of the modules that the file at `path` declares.
fn child_directory(path: &str) -> String {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let (directory, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    match name {
        "mod" | "lib" | "main" => format!("{directory}/"),
        _ => format!("{stem}/"),
    }
}

fn collect(root: &Path, directory: &str, paths: &mut Vec<String>) -> Result<(), Failure> {
    let shown = root.join(directory);
    let failure = |cause: std::io::Error| format!("cannot list `{}`: {cause}", shown.display());
    for entry in fs::read_dir(&shown).map_err(failure)? {
        let entry = entry.map_err(failure)?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let path = if directory.is_empty() { name.into() } else { format!("{directory}/{name}") };
        let kind = entry.file_type().map_err(failure)?;
        if kind.is_dir() {
            if !SKIPPED.contains(&name) {
                collect(root, &path, paths)?;
            }
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

/// Returns the first line, counted from 1, in which two texts differ.
pub(crate) fn first_difference(left: &str, right: &str) -> Option<usize> {
    if left == right {
        return None;
    }
    let same = left.lines().zip(right.lines()).take_while(|(left, right)| left == right).count();
    Some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_declared_for_tests_are_test_files_with_all_below_them() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod model;\nmod log;"),
            ("crates/a/src/model.rs", "fn f() {}"),
            ("crates/a/src/model/deep.rs", "fn f() {}"),
            ("crates/a/src/log.rs", "mod append;\n#[cfg(all(test, loom))]\nmod loom;"),
            ("crates/a/src/log/loom.rs", "fn f() {}"),
            ("crates/a/src/log/append.rs", "fn f() {}\n#[cfg(test)]\nmod t {\n fn g() {}\n}"),
        ]);
        assert!(tree.is_test("crates/a/src/model.rs", 1));
        assert!(tree.is_test("crates/a/src/model/deep.rs", 1));
        assert!(tree.is_test("crates/a/src/log/loom.rs", 1));
        assert!(!tree.is_test("crates/a/src/log.rs", 1));
        assert!(!tree.is_test("crates/a/src/log/append.rs", 1));
        assert!(tree.is_test("crates/a/src/log/append.rs", 4));
    }
}
