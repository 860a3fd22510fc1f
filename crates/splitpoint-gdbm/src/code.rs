//! The error numbers of gdbm, their texts, and the one of this thread.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

use splitpoint::{Error, ErrorKind};
use splitpoint_ffi::errno_of;

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) c_int);

/// Declares the numbers in order, with their texts and whether `errno` tells more.
macro_rules! codes {
    ($($name:ident $text:literal $has_errno:literal,)*) => {
        #[expect(non_camel_case_types, reason = "as in the header")]
        #[derive(Clone, Copy)]
        enum Number { $($name,)* }

        #[expect(dead_code, reason = "all numbers")]
        impl Code {
            $(pub(crate) const $name: Self = Self(Number::$name as c_int);)*
        }

        const TEXTS: &[&CStr] = &[$($text,)*];
        const HAS_ERRNO: &[c_int] = &[$($has_errno,)*];
    };
}

codes! {
    NO_ERROR c"No error" 0,
    MALLOC_ERROR c"Malloc error" 0,
    BLOCK_SIZE_ERROR c"Block size error" 0,
    FILE_OPEN_ERROR c"File open error" 1,
    FILE_WRITE_ERROR c"File write error" 1,
    FILE_SEEK_ERROR c"File seek error" 1,
    FILE_READ_ERROR c"File read error" 1,
    BAD_MAGIC_NUMBER c"Bad magic number" 0,
    EMPTY_DATABASE c"Empty database" 0,
    CANT_BE_READER c"Can't be reader" 0,
    CANT_BE_WRITER c"Can't be writer" 0,
    READER_CANT_DELETE c"Reader can't delete" 0,
    READER_CANT_STORE c"Reader can't store" 0,
    READER_CANT_REORGANIZE c"Reader can't reorganize" 0,
    UNKNOWN_ERROR c"Unknown error" 0,
    ITEM_NOT_FOUND c"Item not found" 0,
    REORGANIZE_FAILED c"Reorganize failed" 0,
    CANNOT_REPLACE c"Cannot replace" 0,
    MALFORMED_DATA c"Malformed data" 0,
    OPT_ALREADY_SET c"Option already set" 0,
    OPT_BADVAL c"Bad option value" 0,
    BYTE_SWAPPED c"File of the other byte order" 0,
    BAD_FILE_OFFSET c"File with another size of offsets" 0,
    BAD_OPEN_FLAGS c"Bad file flags" 0,
    FILE_STAT_ERROR c"Cannot stat file" 1,
    FILE_EOF c"Unexpected end of file" 0,
    NO_DBNAME c"Database name not given" 0,
    ERR_FILE_OWNER c"Cannot set the owner of the file" 0,
    ERR_FILE_MODE c"Cannot set the mode of the file" 0,
    NEED_RECOVERY c"Database needs recovery" 0,
    BACKUP_FAILED c"Cannot make a backup copy" 1,
    DIR_OVERFLOW c"Bucket directory overflow" 0,
    BAD_BUCKET c"Damaged bucket" 0,
    BAD_HEADER c"Damaged file header" 0,
    BAD_AVAIL c"Damaged table of free space" 0,
    BAD_HASH_TABLE c"Damaged hash table" 0,
    BAD_DIR_ENTRY c"Damaged directory entry" 0,
    FILE_CLOSE_ERROR c"Error closing file" 1,
    FILE_SYNC_ERROR c"Error synchronizing file" 1,
    FILE_TRUNCATE_ERROR c"Error truncating file" 1,
    BUCKET_CACHE_CORRUPTED c"Damaged cache of buckets" 0,
    BAD_HASH_ENTRY c"Damaged hash entry" 0,
    ERR_SNAPSHOT_CLONE c"Reflink failed" 1,
    ERR_REALPATH c"Cannot find the real path of a file" 1,
    ERR_USAGE c"Function usage error" 1,
}

/// How many numbers there are.
pub(crate) const COUNT: usize = TEXTS.len();

/// Pointers for C to the texts of all numbers.
#[derive(Debug)]
#[repr(transparent)]
pub struct Texts([*const c_char; COUNT]);

// SAFETY: they lead to constants.
unsafe impl Sync for Texts {}

impl Texts {
    /// The texts, in order.
    pub(crate) const ALL: Self = {
        let mut texts = [std::ptr::null(); COUNT];
        let mut i = 0;
        while i < COUNT {
            texts[i] = TEXTS[i].as_ptr();
            i += 1;
        }
        Self(texts)
    };
}

/// For each number, 1 if `errno` tells more, else 0.
pub(crate) const fn has_errno_table() -> [c_int; COUNT] {
    let mut table = [0; COUNT];
    let mut i = 0;
    while i < COUNT {
        table[i] = HAS_ERRNO[i];
        i += 1;
    }
    table
}

impl Code {
    /// Returns its text, which is that of an unknown error for a number without one.
    pub(crate) fn text(self) -> &'static CStr {
        let number = usize::try_from(self.0).ok();
        number.and_then(|i| TEXTS.get(i)).copied().unwrap_or(c"Unknown error code")
    }

    /// Returns whether an `errno` comes with it.
    pub(crate) fn has_errno(self) -> bool {
        let number = usize::try_from(self.0).ok();
        number.and_then(|i| HAS_ERRNO.get(i)).is_some_and(|&has| has != 0)
    }
}

