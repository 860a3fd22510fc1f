//! Hash functions of programs. The store calls functions of Rust, so each function of C gets one of a
//! fixed number of these, for the life of the process.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use splitpoint::hash::{HashFunction, HashId};
use splitpoint::{Error, Result};

/// A hash function as C has it.
pub(crate) type UserHash = unsafe extern "C" fn(*const c_void, usize) -> u32;

/// Functions that one process can use.
const COUNT: usize = 16;
/// The id that a store records. The hash of the probe key tells them apart.
const ID: HashId = HashId(0x8000_0185);
const NAME: &str = "dbopen user's";

/// The addresses of the functions, 0 where there is none yet.
static ADDRESSES: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

fn hash_by<const I: usize>(key: &[u8], _seed: u64) -> u64 {
    let address = ADDRESSES[I].load(Ordering::Acquire);
    // SAFETY: `register` stored the address of such a function before it returned this one.
    let function = unsafe { std::mem::transmute::<usize, UserHash>(address) };
    // SAFETY: the program has given the function for this; the bytes are a slice.
    u64::from(unsafe { function(key.as_ptr().cast(), key.len()) })
}

/// The functions of Rust, in the order of the addresses.
const FUNCTIONS: [fn(&[u8], u64) -> u64; COUNT] = [
    hash_by::<0>,
    hash_by::<1>,
    hash_by::<2>,
    hash_by::<3>,
    hash_by::<4>,
    hash_by::<5>,
    hash_by::<6>,
    hash_by::<7>,
    hash_by::<8>,
    hash_by::<9>,
    hash_by::<10>,
    hash_by::<11>,
    hash_by::<12>,
    hash_by::<13>,
    hash_by::<14>,
    hash_by::<15>,
];

/// Returns a function that calls the program's.
///
/// # Errors
///
/// [`Error::Invalid`] if the process uses as many others already.
pub(crate) fn register(function: UserHash) -> Result<HashFunction> {
    let address = function as usize;
    for (place, call) in ADDRESSES.iter().zip(FUNCTIONS) {
        let stored = place.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire);
        if stored.is_ok() || stored == Err(address) {
            return HashFunction::user(ID, NAME, call);
        }
    }
    let reason = format!("expected at most {COUNT} functions in a process");
    Err(Error::Invalid { what: "hash function", reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn by_size(_key: *const c_void, bytes: usize) -> u32 {
        bytes as u32
    }

    #[test]
    fn a_function_is_called_and_registered_once() {
        for _ in 0..2 * COUNT {
            assert_eq!(register(by_size).unwrap().hash(b"four", 7), 4);
        }
    }
}
