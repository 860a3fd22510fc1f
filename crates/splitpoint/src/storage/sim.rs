//! `Sim`: a memory image and a disk image, for tests of crashes and faults.
//!
//! The memory image is what the process and the page cache have; the disk image is what is
//! durable. A [`SimDisk`] stands for the machine: it can be asked what a killed process or a
//! power loss would leave, and to fail a call.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::anon::Memory;
use super::{Backing, Identity, Span, Storage, Tail, WindowKind};
use crate::db::Db;
use crate::error::Result;
use crate::options::{Create, Options};

/// Size of a sector in bytes: what a device writes whole.
const SECTOR_BYTES: usize = 512;
/// Largest file in bytes; the windows have as much each.
const FILE_BYTES_MAX: u64 = if cfg!(miri) { 1 << 20 } else { 64 << 20 };

/// A machine with one file.
///
/// # Examples
///
/// ```
/// # fn main() -> splitpoint::Result<()> {
/// use splitpoint::{Durability, Options, SimDisk};
///
/// let disk = SimDisk::new();
/// let db = disk.open(&Options::new())?;
/// db.put_with(b"key", b"value", Durability::Sync)?;
/// let after = disk.lose_power(42); // The disk as one of many power losses would leave it.
/// let db = after.open(&Options::new())?;
/// assert!(db.contains(b"key")?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct SimDisk(Arc<Machine>);

#[derive(Debug)]
struct Machine {
    /// The file as the page cache has it when no store is open.
    cached: Mutex<Vec<u8>>,
    /// The file as a power loss leaves it.
    durable: Mutex<Vec<u8>>,
    boot: u64,
    open: Mutex<Option<Arc<Image>>>,
    fault: Mutex<Fault>,
    /// How many random numbers were asked for.
    random_count: AtomicU64,
}

impl Default for Machine {
    fn default() -> Self {
        Self::with_file(Vec::new(), Vec::new(), 1)
    }
}

#[derive(Debug, Default)]
struct Fault {
    call_count: u64,
    fail_at: Option<u64>,
    errno: i32,
    is_permanent: bool,
}

/// The memory of an open store.
#[derive(Debug)]
struct Image {
    view: Memory,
    windows: [Memory; 3],
    pieces: Mutex<Vec<MappedPiece>>,
    file_bytes: AtomicU64,
}

/// A piece of a window that shows a part of the file.
#[derive(Clone, Copy, Debug)]
struct MappedPiece {
    kind: WindowKind,
    at: u64,
    bytes: u64,
    offset: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Tests go on after a panic that they expect.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    fn with_file(cached: Vec<u8>, durable: Vec<u8>, boot: u64) -> Self {
        Self {
            cached: Mutex::new(cached),
            durable: Mutex::new(durable),
            boot,
            open: Mutex::default(),
            fault: Mutex::default(),
            random_count: AtomicU64::new(0),
        }
    }

    /// Returns the file as every process on the machine would read it.
    fn file(&self) -> Vec<u8> {
        match &*lock(&self.open) {
            Some(image) => image.file(),
            None => lock(&self.cached).clone(),
        }
    }
}

impl SimDisk {
    /// Returns a machine whose file is empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a machine whose file has these bytes, all durable.
    pub fn with_file(bytes: &[u8]) -> Self {
        Self(Arc::new(Machine::with_file(bytes.to_vec(), bytes.to_vec(), 1)))
    }

    /// Opens the store in the file.
    ///
    /// # Errors
    ///
    /// As [`Options::open`], and the fault that was asked for.
    pub fn open(&self, options: &Options) -> Result<Db> {
        *lock(&self.0.cached) = self.0.file();
        let storage = Sim::new(self.0.clone())
            .map_err(|source| super::open::io_error("open", Path::new(PATH), source))?;
        let may_create = options.create != Create::Never;
        let opened = crate::recovery::open_storage(Box::new(storage), options, may_create)?;
        Ok(Db::from_opened(opened, options))
    }

    /// Returns the storage alone, without a store in it.
    #[cfg(test)]
    pub(super) fn storage(&self) -> io::Result<Box<dyn Storage>> {
        Ok(Box::new(Sim::new(self.0.clone())?))
    }

