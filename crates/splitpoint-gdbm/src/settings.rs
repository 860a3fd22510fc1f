//! `gdbm_setopt`: what a program may set, and ask for. Most settings are of the original's buffers; they
//! are checked and remembered, since programs read them back.

use std::ffi::{c_int, c_void};
use std::mem::size_of;

use splitpoint_ffi::malloc_copy;

use crate::code::{Code, Failure, Outcome};
use crate::database::Database;
use crate::flags;

const SET_CACHE_SIZE: c_int = 1;
const SET_FAST_MODE: c_int = 2;
const SET_SYNC_MODE: c_int = 3;
const SET_CENTRAL_FREE: c_int = 4;
const SET_COALESCE: c_int = 5;
const SET_MAP_SIZE: c_int = 6;
const SET_MAP: c_int = 7;
const GET_FLAGS: c_int = 8;
const GET_MAP: c_int = 9;
const GET_CACHE_SIZE: c_int = 10;
const GET_SYNC_MODE: c_int = 11;
const GET_CENTRAL_FREE: c_int = 12;
const GET_COALESCE: c_int = 13;
const GET_MAP_SIZE: c_int = 14;
const GET_NAME: c_int = 15;
const GET_BLOCK_SIZE: c_int = 16;
const GET_FORMAT: c_int = 17;
const GET_DIRECTORY_DEPTH: c_int = 18;
const GET_BUCKET_SIZE: c_int = 19;
const GET_CACHE_AUTO: c_int = 20;
const SET_CACHE_AUTO: c_int = 21;

/// Buckets that the original keeps at first.
const CACHE_SIZE_MIN: usize = 4;
/// Bytes of the header of the original's bucket, and of each of its elements.
const BUCKET_BYTES: (c_int, c_int) = (112, 24);

/// The settings of a handle.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Settings {
    flags: c_int,
    /// Whether each change is durable before its call returns.
    pub(crate) is_synchronous: bool,
    cache_size: usize,
    is_cache_automatic: bool,
    coalesces: bool,
    map_bytes_max: usize,
    is_mapped: bool,
}

impl Settings {
    /// Returns those of a handle that was opened with such flags.
    pub(crate) fn of_open(flags: c_int) -> Self {
        Self {
            flags,
            is_synchronous: flags & flags::SYNC != 0,
            cache_size: CACHE_SIZE_MIN,
            is_cache_automatic: true,
            coalesces: false,
            map_bytes_max: usize::MAX,
            is_mapped: flags & flags::NOMMAP == 0,
        }
    }
}

/// A value that a program passes for an option, or the place for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    at: *mut c_void,
    bytes: usize,
}

impl Place {
    /// Takes the pointer and the size that a program passes.
    ///
    /// # Safety
    ///
    /// The pointer is null or leads to that many bytes, aligned for a value of that size.
    pub(crate) unsafe fn new(at: *mut c_void, bytes: c_int) -> Self {
        Self { at, bytes: usize::try_from(bytes).unwrap_or(0) }
    }

    fn expect<T>(self) -> Outcome<*mut T> {
        if self.at.is_null() || self.bytes != size_of::<T>() {
            return Err(Failure::of(Code::OPT_BADVAL));
        }
        Ok(self.at.cast())
    }

    fn switch(self) -> Outcome<bool> {
        let at = self.expect::<c_int>()?;
        // SAFETY: `new` was promised a value of that size.
        match unsafe { at.read() } {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Failure::of(Code::OPT_BADVAL)),
        }
    }

    fn set_int(self, value: c_int) -> Outcome<()> {
        let at = self.expect::<c_int>()?;
        // SAFETY: `new` was promised room for a value of that size.
        unsafe { at.write(value) };
        Ok(())
    }

    /// Reads a size: an `int` or a `size_t`.
    fn size(self) -> Outcome<usize> {
        if let Ok(at) = self.expect::<c_int>() {
            // SAFETY: `new` was promised a value of that size.
            let value = unsafe { at.read() };
            return usize::try_from(value).map_err(|_| Failure::of(Code::OPT_BADVAL));
        }
        let at = self.expect::<usize>()?;
        // SAFETY: as above.
        Ok(unsafe { at.read() })
    }

    fn set_size(self, value: usize) -> Outcome<()> {
        if let Ok(at) = self.expect::<c_int>() {
            // SAFETY: `new` was promised room for a value of that size.
            unsafe { at.write(c_int::try_from(value).unwrap_or(c_int::MAX)) };
            return Ok(());
        }
        let at = self.expect::<usize>()?;
        // SAFETY: as above.
        unsafe { at.write(value) };
        Ok(())
    }

    fn set_pointer(self, value: *mut c_void) -> Outcome<()> {
        let at = self.expect::<*mut c_void>()?;
        // SAFETY: `new` was promised room for a value of that size.
        unsafe { at.write(value) };
        Ok(())
    }
}

