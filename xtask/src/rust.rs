//! What tidy needs to know of a Rust file: the paths it names, `unsafe`, lengths, documentation.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use crate::Failure;

/// A path named in a source: in a `use`, an expression, a type or a macro call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathUse {
    /// From `crate` on if the path is of this crate and says so; otherwise as written.
    pub(crate) segments: Vec<String>,
    /// Name under which a `use` makes it known.
    pub(crate) name: Option<String>,
    /// Line, counted from 1.
    pub(crate) line: usize,
}

/// A function and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) line_count: usize,
}

/// What one file says.
#[derive(Debug)]
pub(crate) struct RustFile {
    pub(crate) paths: Vec<PathUse>,
    pub(crate) functions: Vec<Function>,
    /// Lines with the word `unsafe` in code, comments and strings apart.
    pub(crate) unsafe_lines: Vec<usize>,
    /// Lines with an `#[ignore]`.
    pub(crate) ignore_lines: Vec<usize>,
    /// Modules that the file declares, and where.
    pub(crate) modules: Vec<(String, usize)>,
    /// Of these, the ones in files of their own that are for tests only.
    pub(crate) test_modules: Vec<String>,
    /// First and last line of what is compiled for tests only.
    test_lines: Vec<(usize, usize)>,
    /// Documentation of the module itself and of its items, by name.
    docs: Vec<(String, usize, String)>,
}

impl RustFile {
    pub(crate) fn parse(path: &str, text: &str) -> Result<Self, Failure> {
        let located = |cause: &dyn std::fmt::Display| format!("cannot parse `{path}`: {cause}");
        let file = syn::parse_file(text).map_err(|cause| {
            let start = cause.span().start();
            located(&format!("{cause}, at line {}", start.line))
        })?;
        let tokens: TokenStream = text.parse().map_err(|cause| located(&cause))?;
        let mut reader = Reader { file: Self::empty(), module: module_of(path) };
        reader.file.read_tokens(tokens);
        reader.file.push_docs("", 1, &file.attrs);
        reader.visit_file(&file);
        Ok(reader.file)
    }

    fn empty() -> Self {
        Self {
            paths: Vec::new(),
            functions: Vec::new(),
            unsafe_lines: Vec::new(),
            ignore_lines: Vec::new(),
            modules: Vec::new(),
            test_modules: Vec::new(),
            test_lines: Vec::new(),
            docs: Vec::new(),
        }
    }

    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.iter().any(|&(first, last)| (first..=last).contains(&line))
    }

    /// Returns the first `text` block in the documentation of item `name`, or of the module if
    /// `name` is empty.
    pub(crate) fn text_block(&self, name: &str) -> Option<String> {
        self.text_blocks().find(|(item, ..)| item == name).map(|(.., block)| block)
    }

    /// Returns the first `text` block of every item that has one, with its name and line.
    pub(crate) fn text_blocks(&self) -> impl Iterator<Item = (String, usize, String)> {
        self.docs.iter().filter_map(|(name, line, doc)| {
            text_block(doc).map(|block| (name.clone(), *line, block))
        })
    }

    /// Notes words that matter wherever they stand, macro bodies included.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut last = String::new();
        for token in tokens {
            let line = token.span().start().line;
            let word = match token {
                TokenTree::Group(group) => {
                    // The attribute `#[ignore]` or `#[ignore = "..."]`.
                    let first = group.stream().into_iter().next().map(|token| token.to_string());
                    if last == "#" && first.as_deref() == Some("ignore") {
                        self.ignore_lines.push(line);
                    }
                    self.read_tokens(group.stream());
                    String::new()
                }
                other => other.to_string(),
            };
            if word == "unsafe" {
                self.unsafe_lines.push(line);
            }
            last = word;
        }
    }

    fn push_docs(&mut self, name: &str, line: usize, attributes: &[syn::Attribute]) {
        let doc = doc_text(attributes);
        if !doc.is_empty() {
            self.docs.push((name.to_owned(), line, doc));
        }
    }
}

/// Returns the text of a doc comment, each line with its end.
pub(crate) fn doc_text(attributes: &[syn::Attribute]) -> String {
    let mut doc = String::new();
    for attribute in attributes {
        let syn::Meta::NameValue(meta) = &attribute.meta else { continue };
        let syn::Expr::Lit(value) = &meta.value else { continue };
        if let (true, syn::Lit::Str(text)) = (meta.path.is_ident("doc"), &value.lit) {
            let text = text.value();
            doc.push_str(text.strip_prefix(' ').unwrap_or(&text));
            doc.push('\n');
        }
    }
    doc
}

