//! Keys that collide, for tests.

/// Returns `count` keys with the same hash of dbm, the same of gdbm and the same digest of hsearch.
///
/// They are permutations of blocks of 24 bytes. gdbm adds each byte shifted by its position modulo
/// 24, so the order of blocks does not matter to it. To dbm it does not either, if each block leads
/// its index back to where it was: the nibbles of each add up to 12 modulo 16.
pub(crate) fn of(count: usize) -> Vec<Vec<u8>> {
    let blocks: Vec<[u8; 24]> = (0..7).map(block).collect();
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    let mut keys = Vec::new();
    while keys.len() < count {
        keys.push(order.iter().flat_map(|&index| blocks[index]).collect());
        assert!(next_permutation(&mut order), "at most 7! keys");
    }
    keys
}

fn block(number: u8) -> [u8; 24] {
    let mut block = [b'p'; 24];
    block[0] = b'a' + number;
    let sum: u32 = block[..23].iter().map(|&byte| nibbles(byte)).sum();
    let last = (b'A'..=b'z').find(|&byte| (sum + nibbles(byte)) % 16 == 12);
    block[23] = last.expect("letters have every sum of nibbles");
    block
}

fn nibbles(byte: u8) -> u32 {
    u32::from(byte & 15) + u32::from(byte >> 4)
}

/// Steps to the next permutation in the order of dictionaries.
fn next_permutation(order: &mut [usize]) -> bool {
    let Some(rise) = order.windows(2).rposition(|pair| pair[0] < pair[1]) else { return false };
    let larger = order.iter().rposition(|&index| index > order[rise]).expect("the next is larger");
    order.swap(rise, larger);
    order[rise + 1..].reverse();
    true
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use splitpoint::hash::{CharSign, dbm, gdbm};

    #[test]
    fn the_keys_differ_and_collide() {
        let keys = super::of(2000);
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 2000);
        let first = &keys[0];
        for key in &keys {
            assert_eq!(dbm(key), dbm(first));
            assert_eq!(gdbm(key, CharSign::Signed), gdbm(first, CharSign::Signed));
            assert_eq!(super::super::hsearch::digest(key), super::super::hsearch::digest(first));
        }
    }
}