impl Database {
    /// Sets an option, or stores its value at a place.
    pub(crate) fn set_option(&mut self, option: c_int, place: Place) -> Outcome<()> {
        let settings = &mut self.settings;
        match option {
            SET_CACHE_SIZE => {
                let size = place.size()?.max(CACHE_SIZE_MIN);
                let size = size.checked_next_power_of_two();
                settings.cache_size = size.ok_or_else(|| Failure::of(Code::OPT_BADVAL))?;
                settings.is_cache_automatic = false;
            }
            SET_FAST_MODE => settings.is_synchronous = !place.switch()?,
            SET_SYNC_MODE => settings.is_synchronous = place.switch()?,
            SET_CENTRAL_FREE => drop(place.switch()?),
            SET_COALESCE => settings.coalesces = place.switch()?,
            SET_MAP_SIZE => {
                settings.map_bytes_max = match place.size()? {
                    // Without a limit again.
                    0 => usize::MAX,
                    bytes => whole_pages(bytes),
                }
            }
            SET_MAP => settings.is_mapped = place.switch()?,
            SET_CACHE_AUTO => settings.is_cache_automatic = place.switch()?,
            _ => return self.get_option(option, place),
        }
        Ok(())
    }

    fn get_option(&self, option: c_int, place: Place) -> Outcome<()> {
        let Settings { is_cache_automatic, coalesces, is_mapped, is_synchronous, .. } =
            self.settings;
        match option {
            GET_FLAGS => place.set_int(self.flags()),
            GET_MAP => place.set_int(is_mapped.into()),
            GET_CACHE_SIZE => place.set_size(self.settings.cache_size),
            GET_SYNC_MODE => place.set_int(is_synchronous.into()),
            GET_CENTRAL_FREE => place.set_int(0),
            GET_COALESCE => place.set_int(coalesces.into()),
            GET_MAP_SIZE => {
                let at = place.expect::<usize>()?;
                // SAFETY: `new` was promised room for a value of that size.
                unsafe { at.write(self.settings.map_bytes_max) };
                Ok(())
            }
            GET_NAME => {
                place.expect::<*mut c_void>()?;
                let name = malloc_copy(self.name.as_bytes_with_nul());
                if name.is_null() {
                    return Err(Failure::of(Code::MALLOC_ERROR));
                }
                place.set_pointer(name)
            }
            GET_BLOCK_SIZE => place.set_int(self.block_size()),
            GET_FORMAT => {
                place.set_int(if self.head.sync_count.is_some() { flags::NUMSYNC } else { 0 })
            }
            // As many as address the entries that a block has room for.
            GET_DIRECTORY_DEPTH => place.set_int((self.block_size() / 8).ilog2().cast_signed()),
            GET_BUCKET_SIZE => {
                let (head, element) = BUCKET_BYTES;
                place.set_int((self.block_size() - head) / element)
            }
            GET_CACHE_AUTO => place.set_int(is_cache_automatic.into()),
            _ => Err(Failure::of(Code::OPT_BADVAL)),
        }
    }

    /// Returns the mode and the flags of the open, as far as they say how it is by now.
    fn flags(&self) -> c_int {
        let Settings { flags: asked, is_mapped, is_synchronous, .. } = self.settings;
        let of = |is_on, flag| if is_on { flag } else { 0 };
        asked & (flags::OPEN_MASK | flags::NOLOCK | flags::CLOEXEC)
            | asked & of(is_mapped, flags::PREREAD)
            | of(!is_mapped, flags::NOMMAP)
            | of(is_synchronous, flags::SYNC)
            | of(self.head.sync_count.is_some(), flags::NUMSYNC)
    }

    fn block_size(&self) -> c_int {
        c_int::try_from(self.head.block_bytes).unwrap_or(c_int::MAX)
    }
}

fn whole_pages(bytes: usize) -> usize {
    // SAFETY: the call has no conditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).unwrap_or(4096);
    bytes.checked_next_multiple_of(page).unwrap_or(usize::MAX)
}
