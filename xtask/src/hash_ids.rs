//! The hash functions that a file may name, from the sources: a table of docs/format.md.

use crate::docs::SOURCES;
use crate::rust::doc_text;
use crate::tree::Tree;

/// What the mark of the table names.
pub(crate) const MARK: &str = "hash::HashId";
const SOURCE: &str = "hash/mod.rs";

/// Returns a row for each id: the number, the name that the file stores, and what the doc comment
/// of the constant says.
pub(crate) fn table(tree: &Tree) -> Result<String, String> {
    let path = format!("{SOURCES}{SOURCE}");
    let text = tree.texts.get(&path).ok_or_else(|| format!("`{path}` is missing"))?;
    let file = syn::parse_file(text).map_err(|cause| format!("cannot parse `{path}`: {cause}"))?;
    let names = names(text);
    let mut rows = Vec::new();
    for (constant, id, doc) in ids(&file) {
        let row = match (names.iter().find(|(of, _)| *of == constant), constant.as_str()) {
            (Some((_, name)), _) => format!("| {id} | {name} | {doc} |"),
            (None, "USER_MIN") => format!("| {id:#x} and above | | {doc} |"),
            (None, _) => return Err(format!("`{path}`: no function has the id `{constant}`")),
        };
        rows.push(row);
    }
    if rows.is_empty() {
        return Err(format!("`{path}` has no ids of hash functions"));
    }
    Ok(format!("\n| hash id | name | function |\n|--:|---|---|\n{}\n", rows.join("\n")))
}

/// Returns name, value and documentation of each `const NAME: Self = Self(id);` in `impl HashId`.
fn ids(file: &syn::File) -> Vec<(String, u32, String)> {
    let constants = file.items.iter().filter_map(|item| match item {
        syn::Item::Impl(item) => match &*item.self_ty {
            syn::Type::Path(path) if path.path.is_ident("HashId") => Some(&item.items),
            _ => None,
        },
        _ => None,
    });
    let id = |item: &syn::ImplItem| {
        let syn::ImplItem::Const(constant) = item else { return None };
        let syn::Expr::Call(call) = &constant.expr else { return None };
        let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(id), .. }) = call.args.first()? else {
            return None;
        };
        let doc = doc_text(&constant.attrs).trim().replace('\n', " ");
        let doc = doc.trim_end_matches('.').to_owned();
        Some((constant.ident.to_string(), id.base10_parse().ok()?, doc))
    };
    constants.flatten().filter_map(id).collect()
}

/// Returns the constant and the name in each `known(HashId::CONSTANT, "name", ...)`.
fn names(text: &str) -> Vec<(&str, &str)> {
    let of = |call: &'static str| {
        move |text| -> Option<(&str, &str)> {
            let (constant, rest): (&str, &str) = str::split_once(text, ", \"")?;
            Some((constant.strip_prefix(call)?, rest.split_once('"')?.0))
        }
    };
    text.split("Self::known(").skip(1).filter_map(of("HashId::")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: &str = "impl HashId {\n    /// One, 32 bits.\n    pub const ONE: Self = Self(1);\n    \
        /// From here\n    /// on.\n    pub const USER_MIN: Self = Self(0x8000_0000);\n}\n";
    const KNOWN: &str = "fn one() -> F {\n    Self::known(HashId::ONE, \"one-32\", one)\n}\n";

    fn table_of(source: &str) -> Result<String, String> {
        table(&Tree::of(&[("crates/splitpoint/src/hash/mod.rs", source)]))
    }

    #[test]
    fn every_id_has_a_row_with_its_name() {
        let expected = "\n| hash id | name | function |\n|--:|---|---|\n\
            | 1 | one-32 | One, 32 bits |\n| 0x80000000 and above | | From here on |\n";
        assert_eq!(table_of(&format!("{IDS}{KNOWN}")), Ok(expected.to_owned()));
    }

    #[test]
    fn an_id_without_a_function_is_found() {
        assert!(table_of(IDS).is_err_and(|failure| failure.contains("`ONE`")));
        assert!(table_of(KNOWN).is_err());
        assert!(table(&Tree::of(&[])).is_err());
    }
}
