//! `Value`: bytes that a table returns, borrowed from the table where possible.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use crate::error::Result;
use crate::memory;
use crate::pins::Pin;

/// Bytes of a value that `Debug` shows; for a longer value it adds the length.
const DEBUG_BYTES_MAX: usize = 64;

/// A value or a key that a table has returned. Its bytes are borrowed if the table has them in
/// memory or mapped.
///
/// It dereferences to `[u8]`, and compares equal to byte slices, arrays, vectors and strings of the
/// same bytes. `Debug` prints the first 64 bytes, escaped.
///
/// A value borrows from its table, so it cannot outlive the table's handle. Later changes of the
/// key do not change it. For a store in a file, the bytes are those of the mapped file: if another
/// program writes to the file they may change, and if it truncates the file, reading them raises
/// `SIGBUS`. [`Db::open`](crate::Db::open) has the complete contract.
///
/// A value of a store holds a *pin*: until it is dropped, the store overwrites neither its record
/// nor any other record that has been replaced or deleted since the lookup. So copy a value that
/// you keep for long, with [`into_vec`](Self::into_vec).
/// [`Stats::held_up_for`](crate::stats::Stats::held_up_for) shows whether space is waiting for a
/// pin. A clone has a pin of its own. Any thread may drop a value. The drop costs one atomic
/// subtraction, or a mutex and a system call on a handle that reads beside a writer and found no
/// place in the reader table.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// let db = splitpoint::Db::in_memory()?;
/// db.put(b"France", b"Paris")?;
/// let value = db.get(b"France")?.expect("it was stored");
/// assert_eq!(value, "Paris");
/// assert_eq!(value, b"Paris");
/// assert_eq!(value.len(), 5);
/// assert_eq!(format!("{value:?}"), r#"Value("Paris")"#);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Value<'table> {
    bytes: Cow<'table, [u8]>,
    /// Keeps the store from overwriting the bytes. `None` if the table never overwrites them.
    pin: Option<Pin<'table>>,
}

impl<'table> Value<'table> {
    /// Wraps bytes that the table owns, and neither changes nor moves during its lifetime.
    #[inline]
    pub fn borrowed(bytes: &'table [u8]) -> Self {
        Self { bytes: Cow::Borrowed(bytes), pin: None }
    }

    /// Wraps bytes that the table owns, and does not change before `pin` is dropped.
    #[inline]
    pub(crate) fn pinned(bytes: &'table [u8], pin: Pin<'table>) -> Self {
        Self { bytes: Cow::Borrowed(bytes), pin: Some(pin) }
    }

    /// Wraps bytes that belong to this value alone.
    pub fn owned(bytes: Vec<u8>) -> Self {
        Self { bytes: Cow::Owned(bytes), pin: None }
    }

    /// Wraps a copy of `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) with [`Error::MEMORY`](crate::Error::MEMORY).
    pub(crate) fn copied(bytes: &[u8]) -> Result<Self> {
        memory::copied(bytes).map(Self::owned)
    }

    /// Returns the bytes as a vector, copying them if the table owns them.
    pub fn into_vec(self) -> Vec<u8> {
        let Self { bytes, pin } = self;
        let bytes = bytes.into_owned();
        // Not before the copy: dropping the pin allows the store to reuse the space.
        drop(pin);
        bytes
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Value<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Value<'_> {}

impl Hash for Value<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

/// Implements `PartialEq` between values and other types that have bytes, on either side.
macro_rules! compare_with {
    ($([$($generic:tt)*] $other:ty,)*) => {$(
        impl<$($generic)*> PartialEq<$other> for Value<'_> {
            fn eq(&self, other: &$other) -> bool {
                let other: &[u8] = other.as_ref();
                *self.bytes == *other
            }
        }

        impl<$($generic)*> PartialEq<Value<'_>> for $other {
            fn eq(&self, other: &Value<'_>) -> bool {
                other == self
            }
        }
    )*};
}

compare_with! {
    [] [u8],
    [] &[u8],
    [const N: usize] [u8; N],
    [const N: usize] &[u8; N],
    [] Vec<u8>,
    [] str,
    [] &str,
    [] String,
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, len) = (&*self.bytes, self.bytes.len());
        if len <= DEBUG_BYTES_MAX {
            write!(f, "Value(\"{}\")", bytes.escape_ascii())
        } else {
            let first = bytes[..DEBUG_BYTES_MAX].escape_ascii();
            write!(f, "Value(\"{first}\"... {len} bytes)")
        }
    }
}

/// One key with its value: an item of a scan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry<'table> {
    /// The key.
    pub key: Value<'table>,
    /// Its value.
    pub value: Value<'table>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_equals_its_bytes_in_every_form_on_both_sides() {
        for value in [Value::borrowed(b"Paris"), Value::owned(b"Paris".to_vec())] {
            assert_eq!(value, b"Paris");
            assert_eq!(value, *b"Paris");
            assert_eq!(value, b"Paris"[..]);
            assert_eq!(value, &b"Paris"[..]);
            assert_eq!(value, b"Paris".to_vec());
            assert_eq!(value, "Paris");
            assert_eq!(value, *"Paris");
            assert_eq!(value, String::from("Paris"));
            assert_eq!("Paris", value);
            assert_eq!(b"Paris", value);
            assert_eq!(*b"Paris", value);
            assert_eq!(&b"Paris"[..], value);
            assert_eq!(b"Paris".to_vec(), value);
            assert_ne!(value, b"Lima");
            assert_ne!(value, "Pari");
            assert_ne!("Paris ", value);
        }
    }

    #[test]
    fn debug_shows_the_bytes_escaped_and_the_length_of_what_it_cuts() {
        assert_eq!(format!("{:?}", Value::borrowed(b"")), r#"Value("")"#);
        assert_eq!(format!("{:?}", Value::borrowed(b"a\0\xff\"\n")), r#"Value("a\x00\xff\"\n")"#);
        let at = vec![b'x'; DEBUG_BYTES_MAX];
        assert_eq!(format!("{:?}", Value::borrowed(&at)), format!("Value(\"{}\")", "x".repeat(64)));
        let over = vec![b'x'; 100_000];
        let expected = format!("Value(\"{}\"... 100000 bytes)", "x".repeat(64));
        assert_eq!(format!("{:?}", Value::owned(over)), expected);
    }

    #[test]
    fn a_pin_takes_one_word() {
        let word = size_of::<usize>();
        assert_eq!(size_of::<Option<Value<'_>>>(), size_of::<Vec<u8>>() + word);
    }
}
