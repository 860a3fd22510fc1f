//! What gdbm keeps in the header of a file: the block size that programs ask for, and the count of
//! syncs. In a store they are the application data.

/// Mark of application data that is ours.
const MARK: [u8; 3] = *b"gdb";
/// Smallest block size in bytes.
pub(crate) const BLOCK_BYTES_MIN: u32 = 512;

/// What a database remembers beside its pairs.
///
/// ```text
/// offset  size  content
///      0     4  block size in bytes
///      4     3  "gdb"
///      7     1  bit 0: syncs are counted
///      8     8  syncs so far
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Block size in bytes, which nothing depends on.
    pub(crate) block_bytes: u32,
    /// The number of syncs, if they are counted.
    pub(crate) sync_count: Option<u64>,
}

impl Head {
    /// Decodes application data; `None` if it is another program's.
    pub(crate) fn decode(data: [u8; 16]) -> Option<Self> {
        let [block_bytes, mark] = [0, 4]
            .map(|at| u32::from_le_bytes(*data[at..].first_chunk().expect("the field is inside")));
        let [b0, b1, b2, flags] = mark.to_le_bytes();
        if [b0, b1, b2] != MARK || !is_block_size(block_bytes) {
            return None;
        }
        let count = u64::from_le_bytes(*data[8..].first_chunk().expect("the field is inside"));
        Some(Self { block_bytes, sync_count: (flags & 1 != 0).then_some(count) })
    }

    pub(crate) fn encode(self) -> [u8; 16] {
        let mut data = [0; 16];
        data[..4].copy_from_slice(&self.block_bytes.to_le_bytes());
        data[4..7].copy_from_slice(&MARK);
        data[7] = u8::from(self.sync_count.is_some());
        data[8..].copy_from_slice(&self.sync_count.unwrap_or(0).to_le_bytes());
        data
    }
}

fn is_block_size(bytes: u32) -> bool {
    bytes >= BLOCK_BYTES_MIN && bytes.is_power_of_two()
}

/// Returns the block size of a new database for which a program asks for `wanted`, on a file system with
/// blocks of `of_system` bytes.
pub(crate) fn block_bytes_for(wanted: i32, of_system: u32) -> u32 {
    match u32::try_from(wanted) {
        Ok(wanted) if wanted >= BLOCK_BYTES_MIN => {
            wanted.checked_next_power_of_two().unwrap_or(1 << 30)
        }
        _ => of_system.max(BLOCK_BYTES_MIN).checked_next_power_of_two().unwrap_or(4096),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_the_round_trip_and_other_data_is_none() {
        for sync_count in [None, Some(0), Some(u64::MAX)] {
            let head = Head { block_bytes: 4096, sync_count };
            assert_eq!(Head::decode(head.encode()), Some(head));
        }
        assert_eq!(Head::decode([0; 16]), None);
        assert_eq!(Head::decode(*b"0123456789abcdef"), None);
    }

    #[test]
    fn block_sizes_are_rounded_up_to_powers_of_two() {
        for (wanted, rounded) in [
            (0, 4096),
            (-1, 4096),
            (511, 4096),
            (512, 512),
            (518, 1024),
            (1025, 2048),
            (5000, 8192),
        ] {
            assert_eq!(block_bytes_for(wanted, 4096), rounded, "{wanted}");
        }
        assert!(block_bytes_for(i32::MAX, 4096) >= 1 << 30);
    }
}
