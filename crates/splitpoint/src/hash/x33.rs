/// Returns the default hash of db 1.85, Berkeley DB's `hash4`: `h = 33 h + c` in 32 bits, beginning
/// with 0.
///
/// It serves tables that must hash as that package does. The low bits of the hash are nearly linear
/// in the last bytes of short keys, so consecutive keys fill consecutive buckets. That is better
/// than random for those keys, and says nothing about others. Never use it for keys that an
/// attacker may choose.
///
/// # Cost
///
/// One multiplication per key byte.
///
/// # Source
///
/// Chris Torek; Seltzer and Yigit 1991, whose file header holds this hash of
/// [`PROBE_KEY`](super::PROBE_KEY).
///
/// # Examples
///
/// ```
/// assert_eq!(splitpoint::hash::x33(b"%$sniglet^&\0"), 0x956e_7de3);
/// ```
pub fn x33(key: &[u8]) -> u32 {
    key.iter().fold(0, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}