fn text_block(doc: &str) -> Option<String> {
    let mut lines = doc.lines().skip_while(|line| line.trim() != "```text");
    lines.next()?;
    let block: Vec<&str> = lines.take_while(|line| line.trim() != "```").collect();
    Some(block.join("\n"))
}

/// Returns the module path of a file: `log`, `append` for `crates/splitpoint/src/log/append.rs`.
fn module_of(path: &str) -> Vec<String> {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside);
    let stem = inside.strip_suffix(".rs").unwrap_or(inside);
    let mut module: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

struct Reader {
    file: RustFile,
    module: Vec<String>,
}

impl Reader {
    /// Notes a path, with `self` and `super` resolved.
    fn push_path(&mut self, segments: Vec<String>, name: Option<String>, line: usize) {
        let mut segments = segments;
        if matches!(segments.first().map(String::as_str), Some("self" | "super")) {
            let mut absolute = self.module.clone();
            let mut rest = segments.as_slice();
            while let Some((first, others)) = rest.split_first() {
                match first.as_str() {
                    "self" => {}
                    "super" => drop(absolute.pop()),
                    _ => break,
                }
                rest = others;
            }
            absolute.extend_from_slice(rest);
            absolute.insert(0, "crate".to_owned());
            segments = absolute;
        }
        self.file.paths.push(PathUse { segments, name, line });
    }

