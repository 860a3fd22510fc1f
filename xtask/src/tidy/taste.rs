//! Measures that are reported and never fail: the length of functions and files.

use super::Finding;
use crate::tree::Tree;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 1000;

pub(super) fn remarks(tree: &Tree) -> Vec<Finding> {
    let mut remarks = Vec::new();
    for (path, file) in &tree.rust {
        for function in &file.functions {
            if function.line_count > FUNCTION_LINES_MAX {
                let message = format!("`{}` has {} lines", function.name, function.line_count);
                remarks.push(Finding::new(path, function.line, message));
            }
        }
        let count = code_line_count(tree, path);
        if count > FILE_LINES_MAX {
            remarks.push(Finding::new(path, 0, format!("{count} lines of code")));
        }
    }
    remarks
}

/// Counts lines that are neither blank nor comments nor tests.
fn code_line_count(tree: &Tree, path: &str) -> usize {
    let lines = tree.texts[path].lines().enumerate();
    let is_code = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    lines.filter(|(index, line)| is_code(line) && !tree.is_test(path, index + 1)).count()
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::*;

    #[test]
    fn long_functions_are_remarked() {
        let statements = "\n1;".repeat(70);
        let text = format!("fn f() {{{statements}\n}}\nfn g() {{\n}}");
        check_finds(remarks, &[("a.rs", &text)], &["a.rs:1"]);
    }

    #[test]
    fn long_files_are_remarked_by_their_code() {
        let constants = "const A: u8 = 1;\n// Why.\n\n".repeat(1000);
        let more = format!("{constants}const A: u8 = 1;\n");
        let tests = format!("{constants}#[cfg(test)]\nmod t {{\n{constants}}}\n");
        check_finds(
            remarks,
            &[("a.rs", &constants), ("b.rs", &more), ("c.rs", &tests)],
            &["b.rs:0"],
        );
    }
}
