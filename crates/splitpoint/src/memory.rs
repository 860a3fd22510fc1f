//! Memory whose size the data of a program decides. Where there is none, a call returns an error; the
//! standard collections would abort the process.

use crate::error::{Error, Result};

/// Returns the error of so many bytes that the process does not get.
#[cold]
pub(crate) fn refused(bytes: usize) -> Error {
    Error::Full { what: Error::MEMORY, bytes: bytes as u64 }
}

/// Makes room for `count` more items, so that adding them allocates nothing.
///
/// # Errors
///
/// [`Error::Full`]; the list is unchanged.
#[inline]
pub(crate) fn reserve<T>(list: &mut Vec<T>, count: usize) -> Result<()> {
    list.try_reserve(count).map_err(|_| refused(count.saturating_mul(size_of::<T>())))
}

/// Returns an empty list with room for `count` items.
///
/// # Errors
///
/// [`Error::Full`].
pub(crate) fn with_room<T>(count: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(count).map_err(|_| refused(count.saturating_mul(size_of::<T>())))?;
    Ok(list)
}

/// Returns a list of the items.
///
/// # Errors
///
/// [`Error::Full`].
pub(crate) fn collected<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>> {
    let items = items.into_iter();
    let mut list = with_room(items.size_hint().0)?;
    for item in items {
        // Most iterators know their number.
        if list.len() == list.capacity() {
            reserve(&mut list, 1)?;
        }
        list.push(item);
    }
    Ok(list)
}

/// Returns a list of `count` times `item`.
///
/// # Errors
///
/// [`Error::Full`].
pub(crate) fn filled<T: Copy>(item: T, count: usize) -> Result<Vec<T>> {
    let mut list = with_room(count)?;
    list.resize(count, item);
    Ok(list)
}

/// Returns a copy of `bytes`.
///
/// # Errors
///
/// [`Error::Full`].
pub(crate) fn copied(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut copy = with_room(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_no_process_has_is_an_error_and_changes_nothing() {
        let mut list = vec![1_u64];
        for error in [
            reserve(&mut list, usize::MAX).unwrap_err(),
            with_room::<u64>(usize::MAX).unwrap_err(),
            filled(0_u64, usize::MAX / 2).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Full { what: Error::MEMORY, .. }), "{error}");
        }
        assert_eq!(list, [1]);
    }

    #[test]
    fn lists_hold_what_was_given() {
        assert_eq!(collected(0..5).unwrap(), [0, 1, 2, 3, 4]);
        // An iterator that does not know its number.
        assert_eq!(collected((0..50).filter(|i| i % 2 == 0)).unwrap().len(), 25);
        assert_eq!(filled(7_u8, 3).unwrap(), [7, 7, 7]);
        assert_eq!(copied(b"abc").unwrap(), b"abc");
    }
}
