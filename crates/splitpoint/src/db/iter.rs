//! Iterators over a store: its keys, its values, and what a `for` loop over a `&Db` gets.

use super::Db;
use crate::cursor::Scan;
use crate::error::{Error, Result};
use crate::value::{Entry, Value};

impl Db {
    /// Returns every key, in the order of the file, with the guarantees of [`scan`](Self::scan).
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let db = splitpoint::Db::in_memory()?;
    /// db.put_many([("a", "1"), ("b", "2")])?;
    /// let mut keys = db.keys()?.collect::<splitpoint::Result<Vec<_>>>()?;
    /// keys.sort_by(|a, b| a.cmp(b));
    /// assert_eq!(keys, ["a", "b"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(&self) -> Result<Keys<'_>> {
        Ok(Keys(self.scan()?))
    }

    /// Returns the value of every key, in the order of the file, with the guarantees of
    /// [`scan`](Self::scan).
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan).
    pub fn values(&self) -> Result<Values<'_>> {
        Ok(Values(self.scan()?))
    }

    /// Returns every key with its value, as [`scan`](Self::scan) does; an error at the beginning is the
    /// first item. A `for` loop over a `&Db` is the same.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.scan().map_err(Some))
    }
}

/// Every key of a store: [`Db::keys`].
#[derive(Debug)]
pub struct Keys<'db>(Scan<'db>);

impl<'db> Iterator for Keys<'db> {
    type Item = Result<Value<'db>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|entry| entry.key))
    }
}

impl std::iter::FusedIterator for Keys<'_> {}

/// The value of every key of a store: [`Db::values`].
#[derive(Debug)]
pub struct Values<'db>(Scan<'db>);

impl<'db> Iterator for Values<'db> {
    type Item = Result<Value<'db>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|entry| entry.value))
    }
}

impl std::iter::FusedIterator for Values<'_> {}

/// Every key with its value, as a `for` loop over a `&Db` gets them.
///
/// It is a [`Scan`]; if the scan cannot begin, its only item is the error.
#[derive(Debug)]
pub struct Iter<'db>(std::result::Result<Scan<'db>, Option<Error>>);

impl<'db> Iterator for Iter<'db> {
    type Item = Result<Entry<'db>>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Ok(scan) => scan.next(),
            Err(error) => error.take().map(Err),
        }
    }
}

impl std::iter::FusedIterator for Iter<'_> {}

/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// let db = splitpoint::Db::in_memory()?;
/// db.put("France", "Paris")?;
/// for entry in &db {
///     let entry = entry?;
///     assert_eq!(entry.key, "France");
///     assert_eq!(entry.value, "Paris");
/// }
/// # Ok(())
/// # }
/// ```
impl<'db> IntoIterator for &'db Db {
    type Item = Result<Entry<'db>>;
    type IntoIter = Iter<'db>;

    fn into_iter(self) -> Iter<'db> {
        self.iter()
    }
}
