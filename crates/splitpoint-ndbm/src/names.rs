//! The files of a database.

use std::io;
use std::path::{Path, PathBuf};

use splitpoint_ffi::beside;

/// The paths that a name stands for.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// The store.
    pub(crate) pag: PathBuf,
    /// 16 bytes.
    pub(crate) dir: PathBuf,
    /// Where the ndbm of the BSDs has its database.
    pub(crate) db: PathBuf,
}

impl Names {
    pub(crate) fn of(name: &Path) -> Self {
        let [pag, dir, db] = [".pag", ".dir", ".db"].map(|ending| beside(name, ending));
        Self { pag, dir, db }
    }

    /// Returns them so that they stay the same when the program changes its directory.
    pub(crate) fn absolute(self) -> io::Result<Self> {
        let [pag, dir, db] = [self.pag, self.dir, self.db].map(std::path::absolute);
        Ok(Self { pag: pag?, dir: dir?, db: db? })
    }
}
