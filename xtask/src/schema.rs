//! The form of a saved study, from its types: the lists of docs/lab-json.md for people, and
//! docs/lab-schema.json for programs.
//!
//! `schemars` would derive the same from the types. We do not use it, because the command would
//! carry six crates that no user of it needs, and because tidy would have to compile and run the
//! lab before it could compare the page. The tests of `splitpoint-lab` hold the schema against a
//! saved study.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::tree::{Tree, has_extension};

/// The document of a saved study: prose, with the lists between marks.
pub(crate) const FIELDS: &str = "docs/lab-json.md";
/// The same as a JSON Schema.
pub(crate) const SCHEMA: &str = "docs/lab-schema.json";
/// Where the types are.
const SOURCES: &str = "crates/splitpoint-lab/src/";
/// The types of a complete study: of keys, and of replays; and other results.
const ROOTS: [&str; 10] = [
    "Study",
    "ReplayStudy",
    "LayoutReport",
    "TableSizes",
    "HandleReport",
    "LiveKernel",
    "LiveStore",
    "PaperReport",
    "PaperRerun",
    "ClassicsReport",
];

const START: &str = "<!-- fields -->";
const END: &str = "<!-- end -->";

/// A type that is saved.
#[derive(Debug)]
struct Saved {
    doc: String,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// An object with these fields.
    Object(Vec<Field>),
    /// One of several names. If `is_tagged`, it is the `kind` of an object with more fields.
    OneOf { is_tagged: bool, variants: Vec<Variant> },
}

#[derive(Debug)]
struct Variant {
    name: String,
    doc: String,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    name: String,
    doc: String,
    shape: Shape,
    /// A field with a default may be absent.
    is_required: bool,
}

/// A type of a field.
#[derive(Debug)]
enum Shape {
    Integer,
    Number,
    Bool,
    Text,
    OrNull(Box<Self>),
    List(Box<Self>),
    Tuple(Vec<Self>),
    Named(String),
}

/// Returns `document` with the fields that the sources have now.
pub(crate) fn with_current_fields(tree: &Tree, document: &str) -> Result<String, String> {
    let (before, rest) =
        document.split_once(START).ok_or_else(|| format!("{FIELDS} has no `{START}`"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("{FIELDS} has no `{END}`"))?;
    let mut lists = String::new();
    for (name, saved) in reached(&saved_types(tree)?)? {
        let _ = write!(lists, "\n### `{name}`\n\n{} ", saved.doc);
        match &saved.form {
            Form::Object(fields) => {
                lists.push_str("Fields:\n\n");
                push_fields(&mut lists, fields);
            }
            Form::OneOf { variants, .. } => {
                lists.push_str("One of:\n\n");
                for Variant { name, doc, fields } in variants {
                    let _ = writeln!(lists, "- `{name}`: {doc}");
                    push_fields(&mut lists, fields);
                }
            }
        }
    }
    Ok(format!("{before}{START}\n{lists}\n{END}{after}"))
}

fn push_fields(lists: &mut String, fields: &[Field]) {
    for Field { name, doc, shape, .. } in fields {
        let _ = writeln!(lists, "- `{name}` ({}): {doc}", shape.in_words());
    }
}

/// Returns the JSON Schema of a study.
pub(crate) fn schema(tree: &Tree) -> Result<String, String> {
    let types = saved_types(tree)?;
    let forms = reached(&types)?;
    let definitions: BTreeMap<&str, Value> =
        forms.iter().map(|(name, saved)| (*name, saved.schema())).collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A study that `splitpoint lab` saved",
        "anyOf": ROOTS
            .iter()
            .filter(|root| types.contains_key(**root))
            .map(|root| json!({ "$ref": format!("#/$defs/{root}") }))
            .collect::<Vec<Value>>(),
        "$defs": definitions,
    });
    Ok(format!("{schema:#}\n"))
}

