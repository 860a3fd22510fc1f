//! Whether a handle can still promise anything: the first failure after which it cannot.
//!
//! A sync that fails may have lost what it covered, although a later one succeeds. A device or a file system
//! that fails a write may refuse the page of the next store through a mapping, which is a signal. So
//! after either, changes and syncs are refused, and nothing is stored to the file any more.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// The health of a handle, which its threads share.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Whether there is a failure, for those who do not want the lock.
    has_failed: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Health {
    /// Notes a failure. The first one counts.
    pub(crate) fn fail(&self, error: &Error) {
        let reason = match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.has_failed.store(true, Ordering::Release);
    }

    /// Notes a call that failed, if it tells that the device or the file system has.
    pub(crate) fn note_call(&self, error: &Error) {
        if let Error::Io { source, .. } = error
            && is_of_device(source)
        {
            self.fail(error);
        }
    }

    /// Returns the first failure as an error, if there was one.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.has_failed.load(Ordering::Acquire) { Err(self.poisoned()) } else { Ok(()) }
    }

    #[cold]
    fn poisoned(&self) -> Error {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        Error::Poisoned { reason: failure.clone().unwrap_or_default() }
    }
}

/// Returns whether an error tells of a device or a file system that failed, and not of too little
/// room or of a call that the system does not have.
fn is_of_device(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let of_device = [
        Errno::IO,
        Errno::NXIO,
        Errno::NODEV,
        Errno::ROFS,
        Errno::SHUTDOWN,
        Errno::STALE,
        Errno::UCLEAN,
    ];
    error.raw_os_error().is_some_and(|code| of_device.contains(&Errno::from_raw_os_error(code)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn failed(code: i32) -> Error {
        let source = io::Error::from_raw_os_error(code);
        Error::Io { action: "write to", path: "a.spt".into(), source }
    }

    #[test]
    fn a_device_that_fails_ends_all_promises_and_a_full_disk_none() {
        let health = Health::default();
        let (enospc, edquot, efbig, eintr) = (28, 122, 27, 4);
        for code in [enospc, edquot, efbig, eintr] {
            health.note_call(&failed(code));
            assert!(health.check().is_ok(), "{code}");
        }
        health.note_call(&failed(5));
        health.note_call(&failed(30));
        let Err(Error::Poisoned { reason }) = health.check() else { panic!("it has failed") };
        assert!(reason.starts_with("cannot write to `a.spt`: Input/output error"), "{reason}");
    }
}