    /// Returns the bytes of the file, as the page cache has them.
    pub fn file(&self) -> Vec<u8> {
        self.0.file()
    }

    /// Returns the machine as it is after the process is killed now: the page cache is whole.
    #[must_use]
    pub fn kill(&self) -> Self {
        let durable = lock(&self.0.durable).clone();
        Self(Arc::new(Machine::with_file(self.0.file(), durable, self.0.boot)))
    }

    /// Returns the machine as it may be after a power loss now: of the sectors that are not
    /// durable, a part chosen by `seed` has reached the disk.
    ///
    /// Seed 0 chooses none of them, and `u64::MAX` all.
    #[must_use]
    pub fn lose_power(&self, seed: u64) -> Self {
        let memory = self.0.file();
        let mut disk = lock(&self.0.durable).clone();
        disk.resize(memory.len().max(disk.len()), 0);
        let mut state = seed;
        for (new, old) in memory.chunks(SECTOR_BYTES).zip(disk.chunks_mut(SECTOR_BYTES)) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
            let is_written = match seed {
                0 => false,
                u64::MAX => true,
                _ => state >> 63 == 1,
            };
            if is_written {
                old[..new.len()].copy_from_slice(new);
            }
        }
        Self(Arc::new(Machine::with_file(disk.clone(), disk, self.0.boot + 1)))
    }

    /// Makes the `call`th call to the storage from now on, counted from 1, fail with `errno`, and
    /// all after it if `is_permanent`.
    pub fn fail_call(&self, call: u64, errno: i32, is_permanent: bool) {
        let mut fault = lock(&self.0.fault);
        let fail_at = Some(fault.call_count + call);
        *fault = Fault { fail_at, errno, is_permanent, call_count: fault.call_count };
    }

    /// Returns how many calls to the storage there were that may fail.
    pub fn call_count(&self) -> u64 {
        lock(&self.0.fault).call_count
    }
}

impl Image {
    fn file(&self) -> Vec<u8> {
        let bytes = self.file_bytes.load(Ordering::Acquire);
        let mut file = copy_from(self.view.span(), 0, bytes);
        for piece in &*lock(&self.pieces) {
            let content =
                copy_from(self.windows[piece.kind.number()].span(), piece.at, piece.bytes);
            file[piece.offset as usize..][..content.len()].copy_from_slice(&content);
        }
        file
    }
}

/// Copies bytes out of a span that others may be changing.
fn copy_from(span: Span, at: u64, bytes: u64) -> Vec<u8> {
    assert!(at + bytes <= span.bytes);
    let mut copy = vec![0; bytes as usize];
    // SAFETY: the range is committed, and a raw copy makes no reference to it.
    let start = unsafe { span.base.add(at as usize) };
    // SAFETY: as above.
    unsafe { start.copy_to_nonoverlapping(copy.as_mut_ptr(), copy.len()) };
    copy
}

