//! Walks over the keys of a store, as C programs make them: each call names the key to go on after.

use std::collections::VecDeque;

use splitpoint::{Cursor, Db, Result, Value};

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
    /// Whether it is the last one of the cursor too, which is not so after a failure.
    is_last_of_cursor: bool,
    /// Places of the keys that came before it, the newest last.
    recent: VecDeque<u64>,
    /// No key has a place before this, unless others had turns since.
    empty_before: u64,
    /// The turns of others when that was learned.
    seen: Option<u64>,
    /// Room for the key of a pair that is being copied.
    wanted: Vec<u8>,
    /// The keys of the walk in the file that this store was made from, which has another order.
    before: Option<Before>,
}

/// The keys of a walk that began before its file became a store, in the order of that file.
#[derive(Debug)]
struct Before {
    keys: Vec<Vec<u8>>,
    /// The number of the key to go on with.
    next: usize,
}

impl Before {
    /// Returns the key that came last.
    fn last(&self) -> Option<&[u8]> {
        self.next.checked_sub(1).map(|last| &self.keys[last][..])
    }

    /// Goes to the key after `key`, and returns whether the walk knows it.
    fn go_after(&mut self, key: &[u8]) -> bool {
        let is_last = self.last() == Some(key);
        let place = if is_last { Some(self.next - 1) } else { self.place_of(key) };
        if let Some(place) = place {
            self.next = place + 1;
        }
        place.is_some()
    }

    fn place_of(&self, key: &[u8]) -> Option<usize> {
        self.keys.iter().position(|other| other == key)
    }

    fn next(&mut self, db: &Db) -> Result<Option<&[u8]>> {
        while let Some(key) = self.keys.get(self.next) {
            self.next += 1;
            // It may have been deleted since the walk began.
            if db.contains(key)? {
                return Ok(Some(&self.keys[self.next - 1]));
            }
        }
        Ok(None)
    }
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
    /// Goes on with a walk that began in the file that the store was made from, with the key of number
    /// `next` of its `keys`.
    pub fn resumed(keys: Vec<Vec<u8>>, next: usize) -> Self {
        debug_assert!(next <= keys.len());
        Self { before: Some(Before { keys, next }), ..Self::default() }
    }

    /// Begins a walk, and returns its first key.
    ///
    /// # Errors
    ///
    /// As [`Cursor::next`].
    pub fn first(&mut self, db: &Db) -> Result<Option<&[u8]>> {
        self.recent.clear();
        self.last = None;
        self.before = None;
        // Before the walk: what others store meanwhile is not seen.
        let seen = db.turns_of_others();
        if seen.is_none() || seen != self.seen {
            self.empty_before = 0;
        }
        self.cursor = Cursor::at(self.empty_before);
        let place = self.advance(db)?.map_or(u64::MAX, |key| db.place_of(key));
        (self.empty_before, self.seen) = (place, seen);
        Ok(self.last.as_deref())
    }

    /// Returns the key after the one that came last, or `None` before the first and at the end.
    ///
    /// # Errors
    ///
    /// As [`Cursor::next`].
    pub fn next(&mut self, db: &Db) -> Result<Option<&[u8]>> {
        match self.before {
            Some(ref mut before) => before.next(db),
            None if self.last.is_none() => Ok(None),
            None => self.advance(db),
        }
    }

    /// Returns the value of a key, which the walk may have read ahead.
    ///
    /// # Errors
    ///
    /// As [`Cursor::value`].
    #[inline]
    pub fn get<'a>(&'a mut self, db: &'a Db, key: &[u8]) -> Result<Option<Value<'a>>> {
        let is_ahead = self.is_last_of_cursor && self.last.as_deref() == Some(key);
        if is_ahead { self.cursor.value(db) } else { db.get(key) }
    }

    /// Copies the key that came last and its value, and returns whether it still has one. Else `key` and `value`
    /// stay as they are.
    ///
    /// # Errors
    ///
    /// As [`Cursor::value`].
    pub fn copy_pair(&mut self, db: &Db, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Result<bool> {
        let last = match &self.before {
            Some(before) => before.last(),
            None => self.last.as_deref(),
        };
        let Some(last) = last else { return Ok(false) };
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        wanted.extend_from_slice(last);
        let copied = self.get(db, &wanted).map(|found| {
            found.is_some_and(|found| {
                value.clear();
                value.extend_from_slice(&found);
                true
            })
        });
        if matches!(copied, Ok(true)) {
            std::mem::swap(key, &mut wanted);
        }
        self.wanted = wanted;
        copied
    }

    /// Returns the key after `key`, which may have come at any time, or never.
    ///
    /// # Errors
    ///
    /// As [`Cursor::next`].
    pub fn after(&mut self, db: &Db, key: &[u8]) -> Result<Following<'_>> {
        if self.before.as_mut().is_some_and(|before| before.go_after(key)) {
            let next = self.next(db)?;
            return Ok(next.map_or(Following::End, Following::Key));
        }
        if self.last.as_deref() != Some(key) {
            if !self.recent.contains(&db.place_of(key)) && !db.contains(key)? {
                return Ok(Following::Unknown);
            }
            self.cursor = Cursor::after(db, key)?;
        }
        Ok(self.advance(db)?.map_or(Following::End, Following::Key))
    }

    /// Forgets what only holds for the handle that the walk has used: it goes on with another one, which
    /// may have seen fewer turns, or another file.
    pub fn move_on(&mut self) {
        (self.empty_before, self.seen) = (0, None);
    }

    /// Notes that `key` was stored.
    #[inline]
    pub fn note_stored(&mut self, db: &Db, key: &[u8]) {
        if self.empty_before > 0 {
            self.empty_before = self.empty_before.min(db.place_of(key));
        }
    }