    fn push_use(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |ident: &dyn ToString| {
            let mut segments = before.to_vec();
            segments.push(ident.to_string());
            segments
        };
        let line = tree.span().start().line;
        match tree {
            syn::UseTree::Path(path) => self.push_use(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) if name.ident == "self" => {
                self.push_path(before.to_vec(), before.last().cloned(), line);
            }
            syn::UseTree::Name(name) => {
                self.push_path(with(&name.ident), Some(name.ident.to_string()), line);
            }
            syn::UseTree::Rename(rename) => {
                self.push_path(with(&rename.ident), Some(rename.rename.to_string()), line);
            }
            syn::UseTree::Glob(_) => self.push_path(with(&"*"), None, line),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.push_use(before, tree);
                }
            }
        }
    }

    /// Notes the paths in the arguments of a macro, which are not parsed.
    fn push_macro_paths(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut line = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if path.is_empty() || colons == 2 => {
                    line = if path.is_empty() { ident.span().start().line } else { line };
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                }
                other => {
                    self.end_macro_path(&mut path, line);
                    colons = 0;
                    match other {
                        TokenTree::Group(group) => self.push_macro_paths(group.stream()),
                        TokenTree::Ident(ident) => {
                            line = ident.span().start().line;
                            path.push(ident.to_string());
                        }
                        _ => {}
                    }
                }
            }
        }
        self.end_macro_path(&mut path, line);
    }

    fn end_macro_path(&mut self, path: &mut Vec<String>, line: usize) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.push_path(path, None, line);
        }
    }

    fn push_function(&mut self, name: &syn::Ident, span: proc_macro2::Span) {
        let (first, last) = (span.start().line, span.end().line);
        let function =
            Function { name: name.to_string(), line: first, line_count: last - first + 1 };
        self.file.functions.push(function);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (name, attributes) = name_and_attributes(item);
        let (first, last) = (item.span().start().line, item.span().end().line);
        if attributes.iter().any(is_for_tests) {
            self.file.test_lines.push((first, last));
            if let syn::Item::Mod(syn::ItemMod { ident, content: None, .. }) = item {
                self.file.test_modules.push(ident.to_string());
            }
        }
        if let Some(name) = name {
            self.file.push_docs(&name, first, attributes);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let line = module.ident.span().start().line;
        self.file.modules.push((module.ident.to_string(), line));
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.push_use(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.push_path(segments, None, path.span().start().line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        // Not the macro's own path: a macro is of the whole crate wherever it is written.
        self.push_macro_paths(call.tokens.clone());
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.push_function(&function.sig.ident, function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.push_function(&function.sig.ident, function.block.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.push_function(&function.sig.ident, block.span());
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// Returns true for `#[test]`, `#[cfg(test)]` and `#[cfg(all(test, ...))]`.
fn is_for_tests(attribute: &syn::Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let syn::Meta::List(list) = &attribute.meta else { return false };
    if !list.path.is_ident("cfg") {
        return false;
    }
    let condition = list.tokens.to_string().replace(' ', "");
    let all = condition.strip_prefix("all(").and_then(|rest| rest.strip_suffix(')'));
    condition == "test" || all.is_some_and(|all| all.split(',').any(|part| part == "test"))
}

fn name_and_attributes(item: &syn::Item) -> (Option<String>, &[syn::Attribute]) {
    match item {
        syn::Item::Const(item) => (Some(item.ident.to_string()), &item.attrs),
        syn::Item::Enum(item) => (Some(item.ident.to_string()), &item.attrs),
        syn::Item::Fn(item) => (Some(item.sig.ident.to_string()), &item.attrs),
        syn::Item::Impl(item) => (None, &item.attrs),
        syn::Item::Macro(item) => (None, &item.attrs),
        syn::Item::Mod(item) => (Some(item.ident.to_string()), &item.attrs),
        syn::Item::Static(item) => (Some(item.ident.to_string()), &item.attrs),
        syn::Item::Struct(item) => (Some(item.ident.to_string()), &item.attrs),
        syn::Item::Trait(item) => (Some(item.ident.to_string()), &item.attrs),
        syn::Item::Type(item) => (Some(item.ident.to_string()), &item.attrs),
        syn::Item::Use(item) => (None, &item.attrs),
        _ => (None, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the paths that a file of module `log::append` names with `expected`.
    #[track_caller]
    fn check_paths(text: &str, expected: &[&str]) {
        let file = RustFile::parse("crates/a/src/log/append.rs", text).expect("parses");
        let paths: Vec<String> = file.paths.iter().map(|path| path.segments.join("::")).collect();
        assert_eq!(paths, expected, "{text}");
    }

    #[test]
    fn paths_are_found_in_uses_types_expressions_and_macros() {
        check_paths(
            "use crate::{a, b::{self, C}, d as e};",
            &["crate::a", "crate::b", "crate::b::C", "crate::d"],
        );
        check_paths("fn f(x: crate::a::X) { crate::b::g() }", &["crate::a::X", "crate::b::g"]);
        check_paths(
            "fn f() { assert!(z && crate::a::X == [crate::b::Y]); }",
            &["crate::a::X", "crate::b::Y"],
        );
        check_paths("use crate::a::*;", &["crate::a::*"]);
    }

    #[test]
    fn relative_paths_are_resolved_from_the_module_they_stand_in() {
        check_paths("use super::segment::X;", &["crate::log::segment::X"]);
        check_paths("use super::super::index;", &["crate::index"]);
        check_paths("mod tests { use super::*; }", &["crate::log::append::*"]);
        check_paths("use self::x::Y;", &["crate::log::append::x::Y"]);
    }

    #[test]
    fn unsafe_is_found_in_code_and_macros_but_not_in_words() {
        let text = "// unsafe\n/// unsafe\nfn f() {\n let x = \"unsafe\";\n m!(unsafe { x });\n}\n\
            unsafe fn g() {}\nunsafe impl X for Y {}";
        let file = RustFile::parse("a.rs", text).expect("parses");
        assert_eq!(file.unsafe_lines, [5, 7, 8]);
    }

    #[test]
    fn functions_are_measured_from_brace_to_brace() {
        let text = "/// Doc.\nfn f(\n a: u8,\n) {\n 1;\n 2;\n}\nimpl X { fn g() {} }";
        let file = RustFile::parse("a.rs", text).expect("parses");
        let lengths: Vec<_> =
            file.functions.iter().map(|f| (f.name.as_str(), f.line, f.line_count)).collect();
        assert_eq!(lengths, [("f", 4, 4), ("g", 8, 1)]);
    }

    #[test]
    fn text_blocks_are_taken_from_items_and_from_the_module() {
        let text = "//! Module.\n//!\n//! ```text\n//! a\n//! ```\n\n/// S.\n///\n/// ```text\n\
            ///   b\n///\n/// c\n/// ```\n/// ```text\n/// d\n/// ```\nstruct S;";
        let file = RustFile::parse("a.rs", text).expect("parses");
        assert_eq!(file.text_block("").as_deref(), Some("a"));
        assert_eq!(file.text_block("S").as_deref(), Some("  b\n\nc"));
        assert_eq!(file.text_block("T"), None);
    }

    #[test]
    fn sources_that_do_not_parse_are_refused_with_their_place() {
        let failure = RustFile::parse("a.rs", "fn f() {}\nfn {").expect_err("not Rust");
        assert!(failure.contains("`a.rs`"), "{failure}");
    }
}
