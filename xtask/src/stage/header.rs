//! A header of C, made from the sources of its package.

use std::fs;
use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

use super::cannot;
use crate::Failure;

/// Writes the header of the package in `directory`.
pub(super) fn generate(directory: &Path, header: &Path) -> Result<(), Failure> {
    let config = Config {
        language: Language::C,
        style: Style::Type,
        header: Some(PREAMBLE.trim_end().to_owned()),
        include_guard: Some("SPLITPOINT_H".to_owned()),
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        no_includes: true,
        cpp_compat: true,
        usize_is_size_t: true,
        documentation_style: DocumentationStyle::Doxy,
        ..Config::default()
    };
    let bindings = Builder::new()
        .with_config(config)
        .with_crate(directory)
        .generate()
        .map_err(|cause| format!("cannot make `{}`: {cause}", header.display()))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().flat_map(|line| [without_line_comment(line), "\n".to_owned()]);
    fs::write(header, lines.collect::<String>()).map_err(|cause| cannot("write", header, &cause))
}

/// Returns the line with what follows `//` as a comment that C89 has too.
fn without_line_comment(line: &str) -> String {
    match line.split_once("// ") {
        Some((code, comment)) if code.starts_with('#') => {
            format!("{} /* {comment} */", code.trim_end())
        }
        _ => line.to_owned(),
    }
}

/// What a reader of the header has to know first.
const PREAMBLE: &str = "\
/*
 * splitpoint.h - a crash-safe hash table in one file or in memory.
 *
 * #include <splitpoint.h>       pkg-config --cflags --libs splitpoint
 *
 * Rules, for all functions:
 *
 * - A function that can fail returns an int: SP_OK, another answer above 0 (SP_NOT_FOUND, SP_KEPT,
 *   SP_END), or an error below 0. After an error errno is set, and sp_message() has a line for people.
 * - A handle, scan, batch, value or options come from this library, and are not used after they were
 *   closed, freed or released. Values and scans go before their handle.
 * - Keys and values are bytes, with a size; any byte, any size below 4 GiB, also none. A pointer may
 *   be null if its size is 0. Everything that is passed in is copied.
 * - Null in any other place is an error, SP_ERR_ARGUMENT, unless a function says what it means.
 * - Any number of threads may use one handle. Options, a batch and a scan are for one thread at a
 *   time. In a child of fork(2) a handle that may write is unusable: close it, and open it again.
 * - One handle at a time may write to a file; a second one gets SP_ERR_LOCKED. No other program may
 *   change or shorten the file meanwhile; to replace it, rename another over it.
 */";
