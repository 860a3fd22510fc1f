//! What is saved is described once: docs/format.md, docs/lab-json.md and docs/lab-schema.json hold
//! what the doc comments say.

use super::Finding;
use crate::docs::{self, FORMAT};
use crate::schema::{self, FIELDS, SCHEMA, with_current_fields};
use crate::tree::{Tree, first_difference};

pub(super) fn format_tables_are_current(tree: &Tree) -> Vec<Finding> {
    let Some(found) = tree.texts.get(FORMAT) else {
        return vec![Finding::new(FORMAT, 0, "missing; it explains the file format")];
    };
    let current = match docs::with_current_tables(tree, found) {
        Ok(current) => current,
        Err(failure) => return vec![Finding::new(FORMAT, 0, failure)],
    };
    let mut findings = Vec::new();
    if let Some(line) = first_difference(found, &current) {
        let message = "not what the doc comment says: run `cargo xtask docs`";
        findings.push(Finding::new(FORMAT, line, message));
    }
    for (path, line, item) in docs::layouts(tree) {
        if !docs::marks(found).any(|mark| mark == item) {
            let message =
                format!("the layout of `{item}` has no `<!-- table: {item} -->` in {FORMAT}");
            findings.push(Finding::new(&path, line, message));
        }
    }
    findings
}

pub(super) fn fields_of_studies_are_current(tree: &Tree) -> Vec<Finding> {
    let found = |path: &str| tree.texts.get(path).map_or("", String::as_str);
    [(FIELDS, with_current_fields(tree, found(FIELDS))), (SCHEMA, schema::schema(tree))]
        .into_iter()
        .filter_map(|(path, current)| match current {
            Err(failure) => Some(Finding::new(path, 0, failure)),
            Ok(current) => first_difference(found(path), &current).map(|line| {
                Finding::new(path, line, "not what the doc comments say: run `cargo xtask docs`")
            }),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::*;

    const HEADER: (&str, &str) = (
        "crates/splitpoint/src/log/record.rs",
        "/// Header.\n///\n/// ```text\n/// offset  size  field\n///      0     4  crc\n/// ```\n\
         struct Header;",
    );

    #[track_caller]
    fn check(document: &str, expected: &[&str]) {
        check_finds(format_tables_are_current, &[("docs/format.md", document), HEADER], expected);
    }

    #[test]
    fn a_table_like_its_source_is_current() {
        let document = "# Format\n<!-- table: log::record::Header -->\n```text\n\
            offset  size  field\n     0     4  crc\n```\n<!-- end -->\n";
        check(document, &[]);
    }

    #[test]
    fn a_table_unlike_its_source_is_found() {
        let document = "# Format\n<!-- table: log::record::Header -->\n```text\n\
            offset  size  field\n     0     8  crc\n```\n<!-- end -->\n";
        check(document, &["docs/format.md:5"]);
    }

    #[test]
    fn a_mark_that_names_nothing_is_found() {
        check("<!-- table: log::record::Footer -->\n<!-- end -->\n", &["docs/format.md:0"]);
        check("<!-- table: log::record::Header -->\nno end\n", &["docs/format.md:0"]);
    }

    #[test]
    fn a_layout_that_the_document_leaves_out_is_found() {
        check("# Format\n", &["crates/splitpoint/src/log/record.rs:1"]);
        check_finds(format_tables_are_current, &[], &["docs/format.md:0"]);
    }

    #[test]
    fn the_fields_of_a_study_are_those_of_the_sources() {
        let source = (
            "crates/splitpoint-lab/src/study.rs",
            "/// All.\n#[derive(Serialize)]\npub struct Study {\n    /// One.\n    \
             pub one: u64,\n}\n",
        );
        let schema = schema::schema(&Tree::of(&[source])).expect("the source parses");
        let check = |document: &str, schema: &str, expected: &[&str]| {
            let files = [("docs/lab-json.md", document), ("docs/lab-schema.json", schema), source];
            check_finds(fields_of_studies_are_current, &files, expected);
        };
        let current = "<!-- fields -->\n\n### `Study`\n\nAll. Fields:\n\n- `one` (number): One.\n\n\
            <!-- end -->\n";
        check(current, &schema, &[]);
        check(&current.replace("One.", "Two."), &schema, &["docs/lab-json.md:7"]);
        check(current, &schema.replace("\"integer\"", "\"number\""), &["docs/lab-schema.json:9"]);
        check("no marks", "", &["docs/lab-json.md:0", "docs/lab-schema.json:1"]);
    }
}
