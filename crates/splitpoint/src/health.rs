//! Whether a handle can still promise anything: the first failure after which it cannot.
//!
//! A sync that fails may have lost what it covered, although a later one succeeds. A device or a file system
//! that fails a write may refuse the page of the next store through a mapping, which is a signal. So
//! after either, changes and syncs are refused, and nothing is stored to the file any more.

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