thread_local! {
    static CURRENT: Cell<c_int> = const { Cell::new(0) };
}

/// Returns the place of this thread's `gdbm_errno`.
pub(crate) fn place() -> *mut c_int {
    CURRENT.with(Cell::as_ptr)
}

/// Sets this thread's `gdbm_errno`.
pub(crate) fn set_current(code: Code) {
    CURRENT.set(code.0);
}

/// Why a call fails: the number of gdbm and the one of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) errno: c_int,
    /// Whether the handle cannot be used any more.
    pub(crate) is_fatal: bool,
}

impl Failure {
    /// Returns a failure with the `errno` that fits the number.
    pub(crate) fn of(code: Code) -> Self {
        let errno = match code {
            Code::ITEM_NOT_FOUND => libc::ENOENT,
            Code::CANNOT_REPLACE => libc::EEXIST,
            Code::CANT_BE_READER | Code::CANT_BE_WRITER => libc::EAGAIN,
            Code::READER_CANT_STORE | Code::READER_CANT_DELETE | Code::READER_CANT_REORGANIZE => {
                libc::EPERM
            }
            Code::MALLOC_ERROR => libc::ENOMEM,
            Code::NEED_RECOVERY => libc::EIO,
            _ => libc::EINVAL,
        };
        Self::new(code, errno)
    }

    pub(crate) fn new(code: Code, errno: c_int) -> Self {
        Self { code, errno, is_fatal: false }
    }

    /// Returns the failure of an open, as a writer or as a reader.
    pub(crate) fn of_open(error: &Error, is_writer: bool) -> Self {
        use splitpoint::FileKind;
        let code = match error {
            Error::NotAStore { found: FileKind::Directory, .. } => {
                return Self::new(Code::FILE_OPEN_ERROR, libc::EISDIR);
            }
            Error::NotAStore { found: FileKind::Empty, .. } => Code::EMPTY_DATABASE,
            Error::NotAStore { found, .. } if !found.is_regular() => Code::FILE_OPEN_ERROR,
            _ => match error.kind() {
                ErrorKind::NotAStore | ErrorKind::Version | ErrorKind::HashMismatch => {
                    Code::BAD_MAGIC_NUMBER
                }
                ErrorKind::Corrupt => Code::BAD_HEADER,
                ErrorKind::Locked if is_writer => Code::CANT_BE_WRITER,
                ErrorKind::Locked => Code::CANT_BE_READER,
                _ => Code::FILE_OPEN_ERROR,
            },
        };
        Self::new(code, errno_of(error))
    }

    /// Returns the failure of a read of an open database.
    pub(crate) fn of_read(error: &Error) -> Self {
        Self::of_use(error, Code::FILE_READ_ERROR)
    }

    /// Returns the failure of a change.
    pub(crate) fn of_write(error: &Error) -> Self {
        Self::of_use(error, Code::FILE_WRITE_ERROR)
    }

    /// Returns the failure of a sync or a close.
    pub(crate) fn of_sync(error: &Error) -> Self {
        Self::of_use(error, Code::FILE_SYNC_ERROR)
    }

    fn of_use(error: &Error, of_system: Code) -> Self {
        let kind = error.kind();
        let code = match kind {
            ErrorKind::Corrupt => Code::BAD_BUCKET,
            ErrorKind::Poisoned => Code::NEED_RECOVERY,
            ErrorKind::TooLarge => Code::MALFORMED_DATA,
            ErrorKind::ReadOnly => Code::READER_CANT_STORE,
            _ => of_system,
        };
        let errno = errno_of(error);
        let is_fatal = kind == ErrorKind::Poisoned || errno == libc::EBADF;
        Self { code, errno, is_fatal }
    }

    /// Returns the failure of a call of the system about the file.
    pub(crate) fn of_io(code: Code, error: &std::io::Error) -> Self {
        Self::new(code, error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// What a call returns inside.
pub(crate) type Outcome<T> = Result<T, Failure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_gdbm_1_23() {
        assert_eq!(COUNT, 45);
        for (code, number) in [
            (Code::CANT_BE_READER, 9),
            (Code::ITEM_NOT_FOUND, 15),
            (Code::OPT_BADVAL, 20),
            (Code::NEED_RECOVERY, 29),
            (Code::FILE_CLOSE_ERROR, 37),
            (Code::ERR_USAGE, 44),
        ] {
            assert_eq!(code.0, number);
        }
        let with_errno: Vec<c_int> = (0..50).filter(|&n| Code(n).has_errno()).collect();
        assert_eq!(with_errno, [3, 4, 5, 6, 24, 30, 37, 38, 39, 42, 43, 44]);
        assert_eq!(Code(-1).text(), Code(45).text());
        assert_eq!(Code::ITEM_NOT_FOUND.text(), c"Item not found");
    }
}