/// Returns the types that a study is made of, in the order in which a reader meets them.
fn reached(types: &BTreeMap<String, Saved>) -> Result<Vec<(&str, &Saved)>, String> {
    // Without the first there is no study at all.
    let is_there = |root: &&str| *root == ROOTS[0] || types.contains_key(*root);
    let roots: Vec<&str> = ROOTS.into_iter().filter(is_there).collect();
    let (mut seen, mut queue) = (BTreeSet::from_iter(roots.clone()), VecDeque::from(roots));
    let mut reached = Vec::new();
    while let Some(name) = queue.pop_front() {
        let saved =
            types.get(name).ok_or_else(|| format!("`{SOURCES}` has no saved type `{name}`"))?;
        reached.push((name, saved));
        let fields: Vec<&Field> = match &saved.form {
            Form::Object(fields) => fields.iter().collect(),
            Form::OneOf { variants, .. } => variants.iter().flat_map(|v| &v.fields).collect(),
        };
        for named in fields.iter().filter_map(|field| field.shape.named()) {
            if seen.insert(named) {
                queue.push_back(named);
            }
        }
    }
    Ok(reached)
}

impl Saved {
    fn schema(&self) -> Value {
        let mut schema = match &self.form {
            Form::Object(fields) => object(fields, None),
            Form::OneOf { is_tagged, variants } => {
                let form = |Variant { name, doc, fields }: &Variant| {
                    let mut form = match is_tagged {
                        true => object(fields, Some(name)),
                        false => json!({ "const": name }),
                    };
                    form["description"] = json!(doc);
                    form
                };
                json!({ "oneOf": variants.iter().map(form).collect::<Vec<Value>>() })
            }
        };
        schema["description"] = json!(self.doc);
        schema
    }
}

/// Returns the schema of an object with these fields and, if it is one of several forms, a `kind`.
fn object(fields: &[Field], kind: Option<&str>) -> Value {
    let mut properties: BTreeMap<&str, Value> =
        kind.iter().map(|kind| ("kind", json!({ "const": kind }))).collect();
    let mut required: Vec<&str> = properties.keys().copied().collect();
    for Field { name, doc, shape, is_required } in fields {
        let mut schema = shape.schema();
        schema["description"] = json!(doc);
        properties.insert(name, schema);
        if *is_required {
            required.push(name);
        }
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

impl Shape {
    fn of(field_type: &syn::Type) -> Self {
        match field_type {
            syn::Type::Tuple(tuple) => Self::Tuple(tuple.elems.iter().map(Self::of).collect()),
            syn::Type::Array(array) => {
                let length = match &array.len {
                    syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(length), .. }) => {
                        length.base10_parse().unwrap_or(1)
                    }
                    _ => 1,
                };
                Self::Tuple((0..length).map(|_: u32| Self::of(&array.elem)).collect())
            }
            syn::Type::Reference(reference) => Self::of(&reference.elem),
            syn::Type::Slice(slice) => Self::List(Box::new(Self::of(&slice.elem))),
            syn::Type::Path(path) => path.path.segments.last().map_or(Self::Text, Self::of_segment),
            _ => Self::Text,
        }
    }

    fn of_segment(segment: &syn::PathSegment) -> Self {
        let inner = || match &segment.arguments {
            syn::PathArguments::AngleBracketed(arguments) => {
                let types = arguments.args.iter().filter_map(|argument| match argument {
                    syn::GenericArgument::Type(inner) => Some(Box::new(Self::of(inner))),
                    _ => None,
                });
                types.last().unwrap_or(Box::new(Self::Text))
            }
            _ => Box::new(Self::Text),
        };
        match segment.ident.to_string().as_str() {
            "u8" | "u16" | "u32" | "u64" | "usize" => Self::Integer,
            "f64" => Self::Number,
            "bool" => Self::Bool,
            "String" | "str" => Self::Text,
            "Cow" => *inner(),
            "Option" => Self::OrNull(inner()),
            "Vec" => Self::List(inner()),
            name => Self::Named(name.to_owned()),
        }
    }

    fn named(&self) -> Option<&str> {
        match self {
            Self::Named(name) => Some(name),
            Self::OrNull(inner) | Self::List(inner) => inner.named(),
            _ => None,
        }
    }

    fn in_words(&self) -> String {
        match self {
            Self::Integer | Self::Number => "number".to_owned(),
            Self::Bool => "true or false".to_owned(),
            Self::Text => "text".to_owned(),
            Self::OrNull(inner) => format!("{} or null", inner.in_words()),
            Self::List(inner) => format!("list of {}", inner.in_words()),
            Self::Tuple(parts) => {
                format!("[{}]", parts.iter().map(Self::in_words).collect::<Vec<_>>().join(", "))
            }
            Self::Named(name) => name.clone(),
        }
    }

    fn schema(&self) -> Value {
        match self {
            Self::Integer => json!({ "type": "integer", "minimum": 0 }),
            Self::Number => json!({ "type": "number" }),
            Self::Bool => json!({ "type": "boolean" }),
            Self::Text => json!({ "type": "string" }),
            Self::OrNull(inner) => json!({ "anyOf": [inner.schema(), { "type": "null" }] }),
            Self::List(inner) => json!({ "type": "array", "items": inner.schema() }),
            Self::Tuple(parts) => {
                let schemas: Vec<Value> = parts.iter().map(Self::schema).collect();
                json!({ "type": "array", "prefixItems": schemas, "minItems": parts.len() })
            }
            Self::Named(name) => json!({ "$ref": format!("#/$defs/{name}") }),
        }
    }
}

