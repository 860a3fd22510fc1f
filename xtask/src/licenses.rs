//! What dependencies may be: permissive in their license, and from a registry.

use std::path::Path;

use cargo_metadata::{CargoOpt, MetadataCommand, Package};
use spdx::{Expression, ParseMode};

use crate::{Failure, console};

/// Permissive licenses only, so that the crate and the command can be shipped anywhere.
const ALLOWED: [&str; 9] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Programs that only build or check, by package and license: nothing of theirs is shipped.
const TOOLS: [(&str, &str); 1] = [("cbindgen", "MPL-2.0")];

/// Checks every package that the workspace depends on, with all features.
pub(crate) fn check(root: &Path) -> Result<(), Failure> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .features(CargoOpt::AllFeatures)
        .other_options(vec!["--locked".to_owned()])
        .exec()
        .map_err(|cause| format!("`cargo metadata`: {cause}"))?;
    let is_tool = |package: &Package| {
        package.license.as_deref().is_some_and(|it| TOOLS.contains(&(&package.name, it)))
    };
    let foreign = || metadata.packages.iter().filter(|package| package.source.is_some());
    let problems: Vec<String> = foreign()
        .filter(|package| !is_tool(package))
        .filter_map(|package| {
            let source = package.source.as_ref().map_or("", |source| source.repr.as_str());
            let problem = problem_of(package.license.as_deref(), source)?;
            Some(format!("{} {}: {problem}", package.name, package.version))
        })
        .collect();
    if problems.is_empty() {
        let count = foreign().count();
        console::say(&format!("{count} dependencies, each with a license that is allowed"));
        return Ok(());
    }
    let remedy = "choose another dependency, or allow the license in xtask/src/licenses.rs";
    Err(format!("{}\n{remedy}", problems.join("\n")))
}

/// Returns what is wrong with a package, if something is.
fn problem_of(license: Option<&str>, source: &str) -> Option<String> {
    if !source.starts_with("registry+") && !source.starts_with("sparse+") {
        return Some(format!("its source is `{source}`, not a registry"));
    }
    let Some(license) = license else { return Some("it states no license".to_owned()) };
    // Lax, for `MIT/Apache-2.0`, which older packages have.
    let expression = match Expression::parse_mode(license, ParseMode::LAX) {
        Ok(expression) => expression,
        Err(cause) => {
            return Some(format!("its license `{license}` is not a license expression: {cause}"));
        }
    };
    let is_allowed = expression.evaluate(|license| ALLOWED.contains(&license.to_string().as_str()));
    (!is_allowed).then(|| format!("its license `{license}` is not allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: &str = "registry+https://example.org/index";

    #[test]
    fn permissive_licenses_are_allowed() {
        for license in [
            "MIT",
            "MIT/Apache-2.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "MIT OR Apache-2.0 OR LGPL-2.1-or-later",
        ] {
            assert_eq!(problem_of(Some(license), REGISTRY), None, "{license}");
        }
    }

    #[test]
    fn other_licenses_and_sources_are_problems() {
        for (license, source) in [
            (Some("GPL-3.0-or-later"), REGISTRY),
            (Some("MIT AND AGPL-3.0-only"), REGISTRY),
            (Some("as you like"), REGISTRY),
            (None, REGISTRY),
            (Some("MIT"), "git+https://example.org/a.git"),
        ] {
            assert!(problem_of(license, source).is_some(), "{license:?} from {source}");
        }
    }
}
