//! The generated parts of docs/: the tables of format.md, the fields of lab-json.md,
//! lab-schema.json, and cli.md.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::hash_ids;
use crate::schema::{self, FIELDS, SCHEMA, with_current_fields};
use crate::tree::Tree;
use crate::{Failure, console, process};

/// The document of the file format: prose, with tables between marks.
pub(crate) const FORMAT: &str = "docs/format.md";
/// The document of the command, which the command writes itself, and its tests compare.
const MANUAL: &str = "docs/cli.md";

const MARK_START: &str = "<!-- table: ";
const MARK_CLOSE: &str = " -->";
const TABLE_END: &str = "<!-- end -->";

/// Where the items are that a mark names.
pub(crate) const SOURCES: &str = "crates/splitpoint/src/";

/// Writes what is out of date.
pub(crate) fn regenerate(root: &Path) -> Result<(), Failure> {
    let tree = Tree::read(root)?;
    let Some(found) = tree.texts.get(FORMAT) else { return Err(format!("`{FORMAT}` is missing")) };
    write_if_changed(root, FORMAT, found, &with_current_tables(&tree, found)?)?;
    let Some(found) = tree.texts.get(FIELDS) else { return Err(format!("`{FIELDS}` is missing")) };
    write_if_changed(root, FIELDS, found, &with_current_fields(&tree, found)?)?;
    let found = tree.texts.get(SCHEMA).map_or("", String::as_str);
    write_if_changed(root, SCHEMA, found, &schema::schema(&tree)?)?;
    let found = tree.texts.get(MANUAL).map_or("", String::as_str);
    write_if_changed(root, MANUAL, found, &command_manual(root)?)
}

fn write_if_changed(root: &Path, path: &str, found: &str, current: &str) -> Result<(), Failure> {
    if found == current {
        console::say(&format!("{path}: current"));
        return Ok(());
    }
    fs::write(root.join(path), current)
        .map_err(|cause| format!("cannot write `{path}`: {cause}"))?;
    console::say(&format!("{path}: written"));
    Ok(())
}

fn command_manual(root: &Path) -> Result<String, Failure> {
    let arguments = ["run", "--quiet", "--package", "splitpoint-cli", "--", "man", "--markdown"];
    process::output(&mut process::command(root, "cargo", &arguments))
}

/// Returns the names in the marks of a document.
pub(crate) fn marks(document: &str) -> impl Iterator<Item = &str> {
    document.lines().filter_map(mark)
}

fn mark(line: &str) -> Option<&str> {
    line.trim().strip_prefix(MARK_START)?.strip_suffix(MARK_CLOSE)
}

/// Returns `document` with every table as its doc comment has it.
pub(crate) fn with_current_tables(tree: &Tree, document: &str) -> Result<String, Failure> {
    let mut current = String::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        current.push_str(line);
        current.push('\n');
        let Some(name) = mark(line) else { continue };
        let table = match name {
            hash_ids::MARK => hash_ids::table(tree)?,
            _ => bytes_table(tree, name).ok_or_else(|| {
                format!("`{name}` names no item of {SOURCES} with a `text` block in its docs")
            })?,
        };
        if !lines.by_ref().any(|line| line.trim() == TABLE_END) {
            return Err(format!("the table of `{name}` has no `{TABLE_END}`"));
        }
        let _ = write!(current, "{table}\n{TABLE_END}\n");
    }
    Ok(current)
}

/// Returns the `text` block of an item named by its path, or of the module if it is one.
fn bytes_table(tree: &Tree, name: &str) -> Option<String> {
    let block = |module: &str, item: &str| {
        let file = module.replace("::", "/");
        let paths = [format!("{SOURCES}{file}.rs"), format!("{SOURCES}{file}/mod.rs")];
        paths.iter().find_map(|path| tree.rust.get(path)?.text_block(item))
    };
    let (module, item) = name.rsplit_once("::").unwrap_or(("lib", name));
    let found = block(module, item).or_else(|| block(name, ""))?;
    Some(format!("```text\n{found}\n```"))
}

/// Returns path, line and name of every item whose documentation holds a table of bytes.
pub(crate) fn layouts(tree: &Tree) -> Vec<(String, usize, String)> {
    let mut layouts = Vec::new();
    for (path, file) in &tree.rust {
        let Some(inside) = path.strip_prefix(SOURCES) else { continue };
        let module = inside.strip_suffix(".rs").unwrap_or(inside);
        let module = module.strip_suffix("/mod").unwrap_or(module).replace('/', "::");
        for (item, line, block) in file.text_blocks() {
            let heads: Vec<&str> = block.lines().next().unwrap_or("").split_whitespace().collect();
            if heads.starts_with(&["offset", "size"]) {
                let name =
                    if item.is_empty() { module.clone() } else { format!("{module}::{item}") };
                layouts.push((path.clone(), line, name));
            }
        }
    }
    layouts
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT_SOURCE: &str = "\
//! Module.
//! ```text
//! 0 all
//! ```

/// One.
/// ```text
/// 0 one
/// ```
struct One;
";

    const LOG_SOURCE: &str = "\
/// ```text
/// 0 two
/// ```
struct Two;
";

    #[track_caller]
    fn check(document: &str, expected: &str) {
        let tree = Tree::of(&[
            ("crates/splitpoint/src/format.rs", FORMAT_SOURCE),
            ("crates/splitpoint/src/log/mod.rs", LOG_SOURCE),
        ]);
        assert_eq!(with_current_tables(&tree, document).expect("marks are right"), expected);
    }

    #[test]
    fn tables_are_filled_in_and_the_prose_is_left_alone() {
        check(
            "a\n\n<!-- table: format::One -->\nold\n<!-- end -->\nb\n\
             <!-- table: log::Two -->\n<!-- end -->\n",
            "a\n\n<!-- table: format::One -->\n```text\n0 one\n```\n<!-- end -->\nb\n\
             <!-- table: log::Two -->\n```text\n0 two\n```\n<!-- end -->\n",
        );
    }

    #[test]
    fn a_module_is_named_by_its_path() {
        check(
            "<!-- table: format -->\n<!-- end -->\n",
            "<!-- table: format -->\n```text\n0 all\n```\n<!-- end -->\n",
        );
    }

    #[test]
    fn current_tables_stay_as_they_are() {
        let document = "<!-- table: format::One -->\n```text\n0 one\n```\n<!-- end -->\nb\n";
        check(document, document);
    }
}
