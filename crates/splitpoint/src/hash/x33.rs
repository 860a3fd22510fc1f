/// The default function of the 1991 package and Berkeley DB's `hash4`: `h = 33 h + c` from 0,
/// in 32 bits.
///
/// Kept for tables that must hash as that package does. Low bits of short keys are nearly linear
/// in their last bytes, so consecutive keys fill consecutive buckets: better than random for
/// those keys, and no promise for others. Never for keys an attacker may choose.
///
/// Complexity: one multiplication per key byte.
///
/// Source: Chris Torek; Seltzer and Yigit 1991, whose header check is this function of
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
