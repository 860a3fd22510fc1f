//! Creates and opens tables, with the parameters of db 1.85.

use std::path::Path;

use splitpoint::hash::HashFunction;
use splitpoint::{Create, Error, Result, SharedFile, Unsupported};

use super::addresses::{OverflowAddr, Shape};
use super::disk::{Disk, FileDisk};
use super::extent::needed_end;
use super::header::{FILL_FACTOR_UNDECIDED, Header, PAGE_BYTES_MAX};
use super::overflow::{Bits, Overflow};
use super::pool::Pool;
use super::store::{Store, missing_pages, probe_hash};
use super::table::Db185;
use crate::ByteOrder;

/// Default cache, in bytes.
const CACHE_BYTES_DEFAULT: usize = 64 << 10;
/// Default page, in bytes.
const PAGE_BYTES_DEFAULT: u32 = 4096;
/// Smallest page of a new table, in bytes.
const PAGE_BYTES_MIN: u32 = 64;

/// Parameters of a table: build them, then [`open`](Self::open) a file or create a table
/// [`in_memory`](Self::in_memory).
///
/// Every parameter has a default. An existing file keeps its page size, fill factor and byte order.
///
/// # Examples
///
/// ```
/// use splitpoint::TableExt;
/// use splitpoint_legacy::db185::Options;
///
/// # fn main() -> splitpoint::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let path = dir.path().join("words.db");
/// let table = Options::new().page_bytes(512).fill_factor(8).open(&path)?;
/// table.put("key", "value")?;
/// table.close()?;
/// let table = Options::new().read_only().open(&path)?;
/// assert_eq!(table.get("key")?.expect("it was stored"), "value");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    page_bytes: u32,
    fill_factor: Option<u32>,
    expected_records: u64,
    cache_bytes: usize,
    byte_order: ByteOrder,
    hash: Option<HashFunction>,
    is_read_only: bool,
    is_any_hash: bool,
    create: Create,
    file_mode: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Returns the defaults of the package: pages of 4096 bytes, the fill factor that of the first
    /// bucket that overflows, 64 KiB of cache, its own hash function, and this machine's byte
    /// order; read and write, create if missing.
    pub fn new() -> Self {
        Self {
            page_bytes: PAGE_BYTES_DEFAULT,
            fill_factor: None,
            expected_records: 1,
            cache_bytes: CACHE_BYTES_DEFAULT,
            byte_order: if cfg!(target_endian = "big") {
                ByteOrder::Big
            } else {
                ByteOrder::Little
            },
            hash: None,
            is_read_only: false,
            is_any_hash: false,
            create: Create::IfMissing,
            file_mode: 0o666,
        }
    }

    /// Sets the bytes of a page of a new table, 64 to 32768, rounded up to a power of two:
    /// `bsize`.
    #[must_use]
    pub fn page_bytes(mut self, bytes: u32) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// Sets the mean number of keys per bucket of a new table above which one bucket is split:
    /// `ffactor`.
    #[must_use]
    pub fn fill_factor(mut self, keys_per_bucket: u32) -> Self {
        self.fill_factor = Some(keys_per_bucket);
        self
    }

    /// Sets the expected number of records of a new table, 1 by default: `nelem`.
    ///
    /// It has an effect only together with a [fill factor](Self::fill_factor).
    #[must_use]
    pub fn expected_records(mut self, records: u64) -> Self {
        self.expected_records = records;
        self
    }

    /// Sets the bytes of pages to keep in memory, 64 KiB by default and at least six pages:
    /// `cachesize`. Changed pages beyond it go to a temporary file until the next sync.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Sets the byte order of the pages of a new table: `lorder`.
    #[must_use]
    pub fn byte_order(mut self, order: ByteOrder) -> Self {
        self.byte_order = order;
        self
    }

    /// Sets the hash function of the file, [`HashFunction::x33`] by default. The table uses 32 bits
    /// of its results.
    #[must_use]
    pub fn hash(mut self, function: HashFunction) -> Self {
        self.hash = Some(function);
        self
    }

    /// Opens for reading only. The file must exist, and the library does not write it.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self.create = Create::Never;
        self
    }

    /// Opens for reading only, even if the hash function of the file is unknown. A scan returns all
    /// of it, and a get searches it from the start.
    #[must_use]
    pub fn any_hash(mut self) -> Self {
        self.is_any_hash = true;
        self.read_only()
    }

    /// Sets the mode of a new file, before the umask; 0o666 by default.
    #[must_use]
    pub fn file_mode(mut self, mode: u32) -> Self {
        self.file_mode = mode;
        self
    }

    /// Sets what to do with a file that exists or does not.
    #[must_use]
    pub fn create(mut self, create: Create) -> Self {
        self.create = create;
        self
    }

    /// Opens or creates the table in the file at `path`.
    ///
    /// A new file is empty until the first sync.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotAStore`](splitpoint::ErrorKind::NotAStore),
    ///   [`Version`](splitpoint::ErrorKind::Version),
    ///   [`Unsupported`](splitpoint::ErrorKind::Unsupported) or
    ///   [`Corrupt`](splitpoint::ErrorKind::Corrupt) if the file is something else or its header
    ///   is damaged; also `Corrupt` if it is to be changed and was cut short, and `Unsupported` if
    ///   the last program to write it has left it in a state that a change would harm.
    /// - [`ErrorKind::HashMismatch`](splitpoint::ErrorKind::HashMismatch) if it was created with
    ///   another hash function.
    /// - [`ErrorKind::Locked`](splitpoint::ErrorKind::Locked) if another handle has it open.
    /// - [`ErrorKind::Invalid`](splitpoint::ErrorKind::Invalid) if a parameter cannot be used.
    /// - [`ErrorKind::Io`](splitpoint::ErrorKind::Io) if a system call fails.
    ///
    /// # Cost
    ///
    /// Reads the header and the bitmaps. After a crash, a pass over the file if it is to be
    /// changed.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Db185> {
        self.page_size()?;
        let disk = FileDisk::open(path.as_ref(), self.create, self.is_read_only, self.file_mode)?;
        self.open_disk(Box::new(disk)).map(Db185::new)
    }

    /// Opens the table in a file that the program shares, or makes one there if the file is empty.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_shared(&self, file: &SharedFile) -> Result<Db185> {
        self.page_size()?;
        self.open_disk(Box::new(FileDisk::share(file)?)).map(Db185::new)
    }

    /// Creates an empty table in memory. Pages beyond the cache go to a temporary file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](splitpoint::ErrorKind::Invalid) if a parameter cannot be used.
    pub fn in_memory(&self) -> Result<Db185> {
        let header = self.new_header()?;
        let pool = Pool::new(None, header.shape.page_bytes as usize, self.cache_bytes);
        Ok(Db185::new(self.new_table(pool, header)))
    }

    pub(super) fn open_disk(&self, disk: Box<dyn Disk>) -> Result<Store> {
        if disk.file_bytes() == 0 && !self.is_read_only {
            let header = self.new_header()?;
            let pool = Pool::new(Some(disk), header.shape.page_bytes as usize, self.cache_bytes);
            return Ok(self.new_table(pool, header));
        }
        let mut bytes = [0; Header::BYTES];
        disk.read_at(0, &mut bytes)?;
        let header = Header::decode(&bytes, disk.path())?;
        let hash = self.hash_function();
        let hash = if probe_hash(&hash) == header.probe_hash {
            Some(hash)
        } else if self.is_any_hash {
            None
        } else {
            return Err(mismatch(&hash, &header));
        };
        let overflow = read_bitmaps(&*disk, &header);
        let file_end = disk.file_bytes() / u64::from(header.shape.page_bytes);
        let pool = Pool::new(Some(disk), header.shape.page_bytes as usize, self.cache_bytes);
        let mut store = Store::new(pool, header, hash);
        match overflow {
            Ok(overflow) => store.overflow = overflow,
            Err(error) if !self.is_read_only => return Err(error),
            // A reader does not need the free pages.
            Err(_) => {}
        }
        if self.is_read_only {
            store.file_end = Some(file_end);
        } else {
            prepare_to_change(&mut store, file_end)?;
        }
        Ok(store)
    }

    /// Opens the file at `path` to read it, with `header` in place of its own.
    pub(super) fn open_with_header(
        &self,
        path: &Path,
        header: Header,
        hash: Option<HashFunction>,
    ) -> Result<Store> {
        let disk = Box::new(FileDisk::open(path, Create::Never, true, 0)?);
        let overflow = read_bitmaps(&*disk, &header);
        let file_end = disk.file_bytes() / u64::from(header.shape.page_bytes);
        let pool = Pool::new(Some(disk), header.shape.page_bytes as usize, self.cache_bytes);
        let mut store = Store::new(pool, header, hash);
        store.file_end = Some(file_end);
        store.overflow = overflow.unwrap_or_default();
        Ok(store)
    }

    fn hash_function(&self) -> HashFunction {
        self.hash.clone().unwrap_or_else(HashFunction::x33)
    }

    fn page_size(&self) -> Result<u32> {
        if self.page_bytes > PAGE_BYTES_MAX {
            let reason = format!(
                "{} bytes are more than {PAGE_BYTES_MAX}, the most that the format has offsets for",
                self.page_bytes
            );
            return Err(Error::Invalid { what: "page size", reason });
        }
        if self.fill_factor == Some(0) {
            let reason = "0 is not a number of keys per bucket".to_string();
            return Err(Error::Invalid { what: "fill factor", reason });
        }
        Ok(self.page_bytes.max(PAGE_BYTES_MIN).next_power_of_two())
    }

    fn new_header(&self) -> Result<Header> {
        let page_bytes = self.page_size()?;
        let fill_factor = self.fill_factor.unwrap_or(FILL_FACTOR_UNDECIDED);
        let bucket_count = self.expected_records.saturating_sub(1) / u64::from(fill_factor) + 1;
        Ok(Header {
            byte_order: self.byte_order,
            last_freed: 0,
            fill_factor,
            record_count: 0,
            probe_hash: probe_hash(&self.hash_function()),
            is_interrupted: false,
            shape: Shape::new(page_bytes, Header::pages(page_bytes), bucket_count),
        })
    }

    fn new_table(&self, pool: Pool, header: Header) -> Store {
        let mut store = Store::new(pool, header, Some(self.hash_function()));
        store.overflow = Overflow::new(&store.shape);
        store.synced_max_bucket = None;
        store.record_count = Some(0);
        store.is_read_only = false;
        store.is_changed = true;
        store
    }
}

