//! The byte order of the numbers in an old file, which is that of the machine that wrote it.

/// Order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Lowest byte first: `lorder` 1234.
    Little,
    /// Highest byte first: `lorder` 4321.
    Big,
}

impl ByteOrder {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Little, Self::Big];

    /// Returns the number in two bytes.
    #[inline]
    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        let little = u16::from_le_bytes(bytes);
        if self == Self::Little { little } else { little.swap_bytes() }
    }

    /// Returns the number in four bytes.
    #[inline]
    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        let little = u32::from_le_bytes(bytes);
        if self == Self::Little { little } else { little.swap_bytes() }
    }

    /// Returns the number in eight bytes.
    #[inline]
    pub fn u64(self, bytes: [u8; 8]) -> u64 {
        let little = u64::from_le_bytes(bytes);
        if self == Self::Little { little } else { little.swap_bytes() }
    }

    /// Returns the bytes of a number of 16 bits.
    #[inline]
    pub fn bytes_of_u16(self, number: u16) -> [u8; 2] {
        let little = if self == Self::Little { number } else { number.swap_bytes() };
        little.to_le_bytes()
    }

    /// Returns the bytes of a number of 32 bits.
    #[inline]
    pub fn bytes_of_u32(self, number: u32) -> [u8; 4] {
        let little = if self == Self::Little { number } else { number.swap_bytes() };
        little.to_le_bytes()
    }
}

/// Numbers at an offset. A number that runs past the end of the bytes is 0, as in a hole of a
/// sparse file.
impl ByteOrder {
    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Little => "little-endian",
            Self::Big => "big-endian",
        }
    }

    pub(crate) fn u16_at(self, bytes: &[u8], offset: usize) -> u16 {
        self.u16(array_at(bytes, offset))
    }

    pub(crate) fn u32_at(self, bytes: &[u8], offset: usize) -> u32 {
        self.u32(array_at(bytes, offset))
    }

    pub(crate) fn u64_at(self, bytes: &[u8], offset: usize) -> u64 {
        self.u64(array_at(bytes, offset))
    }
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let rest = bytes.get(offset..).unwrap_or_default();
    rest.first_chunk().copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::ByteOrder::{self, Big, Little};

    #[test]
    fn the_highest_byte_is_first_or_last() {
        assert_eq!(Big.u16([1, 2]), 0x0102);
        assert_eq!(Little.u16([1, 2]), 0x0201);
        assert_eq!(Big.u32([1, 2, 3, 4]), 0x0102_0304);
        assert_eq!(Little.u64([1, 2, 3, 4, 5, 6, 7, 8]), 0x0807_0605_0403_0201);
        assert_eq!(Big.u64([1, 2, 3, 4, 5, 6, 7, 8]), 0x0102_0304_0506_0708);
        for order in ByteOrder::ALL {
            assert_eq!(order.u16(order.bytes_of_u16(0xabcd)), 0xabcd);
            assert_eq!(order.u32(order.bytes_of_u32(0xabcd_ef01)), 0xabcd_ef01);
        }
    }

    #[test]
    fn numbers_beyond_the_end_are_zero() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(Big.u16_at(&bytes, 6), 0x0708);
        assert_eq!(Big.u16_at(&bytes, 7), 0);
        assert_eq!(Little.u32_at(&bytes, 4), 0x0807_0605);
        assert_eq!(Big.u64_at(&bytes, usize::MAX), 0);
    }
}
