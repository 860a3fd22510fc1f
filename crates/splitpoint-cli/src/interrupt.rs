//! Ctrl-C and termination: noted, and obeyed where the work can be left in good order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

use crate::failure::{Exit, Failure};

/// Whether the user wants the work to stop.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Notes the first Ctrl-C or termination signal from now on; a second one ends the process.
    pub(crate) fn watch() -> Result<Self, Failure> {
        let signal = Arc::new(AtomicUsize::new(0));
        let register = || -> io::Result<()> {
            for (number, value, exit) in [
                (SIGINT, SIGINT.unsigned_abs() as usize, Exit::Interrupted),
                (SIGTERM, SIGTERM.unsigned_abs() as usize, Exit::Terminated),
            ] {
                let was_signalled = Arc::new(AtomicBool::new(false));
                // In this order: the first signal only arms the shutdown of the second.
                flag::register_conditional_shutdown(
                    number,
                    exit as i32,
                    Arc::clone(&was_signalled),
                )?;
                flag::register(number, was_signalled)?;
                flag::register_usize(number, Arc::clone(&signal), value)?;
            }
            // A file that would be larger than the system allows is an error, not the end.
            flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
            Ok(())
        };
        register().map_err(|error| Failure::io("watch for Ctrl-C", &error))?;
        Ok(Self { signal })
    }

    /// Returns the exit code of the signal that came, if one did.
    pub(crate) fn exit(&self) -> Option<Exit> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal if signal == SIGTERM.unsigned_abs() as usize => Some(Exit::Terminated),
            _ => Some(Exit::Interrupted),
        }
    }
}
