//! What a handle reads and writes: a store, or a file of db 1.85 in its own format.

use splitpoint::{Db, Durability, PutMode, Result, Value};
use splitpoint_ffi::Walk;
use splitpoint_legacy::OldFile;
use splitpoint_legacy::db185::Db185;

/// An open table.
#[derive(Debug)]
pub(crate) enum Table {
    Native {
        db: Db,
        walk: Box<Walk>,
    },
    /// A file of db 1.85, and the keys that a walk has yet to return.
    InPlace {
        table: Box<Db185>,
        keys: Keys,
    },
    /// An old file of another format, which is only read.
    ReadOnly {
        file: Box<OldFile>,
        keys: Keys,
    },
}

/// The keys of a walk, read when it began.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    rest: std::vec::IntoIter<Vec<u8>>,
    has_begun: bool,
}

impl Keys {
    fn begin(&mut self, table: &dyn splitpoint::Table) -> Result<()> {
        let keys = table.scan()?.map(|entry| Ok(entry?.key.into_vec())).collect::<Result<Vec<_>>>();
        self.rest = keys?.into_iter();
        self.has_begun = true;
        Ok(())
    }

    fn next(&mut self, table: &dyn splitpoint::Table) -> Result<Option<Vec<u8>>> {
        if !self.has_begun {
            self.begin(table)?;
        }
        for key in self.rest.by_ref() {
            // It may have been deleted since.
            if table.get_bytes(&key)?.is_some() {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

impl Table {
    pub(crate) fn native(db: Db) -> Self {
        Self::Native { db, walk: Box::default() }
    }

    pub(crate) fn in_place(table: Db185) -> Self {
        Self::InPlace { table: Box::new(table), keys: Keys::default() }
    }

    pub(crate) fn read_only(file: OldFile) -> Self {
        Self::ReadOnly { file: Box::new(file), keys: Keys::default() }
    }

    /// Returns whether it is a file in the format of db 1.85, whose pages this process may have changed.
    pub(crate) fn is_in_place(&self) -> bool {
        matches!(self, Self::InPlace { .. })
    }

    /// Returns whether it is a store, which may be in memory.
    pub(crate) fn is_native(&self) -> bool {
        matches!(self, Self::Native { .. })
    }

    /// Goes on with another handle of the same file, in a child of a fork. The walk does not notice.
    pub(crate) fn move_to(&mut self, mut other: Self) {
        match (&mut *self, &mut other) {
            (Self::Native { walk, .. }, Self::Native { walk: new, .. }) => {
                std::mem::swap(walk, new);
                new.move_on();
            }
            (Self::InPlace { keys, .. }, Self::InPlace { keys: new, .. }) => {
                std::mem::swap(keys, new);
            }
            _ => debug_assert!(false, "the file has one format"),
        }
        // Closing any descriptor of the file would end the locks that this process has of it.
        std::mem::forget(std::mem::replace(self, other));
    }

    /// Closes the file without writing to it.
    pub(crate) fn abandon(self) {
        if let Self::InPlace { table, .. } = self {
            table.abandon();
        }
    }

    fn as_table(&self) -> &dyn splitpoint::Table {
        match self {
            Self::Native { db, .. } => db,
            Self::InPlace { table, .. } => &**table,
            Self::ReadOnly { file, .. } => &**file,
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        match self {
            Self::Native { db, .. } => db.get(key),
            other => other.as_table().get_bytes(key),
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], mode: PutMode) -> Result<bool> {
        if let Self::Native { db, walk } = self {
            walk.note_stored(db, key);
        }
        self.as_table().put_bytes(key, value, mode, Some(Durability::Buffered))
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.as_table().delete_bytes(key, Some(Durability::Buffered))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.as_table().sync()
    }

    /// Returns the next key of a walk, or the first one.
    pub(crate) fn next(&mut self, begins: bool) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Native { db, walk } => {
                let key = if begins { walk.first(db)? } else { walk.next(db)? };
                Ok(key.map(<[u8]>::to_vec))
            }
            Self::InPlace { table, keys } => next_of(keys, &**table, begins),
            Self::ReadOnly { file, keys } => next_of(keys, &**file, begins),
        }
    }

    /// Closes the table, and makes it durable.
    pub(crate) fn close(self) -> Result<()> {
        match self {
            Self::Native { db, .. } => db.close().map(drop),
            Self::InPlace { table, .. } => Db185::close(*table),
            Self::ReadOnly { .. } => Ok(()),
        }
    }
}

fn next_of(
    keys: &mut Keys,
    table: &dyn splitpoint::Table,
    begins: bool,
) -> Result<Option<Vec<u8>>> {
    if begins {
        keys.begin(table)?;
    }
    keys.next(table)
}
