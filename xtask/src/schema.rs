//! The fields of a saved study, from the doc comments of its types: the lists of docs/lab-json.md.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use crate::tree::Tree;

/// The document of a saved study: prose, with the lists between marks.
pub(crate) const SCHEMA: &str = "docs/lab-json.md";
/// Where its types are.
const SOURCES: &str = "crates/splitpoint-lab/src/";
/// The type of the whole.
const ROOT: &str = "Study";

const START: &str = "<!-- fields -->";
const END: &str = "<!-- end -->";

/// A type that is saved.
#[derive(Debug, Default)]
struct Saved {
    doc: String,
    is_enum: bool,
    /// Fields, or variants and their fields after them: name, type, what it is.
    fields: Vec<(String, String, String)>,
}

/// Returns `document` with the fields that the sources have now.
pub(crate) fn with_current_fields(tree: &Tree, document: &str) -> Result<String, String> {
    let (before, rest) =
        document.split_once(START).ok_or_else(|| format!("{SCHEMA} has no `{START}`"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("{SCHEMA} has no `{END}`"))?;
    Ok(format!("{before}{START}\n{}{END}{after}", fields(tree)?))
}

/// Returns the lists of all types that a study is made of, in the order in which they are met.
fn fields(tree: &Tree) -> Result<String, String> {
    let types = saved_types(tree);
    let (mut seen, mut queue) = (BTreeSet::from([ROOT]), VecDeque::from([ROOT]));
    let mut out = String::new();
    while let Some(name) = queue.pop_front() {
        let saved = types.get(name).ok_or_else(|| format!("`{name}` is not in {SOURCES}"))?;
        let kind = if saved.is_enum { "One of:" } else { "Fields:" };
        let _ = write!(out, "\n### `{name}`\n\n{} {kind}\n\n", saved.doc);
        for (field, field_type, doc) in &saved.fields {
            let shown = in_json(field_type);
            let type_note = if shown.is_empty() { String::new() } else { format!(" ({shown})") };
            let _ = writeln!(out, "- `{field}`{type_note}: {doc}");
            for word in words(field_type) {
                if let Some((word, _)) = types.get_key_value(word)
                    && seen.insert(word)
                {
                    queue.push_back(word);
                }
            }
        }
    }
    out.push('\n');
    Ok(out)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Returns what a type is in JSON.
fn in_json(field_type: &str) -> String {
    let inner = |prefix: &str| field_type.strip_prefix(prefix)?.strip_suffix('>');
    if let Some(inner) = inner("Option<") {
        return format!("{} or null", in_json(inner));
    }
    if let Some(inner) = inner("Vec<") {
        return format!("list of {}", in_json(inner));
    }
    match field_type {
        "u8" | "u32" | "u64" | "f64" | "usize" => "number".to_owned(),
        "bool" => "true or false".to_owned(),
        "String" | "Cow<'static, str>" => "text".to_owned(),
        _ => field_type.trim_start_matches("crate::").to_owned(),
    }
}

/// Finds every type with a derived `Serialize`.
fn saved_types(tree: &Tree) -> BTreeMap<String, Saved> {
    let mut types = BTreeMap::new();
    for (_, text) in tree
        .texts
        .iter()
        .filter(|(path, _)| path.starts_with(SOURCES) && crate::tree::has_extension(path, "rs"))
    {
        read_types(text, &mut types);
    }
    types
}

fn read_types(text: &str, types: &mut BTreeMap<String, Saved>) {
    let (mut doc, mut is_saved, mut open) = (Vec::new(), false, None::<(String, Saved)>);
    let mut renames = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(said) = trimmed.strip_prefix("///") {
            doc.push(said.trim().to_owned());
            continue;
        }
        if trimmed.starts_with("#[") {
            is_saved |= open.is_none() && trimmed.contains("Serialize");
            renames |= open.is_none() && trimmed.contains("snake_case");
            continue;
        }
        let said = sentence(&std::mem::take(&mut doc));
        if line == "}" {
            if let Some((name, saved)) = open.take() {
                types.insert(name, saved);
            }
            (is_saved, renames) = (false, false);
        } else if let Some((_, saved)) = &mut open {
            let field = trimmed.trim_end_matches(',');
            let plain = field.strip_prefix("pub ").unwrap_or(field);
            match plain.split_once(": ") {
                Some((name, field_type)) => {
                    saved.fields.push((name.to_owned(), field_type.to_owned(), said));
                }
                None if plain.starts_with(char::is_uppercase) => {
                    let variant = plain.trim_end_matches([' ', '{']);
                    let shown = if renames { snake_case(variant) } else { variant.to_owned() };
                    saved.fields.push((shown, String::new(), said));
                }
                None => {}
            }
        } else if is_saved && let Some((kind, name)) = opened(line) {
            let is_enum = kind == "enum";
            open = Some((name, Saved { doc: said, is_enum, fields: Vec::new() }));
        } else if !trimmed.is_empty() {
            (is_saved, renames) = (false, false);
        }
    }
}

fn opened(line: &str) -> Option<(&str, String)> {
    let (kind, rest) = line.strip_prefix("pub ")?.split_once(' ')?;
    let name = rest.strip_suffix(" {")?;
    matches!(kind, "struct" | "enum").then(|| (kind, name.to_owned()))
}

/// Returns the first paragraph of a doc comment, without the links of Rust.
fn sentence(doc: &[String]) -> String {
    let first: Vec<&str> =
        doc.iter().take_while(|line| !line.is_empty()).map(String::as_str).collect();
    first.join(" ").replace("[`", "`").replace("`]", "`")
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUDY: (&str, &str) = (
        "crates/splitpoint-lab/src/study.rs",
        "/// All.\n///\n/// More.\n#[derive(Serialize)]\npub struct Study {\n    /// See [`Part`]\n    \
         /// for more.\n    #[serde(default)]\n    pub parts: Vec<Part>,\n}\n\n/// A part.\n\
         #[derive(Serialize)]\n#[serde(tag = \"kind\", rename_all = \"snake_case\")]\n\
         pub enum Part {\n    /// None.\n    NotThere,\n    /// One.\n    There {\n        \
         /// How much.\n        value: Option<f64>,\n    },\n}\n\n/// Not saved.\n\
         pub struct Other {\n    /// Hidden.\n    pub hidden: u64,\n}\n",
    );

    #[test]
    fn every_type_of_a_study_is_listed_with_its_fields() {
        let tree = Tree::of(&[STUDY]);
        let document = format!("# Prose\n{START}\nold\n{END}\nrest\n");
        let expected = "# Prose\n<!-- fields -->\n\n### `Study`\n\nAll. Fields:\n\n\
            - `parts` (list of Part): See `Part` for more.\n\n### `Part`\n\nA part. One of:\n\n\
            - `not_there`: None.\n- `there`: One.\n- `value` (number or null): How much.\n\n\
            <!-- end -->\nrest\n";
        assert_eq!(with_current_fields(&tree, &document), Ok(expected.to_owned()));
        assert!(with_current_fields(&tree, "no marks").is_err());
    }
}