fn mismatch(hash: &HashFunction, header: &Header) -> Error {
    Error::HashMismatch {
        expected: format!("that maps the probe key to {:#010x}", header.probe_hash),
        found: format!("{}, which maps it to {:#010x}", hash.name(), probe_hash(hash)),
    }
}

fn read_bitmaps(disk: &dyn Disk, header: &Header) -> Result<Overflow> {
    let shape = &header.shape;
    let mut pages = Vec::new();
    for (page, addr) in shape.bitmaps[..shape.bitmap_count() as usize].iter().enumerate() {
        let addr = OverflowAddr(*addr);
        let number = shape.overflow_index(addr).and_then(|_| shape.overflow_page(addr));
        let number = number.ok_or(Error::Corrupt {
            what: "overflow address of a bitmap",
            offset: 196 + 2 * page as u64,
            expected: shape.overflow_count().into(),
            found: addr.0.into(),
        })?;
        let mut bytes = vec![0; shape.page_bytes as usize];
        disk.read_at(number * u64::from(shape.page_bytes), &mut bytes)?;
        pages.push(bytes);
    }
    Ok(Overflow::decode(shape, header.byte_order, &pages))
}

/// Checks that a change will not harm existing records.
///
/// A file that lacks pages was cut short, and the next sync would overwrite the numbers that reveal
/// it. A file that is longer than its header states is left over from a crash. If the header is
/// older than the pages, as the original leaves it, pages that it marks as free are in use. The
/// same may hold for a damaged file with free pages, so we walk the chains before we allocate any.
fn prepare_to_change(store: &mut Store, file_end: u64) -> Result<()> {
    store.is_read_only = false;
    let needed = needed_end(&store.shape);
    if file_end < needed {
        return Err(missing_pages(needed, file_end));
    }
    if store.is_interrupted {
        return store.finish_interrupted_sync();
    }
    let is_longer = store.pool.end() > store.shape.page_end();
    let is_whole = file_end >= store.shape.page_end();
    if !is_longer && is_whole && store.overflow.free_count() == 0 {
        return Ok(());
    }
    let used = store.used_overflow_pages();
    if let Ok(used) = &used {
        let last = (0..store.shape.overflow_count()).rev().find(|index| used.contains(*index));
        let last =
            last.and_then(|index| store.shape.overflow_page(store.shape.overflow_addr(index)));
        if let Some(last) = last.filter(|last| *last >= file_end) {
            return Err(missing_pages(last + 1, file_end));
        }
    }
    let is_marked = |used: Bits| {
        let mut all = 0..store.shape.overflow_count();
        all.all(|index| !used.contains(index) || store.overflow.is_needed(index))
    };
    match used.map(is_marked) {
        Ok(true) => Ok(()),
        Ok(false) | Err(Error::Corrupt { .. }) => Err(Error::Unsupported {
            path: store.pool.disk().map(|disk| disk.path().to_path_buf()).unwrap_or_default(),
            feature: Unsupported::Other,
            reason: if is_longer {
                "the last program that changed it did not close it, and a change could destroy \
                 records: convert it, which only reads"
            } else {
                "pages that its bitmaps mark as free are in use or may be, and a change could \
                 destroy their records: convert it, which only reads"
            }
            .to_string(),
        }),
        Err(error) => Err(error),
    }
}
