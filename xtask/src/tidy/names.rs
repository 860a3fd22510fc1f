//! Names of modules.

use super::Finding;
use crate::tree::Tree;

/// Names that say nothing of what is inside, and so collect everything.
const EMPTY_NAMES: [&str; 9] =
    ["util", "utils", "common", "helper", "helpers", "manager", "misc", "core", "types"];

pub(super) fn modules_are_named_by_content(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, file) in &tree.rust {
        for (module, line) in &file.modules {
            if EMPTY_NAMES.contains(&module.as_str()) {
                let message = format!("module `{module}` is named by nothing that is inside it");
                findings.push(Finding::new(path, *line, message));
            }
        }
        // Also a file that no module declares yet.
        let stem = path.strip_suffix(".rs").unwrap_or(path);
        if let Some(name) = stem.split('/').find(|name| EMPTY_NAMES.contains(name)) {
            findings.push(Finding::new(path, 0, format!("`{name}` names nothing inside it")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::*;

    #[test]
    fn empty_names_are_found() {
        check_finds(
            modules_are_named_by_content,
            &[
                ("crates/a/src/lib.rs", "mod log;\nmod misc;\nmod inner { mod types {} }"),
                ("crates/a/src/util.rs", ""),
                ("crates/a/src/helpers/text.rs", ""),
                ("crates/a/src/utility_bill.rs", ""),
            ],
            &[
                "crates/a/src/helpers/text.rs:0",
                "crates/a/src/lib.rs:2",
                "crates/a/src/lib.rs:3",
                "crates/a/src/util.rs:0",
            ],
        );
    }
}
