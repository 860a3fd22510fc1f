//! Iterators over the keys, the values and both, and the `for` loop over a `&Db`.

use super::Db;
use crate::cursor::Scan;
use crate::error::{Error, Result};
use crate::value::{Entry, Value};

impl Db {
    /// Returns an iterator over every key, in the order of the file.
    ///
    /// It gives the guarantees of [`scan`](Self::scan).
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

    /// Returns an iterator over the value of every key, in the order of the file.
    ///
    /// It gives the guarantees of [`scan`](Self::scan).
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// # let db = splitpoint::Db::in_memory()?;
    /// db.put_many([("ant", "6"), ("spider", "8")])?;
    /// let mut leg_count = 0;
    /// for value in db.values()? {
    ///     leg_count += value?[0] - b'0';
    /// }
    /// assert_eq!(leg_count, 14);
    /// # Ok(())
    /// # }
    /// ```
    pub fn values(&self) -> Result<Values<'_>> {
        Ok(Values(self.scan()?))
    }

    /// Returns an iterator over every key with its value, like [`scan`](Self::scan); the call
    /// itself cannot fail.
    ///
    /// If the scan cannot begin, the error is the only item. A `for` loop over a `&Db` calls this
    /// method.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.scan().map_err(Some))
    }
}

/// Iterator over the keys of a store; [`Db::keys`] returns it.
#[derive(Debug)]
pub struct Keys<'db>(Scan<'db>);

impl<'db> Iterator for Keys<'db> {
    type Item = Result<Value<'db>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|entry| entry.key))
    }
}

impl std::iter::FusedIterator for Keys<'_> {}

/// Iterator over the values of a store; [`Db::values`] returns it.
#[derive(Debug)]
pub struct Values<'db>(Scan<'db>);

impl<'db> Iterator for Values<'db> {
    type Item = Result<Value<'db>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|entry| entry.value))
    }
}

impl std::iter::FusedIterator for Values<'_> {}

/// Iterator over the keys and values of a store; [`Db::iter`] returns it.
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
