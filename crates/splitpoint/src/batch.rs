//! Arguments of the calls for many records: records and changes, in any form that has bytes.

use std::borrow::Borrow;
use std::fmt;

use crate::error::Result;
use crate::memory;
use crate::value::Entry;

/// A key with its value, in any form that has bytes: an item of
/// [`Db::put_many`](crate::Db::put_many).
///
/// A tuple of two `AsRef<[u8]>` is one, and so is a reference to such a tuple. You can thus pass
/// slices, vectors and maps as they are. The [`Entry`] of a scan is one too.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// use std::collections::BTreeMap;
///
/// let db = splitpoint::Db::in_memory()?;
/// db.put_many([("France", "Paris"), ("Peru", "Lima")])?;
/// db.put_many(&BTreeMap::from([(vec![1], [2, 3]), (vec![4, 5], [6, 7])]))?;
/// db.put_many((0..10_u64).map(|i| (i.to_le_bytes(), format!("number {i}"))))?;
/// assert_eq!(db.len(), 14);
/// # Ok(())
/// # }
/// ```
pub trait AsPair {
    /// Returns the bytes of the key and of the value.
    fn as_pair(&self) -> (&[u8], &[u8]);
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>> AsPair for (K, V) {
    #[inline]
    fn as_pair(&self) -> (&[u8], &[u8]) {
        (self.0.as_ref(), self.1.as_ref())
    }
}

impl AsPair for Entry<'_> {
    #[inline]
    fn as_pair(&self) -> (&[u8], &[u8]) {
        (&self.key, &self.value)
    }
}

impl<P: AsPair + ?Sized> AsPair for &P {
    #[inline]
    fn as_pair(&self) -> (&[u8], &[u8]) {
        (**self).as_pair()
    }
}

/// One change of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change<'a> {
    /// Store `value` under `key`.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Delete `key`, if it exists.
    Delete {
        /// The key.
        key: &'a [u8],
    },
}

impl<'a> Change<'a> {
    /// Returns the key, and the value of a put.
    pub(crate) fn parts(&self) -> (&'a [u8], Option<&'a [u8]>) {
        match *self {
            Self::Put { key, value } => (key, Some(value)),
            Self::Delete { key } => (key, None),
        }
    }
}

/// Collects changes from an iterator over changes or references to them. Keys and values stay
/// borrowed.
///
/// # Errors
///
/// [`Error::Full`](crate::Error::Full) with [`Error::MEMORY`](crate::Error::MEMORY).
pub(crate) fn copied<'a>(
    changes: impl IntoIterator<Item: Borrow<Change<'a>>>,
) -> Result<Vec<Change<'a>>> {
    memory::collected(changes.into_iter().map(|change| *change.borrow()))
}