/// Finds every type with a derived `Serialize`.
fn saved_types(tree: &Tree) -> Result<BTreeMap<String, Saved>, String> {
    let mut types = BTreeMap::new();
    let sources = tree.texts.iter().filter(|(path, text)| {
        path.starts_with(SOURCES) && has_extension(path, "rs") && text.contains("Serialize")
    });
    for (path, text) in sources {
        let file =
            syn::parse_file(text).map_err(|cause| format!("cannot parse `{path}`: {cause}"))?;
        types.extend(file.items.iter().filter_map(saved));
    }
    Ok(types)
}

/// Returns the name and the form of a type that is saved.
///
/// One that stands for a type of another crate has the name of that one.
fn saved(item: &syn::Item) -> Option<(String, Saved)> {
    let (ident, attributes, form) = match item {
        syn::Item::Struct(item) => match &item.fields {
            syn::Fields::Named(named) => {
                (&item.ident, &item.attrs, Form::Object(fields(&named.named)))
            }
            _ => return None,
        },
        syn::Item::Enum(item) => {
            let is_tagged = serde_option(&item.attrs, "tag").is_some();
            let variants = item.variants.iter().map(variant).collect();
            (&item.ident, &item.attrs, Form::OneOf { is_tagged, variants })
        }
        _ => return None,
    };
    let is_saved = attributes.iter().any(|attribute| {
        attribute.path().is_ident("derive")
            && matches!(&attribute.meta, syn::Meta::List(list)
                if list.tokens.to_string().split(',').any(|word| word.trim() == "Serialize"))
    });
    let name = serde_option(attributes, "remote").unwrap_or_else(|| ident.to_string());
    is_saved.then(|| (name, Saved { doc: first_paragraph(attributes), form }))
}

fn variant(variant: &syn::Variant) -> Variant {
    let fields = match &variant.fields {
        syn::Fields::Named(named) => fields(&named.named),
        _ => Vec::new(),
    };
    let name = snake_case(&variant.ident.to_string());
    Variant { name, doc: first_paragraph(&variant.attrs), fields }
}

fn fields<'a>(fields: impl IntoIterator<Item = &'a syn::Field>) -> Vec<Field> {
    let of = |field: &syn::Field| {
        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        let shape = Shape::of(&field.ty);
        Field {
            name: serde_option(&field.attrs, "rename").unwrap_or(name),
            doc: first_paragraph(&field.attrs),
            is_required: !matches!(shape, Shape::OrNull(_))
                && serde_option(&field.attrs, "default").is_none(),
            shape,
        }
    };
    fields.into_iter().map(of).collect()
}

/// Returns the value of an option in `#[serde(...)]`, which is empty if it has none.
fn serde_option(attributes: &[syn::Attribute], name: &str) -> Option<String> {
    let mut found = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        // The compiler has parsed the attribute before, so that no error is left here.
        let _ = attribute.parse_nested_meta(|meta| {
            let value = match meta.value() {
                Ok(value) => value.parse::<syn::LitStr>()?.value(),
                Err(_) => String::new(),
            };
            if meta.path.is_ident(name) {
                found = Some(value);
            }
            Ok(())
        });
    }
    found
}

