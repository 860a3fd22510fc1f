//! Walks over the keys of a store, as C programs make them: each call names the key to go on after.

use std::collections::VecDeque;

use splitpoint::{Cursor, Db, Result};

/// Places of keys that a walk has returned and remembers, in case they are deleted.
const RECENT_MAX: usize = 16;

/// The walks of one handle.
///
/// Every key that is there from the first call to the last comes once, whatever the handle stores or
/// deletes meanwhile; deleting the key that came last, before or after the next call, changes nothing.
/// Deleting the first key again and again takes as long as one walk.
#[derive(Debug, Default)]
pub struct Walk {
    cursor: Cursor,
    /// The key that came last.
    last: Option<Vec<u8>>,
    /// Places of the keys that came before it, the newest last.
    recent: VecDeque<u64>,
    /// No key has a place before this.
    empty_before: u64,
}

/// What follows a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Following<'a> {
    /// The next key.
    Key(&'a [u8]),
    /// Nothing.
    End,
    /// The key does not exist, and no walk has returned it lately.
    Unknown,
}

impl Walk {
    /// Begins a walk, and returns its first key.
    ///
    /// # Errors
    ///
    /// As [`Cursor::next`].
    pub fn first(&mut self, db: &Db) -> Result<Option<&[u8]>> {
        self.recent.clear();
        self.last = None;
        self.cursor = Cursor::at(self.empty_before);
        let place = self.advance(db)?.map_or(u64::MAX, |key| db.place_of(key));
        self.empty_before = place;
        Ok(self.last.as_deref())
    }

    /// Returns the key after the one that came last, or `None` before the first and at the end.
    ///
    /// # Errors
    ///
    /// As [`Cursor::next`].
    pub fn next(&mut self, db: &Db) -> Result<Option<&[u8]>> {
        if self.last.is_none() { Ok(None) } else { self.advance(db) }
    }

    /// Returns the key after `key`, which may have come at any time, or never.
    ///
    /// # Errors
    ///
    /// As [`Cursor::next`].
    pub fn after(&mut self, db: &Db, key: &[u8]) -> Result<Following<'_>> {
        if self.last.as_deref() != Some(key) {
            if !self.recent.contains(&db.place_of(key)) && !db.contains(key)? {
                return Ok(Following::Unknown);
            }
            self.cursor = Cursor::after(db, key)?;
        }
        Ok(self.advance(db)?.map_or(Following::End, Following::Key))
    }

    /// Notes that `key` was stored.
    #[inline]
    pub fn note_stored(&mut self, db: &Db, key: &[u8]) {
        if self.empty_before > 0 {
            self.empty_before = self.empty_before.min(db.place_of(key));
        }
    }

    fn advance(&mut self, db: &Db) -> Result<Option<&[u8]>> {
        let next = self.cursor.next(db)?;
        let mut buf = Vec::new();
        if let Some(last) = self.last.take() {
            if self.recent.len() == RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back(db.place_of(&last));
            buf = last;
        }
        if let Some(key) = next {
            buf.clear();
            buf.extend_from_slice(key);
            self.last = Some(buf);
        }
        Ok(self.last.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u32) -> Db {
        let db = Db::in_memory().unwrap();
        db.put_many((0..count).map(|i| (i.to_le_bytes(), ""))).unwrap();
        db
    }

    #[test]
    fn deleting_the_first_key_again_and_again_reaches_all() {
        let (db, mut walk) = (filled(1000), Walk::default());
        while let Some(key) = walk.first(&db).unwrap().map(<[u8]>::to_vec) {
            assert!(db.delete(key).unwrap());
        }
        assert!(db.is_empty());
        db.put("new", "").unwrap();
        walk.note_stored(&db, b"new");
        assert_eq!(walk.first(&db).unwrap(), Some(&b"new"[..]));
    }

    #[test]
    fn a_deleted_key_leads_on_if_it_came_lately_and_another_does_not() {
        let (db, mut walk) = (filled(100), Walk::default());
        let mut key = walk.first(&db).unwrap().unwrap().to_vec();
        for _ in 1..100 {
            assert!(db.delete(&key).unwrap());
            let Following::Key(next) = walk.after(&db, &key).unwrap() else { panic!("the end") };
            let next = next.to_vec();
            // Again, from the key before.
            assert_eq!(walk.after(&db, &key).unwrap(), Following::Key(&next));
            key = next;
        }
        assert_eq!(walk.after(&db, &key).unwrap(), Following::End);
        assert_eq!(walk.after(&db, b"never").unwrap(), Following::Unknown);
    }
}
