//! What a handle reads and writes: a store, or a file of db 1.85 in its own format.

use splitpoint::{Db, Durability, PutMode, Result, Value};
use splitpoint_ffi::Walk;
use splitpoint_legacy::OldFile;
use splitpoint_legacy::db185::{Cursor, Db185};

/// An open table.
#[derive(Debug)]
pub(crate) enum Table {
    Native {
        db: Db,
        walk: Box<Walk>,
    },
    /// A file of db 1.85.
    InPlace {
        table: Box<Db185>,
        cursor: Box<Cursor>,
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

    fn next(
        &mut self,
        table: &dyn splitpoint::Table,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        if !self.has_begun {
            self.begin(table)?;
        }
        for next in self.rest.by_ref() {
            if let Some(found) = table.get_bytes(&next)? {
                copy(value, &found);
                *key = next;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Table {
    pub(crate) fn native(db: Db) -> Self {
        Self::Native { db, walk: Box::default() }
    }

    pub(crate) fn in_place(table: Db185) -> Self {
        Self::InPlace { table: Box::new(table), cursor: Box::default() }
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
            (Self::InPlace { cursor, .. }, Self::InPlace { cursor: new, .. }) => {
                std::mem::swap(cursor, new);
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

    /// Returns whether the next pair of the walk is in memory, and is still what the file has.
    pub(crate) fn is_ahead(&mut self) -> bool {
        let Self::InPlace { table, cursor } = self else { return false };
        cursor.is_ahead(table)
    }

    /// Copies the next pair of a walk, or the first one, and returns whether there is one.
    pub(crate) fn next(
        &mut self,
        begins: bool,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        match self {
            Self::Native { db, walk } => {
                let mut begins = begins;
                loop {
                    let found = if begins { walk.first(db)? } else { walk.next(db)? };
                    if found.is_none() {
                        return Ok(false);
                    }
                    begins = false;
                    if walk.copy_pair(db, key, value)? {
                        return Ok(true);
                    }
                }
            }
            Self::InPlace { table, cursor } => {
                if begins {
                    **cursor = Cursor::default();
                }
                let found = cursor.next(table)?;
                Ok(found.map(|pair| (copy(key, pair.0), copy(value, pair.1))).is_some())
            }
            Self::ReadOnly { file, keys } => {
                if begins {
                    keys.begin(&**file)?;
                }
                keys.next(&**file, key, value)
            }
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

fn copy(to: &mut Vec<u8>, bytes: &[u8]) {
    to.clear();
    to.extend_from_slice(bytes);
}
