/// Returns the 64-bit FNV-1a hash of `key`.
///
/// Stores can use it, under [`HashId::FNV1A_64`](super::HashId::FNV1A_64); it serves as a baseline.
/// Its prime is odd, so bit 0 of the hash is only the parity of bit 0 of the key bytes, and linear
/// hashing selects buckets by those low bits. Never use it for keys that an attacker may choose.
///
/// # Cost
///
/// One multiplication per key byte.
///
/// # Source
///
/// Fowler, Noll and Vo; vectors from draft-eastlake-fnv.
///
/// # Examples
///
/// ```
/// assert_eq!(splitpoint::hash::fnv1a_64(b"a"), 0xaf63_dc4c_8601_ec8c);
/// ```
pub fn fnv1a_64(key: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    // Bytes, never native words: a table written on one machine is read on another.
    key.iter().fold(OFFSET_BASIS, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}
