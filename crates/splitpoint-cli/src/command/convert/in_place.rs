//! The new file in place of the old one, which is kept.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Exit, Failure, Result};
use crate::new_file::{sync_directory_of, with_ending};
use crate::shell::shell_word;
use crate::store::Opened;

/// Returns the files of the source.
pub(super) fn parts_of(opened: &Opened, source: &Path) -> Vec<PathBuf> {
    match opened.as_old() {
        Some(file) => file.identity().files().map(Path::to_path_buf).collect(),
        None => vec![source.to_path_buf()],
    }
}

/// Fails if `source` is a file, but none of `parts`, so that its content would be lost.
pub(super) fn check_is_part(source: &Path, parts: &[PathBuf]) -> Result<()> {
    let Ok(file) = fs::canonicalize(source) else { return Ok(()) };
    let is_part = parts.iter().any(|part| fs::canonicalize(part).is_ok_and(|part| part == file));
    if is_part {
        return Ok(());
    }
    let read = parts.first().map(|part| part.display().to_string()).unwrap_or_default();
    let message = format!(
        "`{}` is not a file of the table that was read, `{read}`; nothing was replaced",
        source.display()
    );
    let hint = format!("name that file: splitpoint convert --in-place {}", shell_word(&read));
    Err(Failure::new(Exit::No, message).hint(hint))
}

/// Replaces the old file by the new one, and keeps the old one with the suffix `.old`. Returns the names of
/// what it kept.
///
/// A file of this name exists at every moment, even after a power loss: the second name of the old
/// file is durable before the new file takes the first.
pub(super) fn take_place(parts: &[PathBuf], source: &Path, new: &Path) -> Result<Vec<PathBuf>> {
    let kept = Kept::keep(parts).inspect_err(|_| drop(fs::remove_file(new)))?;
    // If the source is a link, replace its target and keep the link.
    let place = fs::canonicalize(source).unwrap_or_else(|_| kept.place_of(source));
    let failed = |error| Failure::io(format_args!("replace `{}`", source.display()), &error);
    if let Err(error) = fs::rename(new, &place) {
        let _ = fs::remove_file(new);
        kept.undo();
        return Err(failed(error));
    }
    sync_directory_of(&place)?;
    for part in kept.parts.iter().filter(|part| **part != place) {
        fs::remove_file(part).map_err(failed)?;
    }
    sync_directory_of(&place)?;
    // As the user has named them; the file behind a link is kept beside its own name.
    let shown = |(part, name): (&PathBuf, PathBuf)| {
        if part.is_symlink() { name } else { with_ending(part, ".old") }
    };
    Ok(parts.iter().zip(kept.names).map(shown).collect())
}

/// Old files, each with a second name.
struct Kept {
    parts: Vec<PathBuf>,
    names: Vec<PathBuf>,
}

impl Kept {
    /// Gives each of `parts` its second name, or none of them.
    fn keep(parts: &[PathBuf]) -> Result<Self> {
        let mut kept = Self { parts: Vec::new(), names: Vec::new() };
        for part in parts {
            let part = fs::canonicalize(part).unwrap_or_else(|_| part.clone());
            let name = with_ending(&part, ".old");
            if let Err(error) = fs::hard_link(&part, &name) {
                kept.undo();
                let (part, name) = (part.display(), name.display());
                return Err(Failure::io(format_args!("keep `{part}` as `{name}`"), &error));
            }
            kept.parts.push(part);
            kept.names.push(name);
        }
        kept.names.iter().try_for_each(|name| sync_directory_of(name))?;
        Ok(kept)
    }

    fn undo(&self) {
        for name in &self.names {
            let _ = fs::remove_file(name);
        }
    }

    /// Returns the place of the new file if `source` is the common stem of the parts.
    fn place_of(&self, source: &Path) -> PathBuf {
        let directory = self.parts.first().and_then(|part| part.parent());
        match (directory, source.file_name()) {
            (Some(directory), Some(name)) => directory.join(name),
            _ => source.to_path_buf(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_part_of_the_table_is_not_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = ["mail.dat", "mail.bak", "mail"].map(|name| dir.path().join(name));
        let [data, other, stem] = &paths;
        for path in [data, other] {
            fs::write(path, b"content").expect("the file is written");
        }
        let parts = [data.clone()];
        assert!(check_is_part(data, &parts).is_ok() && check_is_part(stem, &parts).is_ok());
        assert!(check_is_part(other, &parts).is_err());
    }
}
