//! What the calls for many records take: pairs and changes, in whatever form the caller has them.

use crate::value::Entry;

/// A key with its value, in any form that has bytes: the items of
/// [`Db::put_many`](crate::Db::put_many).
///
/// A tuple of two `AsRef<[u8]>` is a pair, and so is a reference to one, so that slices, vectors and
/// maps can be given as they are. An [`Entry`] of a scan is one too.
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
