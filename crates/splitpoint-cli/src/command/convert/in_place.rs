//! The new file in place of the old one, which is kept.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use splitpoint_legacy::COMPAT_DIR;

use crate::failure::{Exit, Failure, Result};
use crate::new_file::{NewFile, sync_directory_of, with_ending};
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

/// Where the new file goes.
#[derive(Debug)]
pub(super) struct Place {
    /// The name that the user has given.
    source: PathBuf,
    /// The file that gets the records: one of the old files, or the common stem of their names.
    path: PathBuf,
    is_stem: bool,
    /// Whether the name that the user has given, or the files of which it is the stem, are links.
    is_behind_link: bool,
}

impl Place {
    /// Returns the place of a new file instead of `source`, of which `parts` are the files. Links lead to
    /// it: the new file is where the old ones are.
    ///
    /// # Errors
    ///
    /// If another file has the name, which is none of `parts`.
    pub(super) fn of(source: &Path, parts: &[PathBuf]) -> Result<Self> {
        if let Ok(path) = fs::canonicalize(source) {
            let is_behind_link = source.is_symlink();
            return Ok(Self { source: source.into(), path, is_stem: false, is_behind_link });
        }
        let first = parts.first().map_or(source, PathBuf::as_path);
        let found = fs::canonicalize(first).ok();
        let path = match (found.as_deref().and_then(Path::parent), source.file_name()) {
            (Some(directory), Some(name)) => directory.join(name),
            _ => source.to_path_buf(),
        };
        if let Some(taken) = [source, &path].into_iter().find(|it| it.symlink_metadata().is_ok()) {
            let message = format!("`{}` already exists; nothing was replaced", taken.display());
            let hint = "rename it, or convert to a file of another name, without --in-place";
            return Err(Failure::new(Exit::CannotOpen, message).hint(hint));
        }
        let is_behind_link = first.is_symlink();
        Ok(Self { source: source.into(), path, is_stem: true, is_behind_link })
    }

    /// Returns the name of the new file until it takes its place: in the same directory, so that it can.
    pub(super) fn new_path(&self) -> PathBuf {
        with_ending(if self.is_behind_link { &self.path } else { &self.source }, ".new")
    }

    /// Replaces the old files by the new one, and keeps the old ones with the suffix `.old`. Returns the names
    /// of what it kept. The name that the user has given leads to the new file. A pair of ndbm gets a new second
    /// file, without which its programs find no database; a stem stands for both.
    ///
    /// A file of this name exists at every moment, even after a power loss: the second name of the old
    /// file is durable before the new file takes the first.
    pub(super) fn take(
        &self,
        parts: &[PathBuf],
        new: &Path,
        is_ndbm: bool,
    ) -> Result<Vec<PathBuf>> {
        let kept = Kept::keep(parts).inspect_err(|_| drop(fs::remove_file(new)))?;
        // As the user has named them; the file behind a link is kept beside its own name.
        let shown = |(part, name): (&PathBuf, &PathBuf)| {
            if part.is_symlink() { name.clone() } else { with_ending(part, ".old") }
        };
        let shown: Vec<_> = parts.iter().zip(&kept.names).map(shown).collect();
        let failed =
            |error| Failure::io(format_args!("replace `{}`", self.source.display()), &error);
        if let Err(error) = self.put(parts, new) {
            let _ = fs::remove_file(new);
            kept.undo();
            return Err(failed(error));
        }
        sync_directory_of(&self.path)?;
        if self.is_behind_link {
            sync_directory_of(&self.source)?;
        }
        for part in kept.parts.iter().filter(|part| **part != self.path) {
            if is_ndbm && !self.is_stem {
                replace_dir(part)?;
            } else {
                fs::remove_file(part).map_err(failed)?;
            }
        }
        // Links that lead nowhere now.
        for part in parts.iter().filter(|part| part.is_symlink() && !part.exists()) {
            fs::remove_file(part).map_err(failed)?;
        }
        sync_directory_of(&self.path)?;
        Ok(shown)
    }

    /// Gives the new file its name, and the user's name leads to it.
    fn put(&self, parts: &[PathBuf], new: &Path) -> io::Result<()> {
        if !self.is_stem {
            return fs::rename(new, &self.path);
        }
        // Nobody may have made one meanwhile.
        fs::hard_link(new, &self.path)?;
        if self.is_behind_link
            && let Err(error) = symlink(self.link(parts), &self.source)
        {
            let _ = fs::remove_file(&self.path);
            return Err(error);
        }
        // It is in its place, whatever becomes of its first name.
        let _ = fs::remove_file(new);
        Ok(())
    }

    /// Returns what a link to the place says: a path like that in the link of the first of `parts`, if that
    /// leads there.
    fn link(&self, parts: &[PathBuf]) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default();
        let first = parts.first().and_then(|part| fs::read_link(part).ok());
        let like = first.map(|link| link.with_file_name(name));
        let leads_there = |link: &PathBuf| {
            let from_here = self.source.parent().unwrap_or(Path::new("")).join(link);
            fs::canonicalize(from_here).is_ok_and(|found| found == self.path)
        };
        like.filter(leads_there).unwrap_or_else(|| self.path.clone())
    }
}

/// Replaces the second file of a pair. The old one, which has another name too, stays as it is.
fn replace_dir(dir: &Path) -> Result<()> {
    let make = |partial: &Path| {
        let mut file = File::create_new(partial)?;
        file.write_all(&COMPAT_DIR)?;
        file.set_permissions(fs::metadata(dir)?.permissions())?;
        file.sync_all()
    };
    let made = NewFile::create(dir, "convert", make);
    let ((), new) =
        made.map_err(|error| Failure::io(format_args!("replace `{}`", dir.display()), &error))?;
    new.publish_over()
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
