//! The flags of gdbm.h: how a database is opened, and what is done with it.

use std::ffi::c_int;

pub(crate) const READER: c_int = 0;
pub(crate) const WRITER: c_int = 1;
pub(crate) const WRCREAT: c_int = 2;
pub(crate) const NEWDB: c_int = 3;
pub(crate) const OPEN_MASK: c_int = 7;

pub(crate) const SYNC: c_int = 0x20;
pub(crate) const NOLOCK: c_int = 0x40;
pub(crate) const NOMMAP: c_int = 0x80;
pub(crate) const CLOEXEC: c_int = 0x100;
pub(crate) const BSEXACT: c_int = 0x200;
pub(crate) const CLOERROR: c_int = 0x400;
pub(crate) const PREREAD: c_int = 0x1000;
pub(crate) const NUMSYNC: c_int = 0x2000;

/// Of a store: replace an old value.
pub(crate) const REPLACE: c_int = 1;

/// Formats of a dump.
pub(crate) const DUMP_BINARY: c_int = 0;
pub(crate) const DUMP_ASCII: c_int = 1;

/// What a load leaves as it is: the mode and the owner of the file.
pub(crate) const META_MASK_MODE: c_int = 1;
pub(crate) const META_MASK_OWNER: c_int = 2;

/// Of a recovery: what the caller has set, a backup, and a recovery of what is sound.
pub(crate) const RECOVER_ERRFUN: c_int = 1;
pub(crate) const RECOVER_MAX_FAILED_KEYS: c_int = 2;
pub(crate) const RECOVER_MAX_FAILED_BUCKETS: c_int = 4;
pub(crate) const RECOVER_MAX_FAILURES: c_int = 8;
pub(crate) const RECOVER_BACKUP: c_int = 0x10;
pub(crate) const RECOVER_FORCE: c_int = 0x20;
