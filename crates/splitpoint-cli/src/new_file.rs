//! `NewFile`: a file that gets its name only once it is complete and durable.
//!
//! Until then it is in the same directory as `NAME.WORK-in-progress`, by the rule that the library has for
//! the files of `backup`, `repair` and `rehash`. The library's module of this name does not fit here: it
//! writes a store through one locked file, while a table of any format, which opens and locks its file
//! itself, writes these files. Some of them are no tables at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::interrupt::{self, Unfinished};

/// A file that is being made. It is removed if a signal ends the process, or if this is dropped
/// before it has its name.
#[derive(Debug)]
pub(crate) struct NewFile {
    path: PathBuf,
    partial: PathBuf,
    unfinished: Unfinished,
    is_published: bool,
}

impl NewFile {
    /// Begins the file for `path`; `make` gets its temporary name.
    pub(crate) fn create<T, E>(
        path: &Path,
        work: &str,
        make: impl FnOnce(&Path) -> Result<T, E>,
    ) -> Result<(T, Self), E> {
        let partial = splitpoint::partial_of(path, work);
        let (made, unfinished) = Unfinished::create(|| make(&partial), |_| partial.clone())?;
        Ok((made, Self { path: path.to_path_buf(), partial, unfinished, is_published: false }))
    }

    /// Returns the temporary name.
    pub(crate) fn partial(&self) -> &Path {
        &self.partial
    }

    /// Gives the durable file its name, and fails if a file of this name exists by now.
    pub(crate) fn publish(mut self) -> Result<()> {
        self.give_name(|partial, path| match fs::hard_link(partial, path) {
            Ok(()) => fs::remove_file(partial),
            // Some file systems have no links.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                match path.symlink_metadata() {
                    Ok(_) => Err(error),
                    Err(_) => fs::rename(partial, path),
                }
            }
            Err(error) => Err(error),
        })
    }

    /// Gives the durable file its name, and replaces any file of this name.
    pub(crate) fn publish_over(mut self) -> Result<()> {
        self.give_name(|partial, path| fs::rename(partial, path))
    }

    fn give_name(&mut self, rename: impl FnOnce(&Path, &Path) -> io::Result<()>) -> Result<()> {
        interrupt::last_step();
        self.unfinished.finish(|| rename(&self.partial, &self.path)).map_err(|error| {
            Failure::io(format_args!("create `{}`", self.path.display()), &error)
        })?;
        self.is_published = true;
        sync_directory_of(&self.path)
    }
}

impl Drop for NewFile {
    /// Removes an unfinished file.
    fn drop(&mut self) {
        if !self.is_published {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Returns the temporary name under which the library creates the file for `path`.
pub(crate) fn partial_of(path: &Path, work: &str) -> PathBuf {
    // Beside the target of a link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    splitpoint::partial_of(&target, work)
}

/// Returns `path` with `ending` appended to its name.
pub(crate) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// Makes the names in the directory of `path` durable.
pub(crate) fn sync_directory_of(path: &Path) -> Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| Failure::io(format_args!("sync `{}`", directory.display()), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<OsString> {
        fs::read_dir(dir).expect("a directory").map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_new_file_is_there_whole_or_not_at_all_and_replaces_only_what_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new");
        let begin = |content: &str| {
            let made = NewFile::create(&path, "test", |partial| fs::write(partial, content));
            made.expect("a file can be made").1
        };
        let abandoned = begin("half");
        assert_eq!(names(dir.path()), ["new.test-in-progress"]);
        drop(abandoned);
        assert!(names(dir.path()).is_empty());

        begin("first").publish().unwrap();
        assert!(begin("second").publish().is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        begin("third").publish_over().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "third");
        assert_eq!(names(dir.path()), ["new"]);
    }
}
