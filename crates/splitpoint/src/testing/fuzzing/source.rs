//! The bytes of an input, taken from the front, and the file that they describe.

/// Largest file that an input describes, in bytes.
const FILE_BYTES_MAX: usize = 1 << 18;

/// What is left of an input. At its end it gives zeros.
pub(super) struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    /// Takes `len` bytes, fewer at the end.
    pub(super) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Takes everything.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    /// Takes a file: the number of what it is made from, then what differs.
    ///
    /// 0 is a file of just the bytes that follow, 1 one of no bytes, and the numbers behind are
    /// those of [`Base::ALL`]; each but the first is followed by [changes](sparse).
    pub(super) fn file(&mut self) -> Vec<u8> {
        let number = usize::from(self.byte());
        if number == 0 {
            return self.rest().to_vec();
        }
        let bases = &Base::ALL;
        let mut file = match (number - 1) % (bases.len() + 1) {
            0 => Vec::new(),
            base => bases[base - 1].file(),
        };
        self.change(&mut file);
        file
    }

    /// Applies changes to a file: each has an offset (16 bits, in units of 4 bytes if the file is
    /// larger than that reaches), a length (8 bits), and as many bytes. A length of 0 sets the
    /// size of the file, in the same units.
    pub(super) fn change(&mut self, file: &mut Vec<u8>) {
        while !self.is_empty() {
            let offset = usize::from(self.u16());
            let len = usize::from(self.byte());
            if len == 0 {
                file.resize((offset * UNIT_BYTES).min(FILE_BYTES_MAX), 0);
                continue;
            }
            let within = usize::from(self.byte()) % UNIT_BYTES;
            let bytes = self.bytes(len);
            let start = (offset * UNIT_BYTES + within).min(file.len());
            let end = (start + bytes.len()).min(file.len());
            file[start..end].copy_from_slice(&bytes[..end - start]);
        }
    }
}

/// Unit of offsets in changes, in bytes.
const UNIT_BYTES: usize = 4;

/// Returns the changes that make `file` out of one of no bytes.
///
/// Each is an offset in units of 4 bytes (16 bits), a length (8 bits), what is to be added to the
/// offset (8 bits), and the bytes. A length of 0 ends there and sets the size of the file to the
/// offset.
///
/// # Panics
///
/// If the size of the file is not a multiple of 4, or more than 256 KiB.
pub fn sparse(file: &[u8]) -> Vec<u8> {
    assert!(file.len().is_multiple_of(UNIT_BYTES));
    let units = |bytes: usize| u16::try_from(bytes / UNIT_BYTES).expect("a file of 256 KiB");
    let mut changes = Vec::new();
    changes.extend_from_slice(&units(file.len()).to_le_bytes());
    changes.push(0);
    let mut at = 0;
    while at < file.len() {
        // A run of zeros shorter than the head of a change is not worth another.
        let rest = &file[at..file.len().min(at + 252)];
        let is_gap = |window: &[u8]| window.iter().all(|&byte| byte == 0);
        let len = rest.chunks(8).position(is_gap).map_or(rest.len(), |chunk| 8 * chunk);
        if len == 0 {
            at += 8;
            continue;
        }
        changes.extend_from_slice(&units(at).to_le_bytes());
        changes.push(u8::try_from(len).expect("at most 252"));
        changes.push(0);
        changes.extend_from_slice(&rest[..len]);
        at += len;
    }
    changes
}

/// Where the live header has the boot id.
const BOOT_ID: std::ops::Range<usize> = 8192 + 16..8192 + 32;

/// A real store of few bytes, to be damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Closed.
    Closed,
    /// Left by a process that was killed on the boot of a new `SimDisk`.
    Left,
    /// The same on another boot: what a power loss leaves if all has reached the disk.
    Lost,
}

impl Base {
    /// Every base, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Left, Self::Lost];

    /// Returns the bytes of the store.
    pub fn file(self) -> Vec<u8> {
        let changes = match self {
            Self::Closed => &include_bytes!("closed.sparse")[..],
            Self::Left | Self::Lost => &include_bytes!("left.sparse")[..],
        };
        let mut file = Vec::new();
        Source::new(changes).change(&mut file);
        if self == Self::Lost {
            file[BOOT_ID].fill(0xb0);
        }
        file
    }
}
