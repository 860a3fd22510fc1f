//! What a database reads and writes: a store, or an old file in place.

use splitpoint::{Db, Durability, PutMode, Result, Table as _, Value};
use splitpoint_ffi::{Following, Walk};

/// A table of keys, with the walk over them.
#[derive(Debug)]
pub(crate) enum Table {
    Native { db: Db, walk: Box<Walk> },
    Old(Old),
}

/// A file of another format.
#[derive(Debug)]
pub(crate) struct Old {
    table: Box<dyn splitpoint::Table>,
    /// The keys when the walk began.
    keys: Vec<Vec<u8>>,
    /// The number of the key to go on with.
    next: usize,
}

impl Table {
    pub(crate) fn native(db: Db) -> Self {
        Self::Native { db, walk: Box::default() }
    }

    pub(crate) fn old(table: Box<dyn splitpoint::Table>) -> Self {
        Self::Old(Old { table, keys: Vec::new(), next: 0 })
    }

    /// Returns whether it is a store.
    pub(crate) fn is_native(&self) -> bool {
        matches!(self, Self::Native { .. })
    }

    /// Returns whether it is a store that the parent of this process has opened.
    pub(crate) fn is_of_parent(&self) -> bool {
        matches!(self, Self::Native { db, .. } if db.is_of_parent())
    }

    /// Goes on with another handle of the same store, or with the store that was made of an old file.
    /// The walk does not notice. A handle of the parent stays open for ever in its child: closing any
    /// descriptor of the file would end the locks that the child has of it.
    pub(crate) fn moved_to(self, db: Db, is_inherited: bool) -> Self {
        let mut walk = match self {
            Self::Native { db, walk } => {
                if is_inherited {
                    std::mem::forget(db);
                }
                walk
            }
            Self::Old(old) => Box::new(old.into_walk()),
        };
        walk.move_on();
        Self::Native { db, walk }
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Value<'_>>> {
        match self {
            Self::Native { db, walk } => walk.get(db, key),
            Self::Old(old) => old.table.get_bytes(key),
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], mode: PutMode) -> Result<bool> {
        match self {
            Self::Native { db, walk } => {
                let is_stored = db.put_bytes(key, value, mode, Some(Durability::Buffered))?;
                walk.note_stored(db, key);
                Ok(is_stored)
            }
            Self::Old(old) => old.table.put_bytes(key, value, mode, None),
        }
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<bool> {
        match self {
            Self::Native { db, .. } => db.delete_with(key, Durability::Buffered),
            Self::Old(old) => old.table.delete_bytes(key, None),
        }
    }

    /// Begins a walk, and returns its first key.
    pub(crate) fn first_key(&mut self) -> Result<Option<&[u8]>> {
        match self {
            Self::Native { db, walk } => walk.first(db),
            Self::Old(old) => old.first_key(),
        }
    }

    /// Returns the next key of the walk, or `None` at its end and before its beginning.
    pub(crate) fn next_key(&mut self) -> Result<Option<&[u8]>> {
        match self {
            Self::Native { db, walk } => walk.next(db),
            Self::Old(old) => old.next_key(),
        }
    }

    /// Returns the key that follows another, of this walk or of none.
    pub(crate) fn key_after(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        match self {
            Self::Native { db, walk } => match walk.after(db, key)? {
                Following::Key(key) => Ok(Some(key)),
                Following::End | Following::Unknown => Ok(None),
            },
            Self::Old(old) => old.key_after(key),
        }
    }

    /// Calls `each` with every pair.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let entries = match self {
            Self::Native { db, .. } => splitpoint::Table::scan(db)?,
            Self::Old(old) => old.table.scan()?,
        };
        for entry in entries {
            let entry = entry?;
            each(&entry.key, &entry.value)?;
        }
        Ok(())
    }

    /// Leaves it to the parent of this process: nothing is written, and no lock of an old file is let go.
    pub(crate) fn leave_to_parent(self) {
        if let Self::Old(old) = self {
            std::mem::forget(old);
        }
    }

    /// Closes it; what was changed is durable then.
    pub(crate) fn close(self) -> Result<()> {
        match self {
            Self::Native { db, .. } => db.close().map(drop),
            Self::Old(old) => old.table.close().map(drop),
        }
    }
}

impl Old {
    /// Returns the walk over its keys, for a store that has them too.
    fn into_walk(self) -> Walk {
        if self.keys.is_empty() { Walk::default() } else { Walk::resumed(self.keys, self.next) }
    }

    fn first_key(&mut self) -> Result<Option<&[u8]>> {
        self.read_keys()?;
        self.next_key()
    }

    fn read_keys(&mut self) -> Result<()> {
        let keys = self.table.scan()?.map(|entry| Ok(entry?.key.into_vec()));
        self.keys = keys.collect::<Result<_>>()?;
        self.next = 0;
        Ok(())
    }

    fn next_key(&mut self) -> Result<Option<&[u8]>> {
        while let Some(key) = self.keys.get(self.next) {
            self.next += 1;
            // It may have been deleted since the walk began.
            if self.table.get_bytes(key)?.is_some() {
                return Ok(self.keys.get(self.next - 1).map(Vec::as_slice));
            }
        }
        Ok(None)
    }

    fn key_after(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        if self.keys.is_empty() {
            self.read_keys()?;
        }
        let is_last = |next: usize| self.keys.get(next - 1).is_some_and(|last| last == key);
        if self.next == 0 || !is_last(self.next) {
            let Some(place) = self.keys.iter().position(|other| other == key) else {
                return Ok(None);
            };
            self.next = place + 1;
        }
        self.next_key()
    }
}