/// Returns the first paragraph of a doc comment, without the links of Rust.
fn first_paragraph(attributes: &[syn::Attribute]) -> String {
    let doc = crate::rust::doc_text(attributes);
    let first: Vec<&str> = doc.lines().take_while(|line| !line.is_empty()).collect();
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
        "/// All.\n///\n/// More.\n#[derive(Clone, Serialize)]\npub struct Study {\n    \
         /// See [`Part`]\n    /// for more.\n    #[serde(default)]\n    pub parts: Vec<Part>,\n    \
         /// Two.\n    pub two: [f64; 2],\n    /// Named.\n    pub named: (String, u64),\n    \
         /// Where.\n    #[serde(with = \"place\")]\n    pub place: other::Place,\n}\n\n\
         /// A part.\n#[derive(Serialize)]\n#[serde(tag = \"kind\", rename_all = \"snake_case\")]\n\
         pub enum Part {\n    /// None.\n    NotThere,\n    /// One.\n    There {\n        \
         /// How much.\n        value: Option<f64>,\n    },\n}\n\n/// Of another crate.\n\
         #[derive(Serialize)]\n#[serde(remote = \"Place\")]\nstruct Form {\n    /// Which.\n    \
         #[serde(rename = \"which\")]\n    kind: Which,\n}\n\n/// A side.\n#[derive(Serialize)]\n\
         #[serde(rename_all = \"snake_case\")]\npub enum Which {\n    /// Left.\n    Left,\n}\n\n\
         /// Not saved.\npub struct Other {\n    /// Hidden.\n    pub hidden: u64,\n}\n",
    );

    #[test]
    fn every_type_of_a_study_is_listed_with_its_fields() {
        let tree = Tree::of(&[STUDY]);
        let document = format!("# Prose\n{START}\nold\n{END}\nrest\n");
        let expected = "# Prose\n<!-- fields -->\n\n### `Study`\n\nAll. Fields:\n\n\
            - `parts` (list of Part): See `Part` for more.\n- `two` ([number, number]): Two.\n\
            - `named` ([text, number]): Named.\n- `place` (Place): Where.\n\n\
            ### `Part`\n\nA part. One of:\n\n\
            - `not_there`: None.\n- `there`: One.\n- `value` (number or null): How much.\n\n\
            ### `Place`\n\nOf another crate. Fields:\n\n- `which` (Which): Which.\n\n\
            ### `Which`\n\nA side. One of:\n\n- `left`: Left.\n\n<!-- end -->\nrest\n";
        assert_eq!(with_current_fields(&tree, &document), Ok(expected.to_owned()));
        assert!(with_current_fields(&tree, "no marks").is_err());
    }

    #[test]
    fn the_schema_has_what_serde_writes() {
        let schema: Value =
            serde_json::from_str(&schema(&Tree::of(&[STUDY])).expect("parses")).expect("JSON");
        assert_eq!(schema["anyOf"][0]["$ref"], "#/$defs/Study");
        let types = &schema["$defs"];
        assert_eq!(types["Study"]["required"], json!(["two", "named", "place"]));
        assert_eq!(types["Study"]["properties"]["parts"]["items"]["$ref"], "#/$defs/Part");
        assert_eq!(types["Part"]["oneOf"][0]["properties"]["kind"], json!({"const": "not_there"}));
        assert_eq!(types["Part"]["oneOf"][1]["required"], json!(["kind"]));
        assert_eq!(types["Place"]["properties"]["which"]["$ref"], "#/$defs/Which");
        assert_eq!(types["Which"]["oneOf"][0]["const"], "left");
        assert_eq!(types.as_object().expect("an object").len(), 4);
    }

    #[test]
    fn a_type_that_is_missing_is_named() {
        let source = "#[derive(Serialize)]\npub struct Study {\n    pub part: Part,\n}\n";
        let tree = Tree::of(&[("crates/splitpoint-lab/src/study.rs", source)]);
        assert!(schema(&tree).is_err_and(|failure| failure.contains("`Part`")));
    }
}