    fn advance(&mut self, db: &Db) -> Result<Option<&[u8]>> {
        self.is_last_of_cursor = false;
        let next = self.cursor.next(db)?;
        self.is_last_of_cursor = true;
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
    use splitpoint::{Options, Sharing};

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
    fn a_key_that_another_handle_stores_is_the_first_of_the_next_walk() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Options::new().sharing(Sharing::PerCall).open(dir.path().join("a")).unwrap();
        let (db, other, mut walk) = (open(), open(), Walk::default());
        let keys: Vec<Vec<u8>> = (0..100_u32).map(|i| i.to_le_bytes().to_vec()).collect();
        for key in &keys {
            db.put(key, "").unwrap();
        }
        for _ in 0..2 {
            while let Some(key) = walk.first(&db).unwrap().map(<[u8]>::to_vec) {
                assert!(db.delete(key).unwrap());
            }
            for key in &keys {
                other.put(key, "").unwrap();
                // What this handle does now hides the other's turn.
                db.delete("absent").unwrap();
                let first = walk.first(&db).unwrap().map(<[u8]>::to_vec);
                assert_eq!(first.as_ref(), Some(key));
                assert!(db.delete(key).unwrap());
            }
        }
    }

    #[test]
    fn a_key_that_was_stored_before_a_walk_moved_to_another_handle_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Options::new().sharing(Sharing::PerCall).open(dir.path().join("a")).unwrap();
        let (db, mut walk) = (open(), Walk::default());
        let keys: Vec<Vec<u8>> = (0..100_u32).map(|i| i.to_le_bytes().to_vec()).collect();
        for key in &keys {
            db.put(key, "").unwrap();
        }
        while let Some(key) = walk.first(&db).unwrap().map(<[u8]>::to_vec) {
            assert!(db.delete(key).unwrap());
        }
        for key in &keys {
            db.put(key, "").unwrap();
        }
        drop(db);
        // It counts the turns of others from the start.
        let db = open();
        db.delete("absent").unwrap();
        walk.move_on();
        let mut count = usize::from(walk.first(&db).unwrap().is_some());
        while walk.next(&db).unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, keys.len());
    }

    #[test]
    fn values_that_a_walk_has_read_ahead_are_those_of_their_keys_and_of_now() {
        let db = Db::in_memory().unwrap();
        db.put_many((0..500_u32).map(|i| (i.to_le_bytes(), i.to_string()))).unwrap();
        let mut walk = Walk::default();
        let mut found = walk.first(&db).unwrap().map(<[u8]>::to_vec);
        let (mut key, mut value, mut count) = (Vec::new(), Vec::new(), 0);
        while let Some(last) = found {
            let number = u32::from_le_bytes(*last.first_chunk().unwrap());
            assert_eq!(walk.get(&db, &last).unwrap().unwrap(), number.to_string());
            assert_eq!(walk.get(&db, &7_u32.to_le_bytes()).unwrap().unwrap(), "7");
            assert!(walk.copy_pair(&db, &mut key, &mut value).unwrap());
            assert_eq!((&key, &value[..]), (&last, number.to_string().as_bytes()));
            count += 1;
            // From the middle on, from behind another key each time.
            let next = if count < 250 { walk.next(&db) } else { next_after(&mut walk, &db, &last) };
            found = next.unwrap().map(<[u8]>::to_vec);
        }
        assert_eq!(count, 500);
        assert!(!walk.copy_pair(&db, &mut key, &mut value).unwrap());
        let first = walk.first(&db).unwrap().unwrap().to_vec();
        assert!(db.delete(&first).unwrap());
        assert_eq!(walk.get(&db, &first).unwrap(), None);
        let before = (key.clone(), value.clone());
        assert!(!walk.copy_pair(&db, &mut key, &mut value).unwrap());
        assert_eq!((&key, &value), (&before.0, &before.1), "they are still of the pair before");
        let mut walk = Walk::resumed(vec![vec![7, 0, 0, 0], first, vec![9, 0, 0, 0]], 0);
        assert!(walk.next(&db).unwrap().is_some());
        assert!(walk.copy_pair(&db, &mut key, &mut value).unwrap());
        assert_eq!((&key[..], &value[..]), (&[7, 0, 0, 0][..], &b"7"[..]));
    }

    fn next_after<'a>(walk: &'a mut Walk, db: &Db, key: &[u8]) -> Result<Option<&'a [u8]>> {
        walk.after(db, &3_u32.to_le_bytes())?;
        Ok(match walk.after(db, key)? {
            Following::Key(key) => Some(key),
            Following::End | Following::Unknown => None,
        })
    }

    #[test]
    fn a_walk_that_began_in_another_file_goes_on_in_its_order() {
        let keys: Vec<Vec<u8>> = (0..100_u32).map(|i| i.to_le_bytes().to_vec()).collect();
        let db = filled(100);
        let mut walk = Walk::resumed(keys.clone(), 1);
        db.delete(&keys[1]).unwrap();
        assert_eq!(walk.next(&db).unwrap(), Some(&keys[2][..]));
        // The key that comes last may be deleted.
        db.delete(&keys[2]).unwrap();
        assert_eq!(walk.after(&db, &keys[2]).unwrap(), Following::Key(&keys[3]));
        assert_eq!(walk.after(&db, &keys[98]).unwrap(), Following::Key(&keys[99]));
        assert_eq!(walk.after(&db, &keys[99]).unwrap(), Following::End);
        assert_eq!(walk.next(&db).unwrap(), None);
        // A new walk is one of the store.
        let mut count = usize::from(walk.first(&db).unwrap().is_some());
        while walk.next(&db).unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 98);
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
