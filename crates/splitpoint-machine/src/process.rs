//! The times of processes.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::Duration;

/// What a process has used.
///
/// # Examples
///
/// ```
/// use splitpoint_machine::Usage;
///
/// let before = Usage::of_this_process().unwrap();
/// let sum: u64 = (0..100_000).sum();
/// let after = Usage::of_this_process().unwrap();
/// assert!(after.user >= before.user && sum > 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time in the program.
    pub user: Duration,
    /// Time in the kernel for it.
    pub system: Duration,
    /// Most memory that it had at once, in bytes.
    pub resident_bytes_max: u64,
}

impl Usage {
    /// Returns what this process has used so far, all its threads together.
    ///
    /// # Errors
    ///
    /// That of the system call, which fails only on a system without it.
    pub fn of_this_process() -> io::Result<Self> {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: the pointer is to memory of the size of `rusage`, which the call fills.
        let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all its fields are numbers, for which zeros are values; the call has set them.
        Ok(Self::of(&unsafe { usage.assume_init() }))
    }

    fn of(usage: &libc::rusage) -> Self {
        let time = |it: libc::timeval| {
            let seconds = u64::try_from(it.tv_sec).unwrap_or(0);
            Duration::from_secs(seconds)
                + Duration::from_micros(u64::try_from(it.tv_usec).unwrap_or(0))
        };
        let kib = u64::try_from(usage.ru_maxrss).unwrap_or(0);
        Self {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            resident_bytes_max: kib << 10,
        }
    }
}

/// Looks whether `child` has ended; if so, returns how, and what it has used, by `wait4`.
///
/// After that the child must not be waited for again.
///
/// # Errors
///
/// That of the system call, such as that somebody else has waited for the child.
pub fn try_wait(child: &Child) -> io::Result<Option<(ExitStatus, Usage)>> {
    let id = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let mut status = 0;
    // SAFETY: both pointers are to memory of the sizes that the call fills.
    let result = unsafe { libc::wait4(id, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    match result {
        0 => Ok(None),
        result if result == id => {
            // SAFETY: all its fields are numbers, for which zeros are values; the call has set them.
            let usage = unsafe { usage.assume_init() };
            Ok(Some((ExitStatus::from_raw(status), Usage::of(&usage))))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs a script of the shell to its end.
    #[expect(clippy::zombie_processes, reason = "`try_wait` is what waits for it")]
    fn run(script: &str) -> (Child, ExitStatus, Usage) {
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        loop {
            if let Some((status, usage)) = try_wait(&child).unwrap() {
                return (child, status, usage);
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_child_is_waited_for_with_its_status_and_its_memory() {
        let (child, status, usage) = run("exit 7");
        assert_eq!(status.code(), Some(7));
        assert!(usage.resident_bytes_max > 0);
        assert!(try_wait(&child).is_err(), "it was waited for");
    }

    #[test]
    fn a_child_that_works_has_used_time() {
        let (_, status, usage) = run("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done");
        assert!(status.success());
        assert!(usage.user + usage.system > Duration::ZERO);
    }
}