/// Copies bytes into a span.
fn copy_to(span: Span, at: u64, bytes: &[u8]) {
    assert!(at + bytes.len() as u64 <= span.bytes);
    // SAFETY: the range is committed; the engine reads it only once it is published or mapped.
    let start = unsafe { span.base.add(at as usize) };
    // SAFETY: as above; the source is another object.
    unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

const PATH: &str = ":sim:";

/// The storage of one open store on a [`SimDisk`].
#[derive(Debug)]
struct Sim {
    machine: Arc<Machine>,
    image: Arc<Image>,
}

impl Sim {
    fn new(machine: Arc<Machine>) -> io::Result<Self> {
        let [live, buckets, overflow] = WindowKind::ALL.map(|_| Memory::reserve(FILE_BYTES_MAX));
        let image = Arc::new(Image {
            view: Memory::reserve(FILE_BYTES_MAX)?,
            windows: [live?, buckets?, overflow?],
            pieces: Mutex::default(),
            file_bytes: AtomicU64::new(0),
        });
        let file = lock(&machine.cached).clone();
        image.view.commit(file.len() as u64)?;
        copy_to(image.view.span(), 0, &file);
        image.file_bytes.store(file.len() as u64, Ordering::Release);
        *lock(&machine.open) = Some(image.clone());
        Ok(Self { machine, image })
    }

    /// Counts a call and fails it if that was asked for.
    fn call(&self) -> io::Result<()> {
        let mut fault = lock(&self.machine.fault);
        fault.call_count += 1;
        match fault.fail_at {
            Some(at) if fault.call_count == at || fault.is_permanent && fault.call_count > at => {
                Err(io::Error::from_raw_os_error(fault.errno))
            }
            _ => Ok(()),
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= self.file_bytes());
        copy_to(self.image.view.span(), offset, bytes);
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let file = self.image.file();
        let mut open = lock(&self.machine.open);
        if open.as_ref().is_some_and(|image| Arc::ptr_eq(image, &self.image)) {
            *open = None;
            *lock(&self.machine.cached) = file;
        }
    }
}

impl Storage for Sim {
    fn path(&self) -> &Path {
        Path::new(PATH)
    }

    fn identity(&self) -> Identity {
        Identity { boot_id: [self.machine.boot as u8; 16], device: 1, inode: 1, birth_ns: 1 }
    }

    /// A run can be repeated: no thread makes events of its own.
    fn may_sync_in_background(&self) -> bool {
        false
    }

    /// The same numbers in every run.
    fn random_u64(&self) -> io::Result<u64> {
        let count = self.machine.random_count.fetch_add(1, Ordering::Relaxed) + 1;
        let mixed = (count << 32 ^ self.machine.boot).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(mixed ^ mixed >> 29)
    }

    fn file_bytes(&self) -> u64 {
        self.image.file_bytes.load(Ordering::Acquire)
    }

    fn view(&self) -> Span {
        self.image.view.span()
    }

    fn window(&self, kind: WindowKind) -> Span {
        self.image.windows[kind.number()].span()
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        self.call()?;
        self.image.view.commit(bytes)?;
        self.image.file_bytes.fetch_max(bytes, Ordering::AcqRel);
        Ok(())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.call()?;
        let before = self.file_bytes();
        assert!(bytes <= before);
        // What comes back when the file grows again is zero.
        self.write(bytes, &vec![0; (before - bytes) as usize]);
        self.image.file_bytes.store(bytes, Ordering::Release);
        Ok(())
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.call()?;
        self.write(offset, &vec![0; bytes as usize]);
        Ok(())
    }

    fn map_piece(&self, kind: WindowKind, at: u64, bytes: u64, backing: Backing) -> io::Result<()> {
        self.call()?;
        let window = &self.image.windows[kind.number()];
        window.commit(at + bytes)?;
        let mut pieces = lock(&self.image.pieces);
        pieces.retain(|piece| (piece.kind, piece.at) != (kind, at));
        match backing {
            Backing::File(offset) => {
                copy_to(window.span(), at, &copy_from(self.view(), offset, bytes));
                pieces.push(MappedPiece { kind, at, bytes, offset });
            }
            Backing::Private => copy_to(window.span(), at, &vec![0; bytes as usize]),
        }
        Ok(())
    }

    fn forget_pieces(&self) {
        lock(&self.image.pieces).retain(|piece| piece.kind == WindowKind::Live);
    }

    fn open_tail(&self, offset: u64, bytes: u64, used_bytes: u64) -> io::Result<Tail> {
        self.call()?;
        assert!(offset + bytes <= self.file_bytes());
        let base = self.view().base.wrapping_add(offset as usize);
        // SAFETY: committed memory of this storage; only the log stores to the segment.
        Ok(unsafe { Tail::new(base, bytes, used_bytes, None) })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.call() {
            // What fails may have been written in part.
            self.write(offset, &bytes[..bytes.len() / 2]);
            return Err(error);
        }
        self.write(offset, bytes);
        Ok(())
    }

    fn write_zeros(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; bytes as usize])
    }

    fn sync_range(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.call()?;
        let memory = self.image.file();
        let mut durable = lock(&self.machine.durable);
        let end = memory.len().max(durable.len());
        durable.resize(end, 0);
        let range = offset as usize..(offset + bytes) as usize;
        durable[range.clone()].copy_from_slice(&memory[range]);
        Ok(())
    }
}
