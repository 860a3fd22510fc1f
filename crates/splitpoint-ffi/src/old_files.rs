//! Old files that become stores: the old one is kept, and the new one takes its name.
//!
//! ```text
//! NAME -> old                                        the new file is written beside it, durably
//! NAME -> old, NAME.before-splitpoint -> old         keep
//! NAME -> new, NAME.before-splitpoint -> old         replace
//! ```
//!
//! A crash at any moment leaves one of the three lines, and the next conversion goes on from there.
//!
//! # Invariants
//!
//! - A file is replaced only while the name leads to the file that was opened: a program may have
//!   changed its directory since, or another may have the name.
//! - A file that was kept is never overwritten.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use crate::descriptor::Identity;
use crate::environment::secure_variable;

/// What the name of a file ends with that was kept.
const KEPT: &str = ".before-splitpoint";

/// Returns whether the first change of an old file converts it: `SPLITPOINT_OLD_FILES`. The environment
/// alone decides.
pub fn converts_old_files() -> bool {
    secure_variable("SPLITPOINT_OLD_FILES").is_some_and(|value| value == "convert")
}

/// Returns the path with something after it.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Makes the names in the directory of a file durable.
///
/// # Errors
///
/// Of the system.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// A file that is open, and the name under which another is to take its place.
#[derive(Clone, Debug)]
pub struct Predecessor {
    /// Behind all symbolic links.
    path: PathBuf,
    identity: Identity,
}

impl Predecessor {
    /// Takes the file of `identity`, which was opened as `path`: an absolute one, since a program may
    /// change its directory.
    ///
    /// # Errors
    ///
    /// `ESTALE` if the name leads to another file by now; errors of the system.
    pub fn new(path: &Path, identity: Identity) -> io::Result<Self> {
        debug_assert!(path.is_absolute());
        let it = Self { path: fs::canonicalize(path)?, identity };
        it.require_name()?;
        Ok(it)
    }

    fn require_name(&self) -> io::Result<()> {
        if self.identity.has_name(&self.path) {
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(libc::ESTALE))
    }

    /// Returns where its successor is written until it is whole: not where another process writes one.
    ///
    /// A conversion that is killed leaves the file there, which nobody needs.
    pub fn place_of_successor(&self) -> PathBuf {
        beside(&self.path, &format!(".splitpoint-new.{}", std::process::id()))
    }

    /// Returns an error if another file was kept before, which is not overwritten.
    ///
    /// # Errors
    ///
    /// `EEXIST`.
    pub fn require_keepable(&self) -> io::Result<()> {
        self.is_kept().map(drop)
    }

    fn is_kept(&self) -> io::Result<bool> {
        match fs::symlink_metadata(beside(&self.path, KEPT)) {
            // By a conversion that was killed before the new file had the name.
            Ok(found) if Identity::of(&found) == self.identity => Ok(true),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EEXIST)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives the file the name under which it is kept, durably.
    ///
    /// # Errors
    ///
    /// `EEXIST` if another file was kept before, `ESTALE` if the file has lost its name; errors of the
    /// system.
    pub fn keep(&self) -> io::Result<()> {
        self.require_name()?;
        if !self.is_kept()? {
            fs::hard_link(&self.path, beside(&self.path, KEPT))?;
        }
        self.sync()
    }

    /// Gives its name to the file at `new`; [`sync`](Self::sync) makes that durable.
    ///
    /// # Errors
    ///
    /// `ESTALE` if the file has lost its name; errors of the system. The name leads to the old file then.
    pub fn replace(&self, new: &Path) -> io::Result<()> {
        self.require_name()?;
        fs::rename(new, &self.path)
    }

    /// Makes the names durable.
    ///
    /// # Errors
    ///
    /// Of the system.
    pub fn sync(&self) -> io::Result<()> {
        sync_directory(&self.path)
    }

    /// Gives the file at `new` the owner, the group and the mode of the old one, as far as this process
    /// may.
    ///
    /// # Errors
    ///
    /// Of the system, if the mode cannot be set.
    pub fn pass_on_access(&self, new: &Path) -> io::Result<()> {
        let old = fs::metadata(&self.path)?;
        let _ = chown(new, Some(old.uid()), Some(old.gid()));
        fs::set_permissions(new, Permissions::from_mode(old.mode() & 0o7777))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Files {
        directory: tempfile::TempDir,
    }

    impl Files {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap() }
        }

        fn write(&self, name: &str, content: &str) -> PathBuf {
            let path = self.directory.path().join(name);
            fs::write(&path, content).unwrap();
            path
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.directory.path().join(name)).unwrap()
        }
    }

    fn predecessor(path: &Path) -> Predecessor {
        Predecessor::new(path, Identity::of(&fs::metadata(path).unwrap())).unwrap()
    }

    fn code(result: io::Result<()>) -> Option<i32> {
        result.unwrap_err().raw_os_error()
    }

    #[test]
    fn the_new_file_takes_the_name_and_the_old_one_is_kept() {
        let files = Files::new();
        let old = predecessor(&files.write("a", "old"));
        let new = files.write("new", "new");
        old.keep().unwrap();
        // As after a kill: what was kept is this file.
        old.require_keepable().unwrap();
        old.keep().unwrap();
        old.replace(&new).unwrap();
        assert_eq!([files.read("a"), files.read("a.before-splitpoint")], ["new", "old"]);
    }

    #[test]
    fn a_file_that_was_kept_before_is_not_overwritten() {
        let files = Files::new();
        let old = predecessor(&files.write("a", "old"));
        files.write("a.before-splitpoint", "older");
        assert_eq!(code(old.require_keepable()), Some(libc::EEXIST));
        assert_eq!(code(old.keep()), Some(libc::EEXIST));
        assert_eq!(files.read("a.before-splitpoint"), "older");
    }

    #[test]
    fn a_file_that_has_taken_the_name_meanwhile_stays() {
        let files = Files::new();
        let path = files.write("a", "old");
        let identity = Identity::of(&fs::metadata(&path).unwrap());
        let old = predecessor(&path);
        fs::rename(files.write("b", "another's"), &path).unwrap();
        let new = files.write("new", "new");
        assert_eq!(code(old.keep()), Some(libc::ESTALE));
        assert_eq!(code(old.replace(&new)), Some(libc::ESTALE));
        assert_eq!(code(Predecessor::new(&path, identity).map(drop)), Some(libc::ESTALE));
        assert_eq!(files.read("a"), "another's");
    }
}
