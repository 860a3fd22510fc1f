//! `Health`: the first failure after which a handle can no longer keep its promises.
//!
//! A failed sync may have lost the data that it covered, even if a later sync succeeds. After a
//! failed write, the device or the file system may also fail the next page fault of a mapping,
//! which raises a signal. So after either failure, changes and syncs are refused, and nothing more
//! is stored to the file.

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
        let reason = match error {
            Error::Poisoned { reason } => reason.clone(),
            _ => format!("an earlier call failed: {error}"),
        };
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.has_failed.store(true, Ordering::Release);
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn the_first_failure_is_the_reason_for_ever() {
        let health = Health::default();
        assert!(health.check().is_ok());
        for code in [5, 30] {
            let source = io::Error::from_raw_os_error(code);
            health.fail(&Error::Io { action: "write to", path: "a.spt".into(), source });
        }
        let Err(Error::Poisoned { reason }) = health.check() else { panic!("it has failed") };
        let first = "an earlier call failed: cannot write to `a.spt`: Input/output error";
        assert!(reason.starts_with(first), "{reason}");
    }
}