/// Changes that [`Db::apply`](crate::Db::apply) applies atomically.
///
/// A batch copies its keys and values, so they need not outlive it. To avoid the copy, pass a slice
/// of [`Change`]s to `apply`.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// use splitpoint::{Batch, Db};
///
/// let db = Db::in_memory()?;
/// db.put("from", "7")?;
/// db.apply(&Batch::new().delete("from").put("to", "7"))?;
/// assert_eq!(db.get("to")?.expect("it was stored"), "7");
///
/// let mut batch = Batch::new();
/// for i in 0..100_u64 {
///     batch = batch.put(i.to_le_bytes(), format!("number {i}"));
/// }
/// db.apply(&batch)?;
/// assert_eq!(db.len(), 101);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Batch {
    /// The keys and values of all changes, concatenated.
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// The offsets of one change in [`Batch::bytes`].
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    key_end: usize,
    /// `None` for a delete.
    value_end: Option<usize>,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a change that stores `value` under `key`.
    #[must_use]
    pub fn put(mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.push(Change::Put { key: key.as_ref(), value: value.as_ref() });
        self
    }

    /// Adds a change that deletes `key`, if it exists.
    #[must_use]
    pub fn delete(mut self, key: impl AsRef<[u8]>) -> Self {
        self.push(Change::Delete { key: key.as_ref() });
        self
    }

    /// Adds a copy of `change`. Like a `Vec`, it aborts the process if there is no memory;
    /// [`try_push`](Self::try_push) returns an error instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use splitpoint::{Batch, Change};
    ///
    /// let mut batch = Batch::new();
    /// for (key, value) in [("a", Some("1")), ("b", None)] {
    ///     let key = key.as_bytes();
    ///     batch.push(match value {
    ///         Some(value) => Change::Put { key, value: value.as_bytes() },
    ///         None => Change::Delete { key },
    ///     });
    /// }
    /// assert_eq!(batch.len(), 2);
    /// ```
    pub fn push(&mut self, change: Change<'_>) {
        self.append(change);
    }

    /// Adds a copy of `change`, if there is memory for it.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) with [`Error::MEMORY`](crate::Error::MEMORY); the batch
    /// is unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> splitpoint::Result<()> {
    /// let mut batch = splitpoint::Batch::new();
    /// batch.try_push(splitpoint::Change::Put { key: b"France", value: b"Paris" })?;
    /// assert_eq!(batch.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_push(&mut self, change: Change<'_>) -> Result<()> {
        let (key, value) = change.parts();
        memory::reserve(&mut self.spans, 1)?;
        memory::reserve(&mut self.bytes, key.len() + value.unwrap_or_default().len())?;
        self.append(change);
        Ok(())
    }

    fn append(&mut self, change: Change<'_>) {
        let start = self.bytes.len();
        let (key, value) = change.parts();
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let value_end = value.map(|_| self.bytes.len());
        self.spans.push(Span { start, key_end, value_end });
    }

    /// Removes every change, but keeps the memory allocated.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns whether the batch has no changes.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns an iterator over the changes, in the order in which they were added.
    pub fn iter(&self) -> Changes<'_> {
        Changes { bytes: &self.bytes, spans: self.spans.iter() }
    }
}

/// Iterator over the changes of a [`Batch`]; [`Batch::iter`] returns it.
#[derive(Clone)]
pub struct Changes<'batch> {
    bytes: &'batch [u8],
    spans: std::slice::Iter<'batch, Span>,
}

impl<'batch> Iterator for Changes<'batch> {
    type Item = Change<'batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let Span { start, key_end, value_end } = *self.spans.next()?;
        let key = &self.bytes[start..key_end];
        Some(match value_end {
            Some(value_end) => Change::Put { key, value: &self.bytes[key_end..value_end] },
            None => Change::Delete { key },
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.spans.size_hint()
    }
}

impl ExactSizeIterator for Changes<'_> {}

impl std::iter::FusedIterator for Changes<'_> {}

impl<'batch> IntoIterator for &'batch Batch {
    type Item = Change<'batch>;
    type IntoIter = Changes<'batch>;

    fn into_iter(self) -> Changes<'batch> {
        self.iter()
    }
}

impl<'a> Extend<Change<'a>> for Batch {
    fn extend<T: IntoIterator<Item = Change<'a>>>(&mut self, changes: T) {
        changes.into_iter().for_each(|change| self.push(change));
    }
}

impl<'a> FromIterator<Change<'a>> for Batch {
    fn from_iter<T: IntoIterator<Item = Change<'a>>>(changes: T) -> Self {
        let mut batch = Self::new();
        batch.extend(changes);
        batch
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("change_count", &self.len())
            .field("byte_count", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Changes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("left", &self.spans.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_returns_the_changes_that_it_was_given() {
        let changes = [
            Change::Put { key: b"a", value: b"1" },
            Change::Delete { key: b"b" },
            Change::Put { key: b"", value: b"" },
            Change::Delete { key: b"" },
            Change::Put { key: b"a", value: b"again" },
        ];
        let mut batch: Batch = changes.into_iter().collect();
        assert_eq!(batch.iter().collect::<Vec<_>>(), changes);
        assert_eq!((batch.len(), batch.iter().len()), (5, 5));
        batch.clear();
        assert!(batch.is_empty() && batch.iter().next().is_none());
        let batch = batch.put("a", "1").delete("b");
        assert_eq!(batch.iter().collect::<Vec<_>>(), changes[..2]);
    }
}
