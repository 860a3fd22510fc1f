//! Memory whose size the keys decide: an error where there is none. The collections of the standard library
//! abort the process then.

use std::hint::black_box;

/// Returns whether the process gets so many bytes now.
///
/// Work with many allocations asks once, before it begins, for as much as all of them take. What usually
/// stands in the way is a limit of the process, which does not change meanwhile.
pub(crate) fn is_there(bytes: u64) -> bool {
    let mut probe: Vec<u8> = Vec::new();
    let is_there = usize::try_from(bytes).is_ok_and(|bytes| probe.try_reserve_exact(bytes).is_ok());
    // An allocation that nobody looks at may be left out.
    black_box(&probe);
    is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_process_has_is_not_there() {
        assert!(is_there(0) && is_there(1 << 16));
        assert!(!is_there(u64::MAX) && !is_there(i64::MAX as u64));
    }
}
