//! Checks a table, and shows progress if the access method reports it.

use std::ops::ControlFlow;

use splitpoint::check::{CheckProgress, CheckReport, CheckStage};
use splitpoint::{Db, Error};

use crate::console::Console;
use crate::failure::Result;
use crate::progress::{Phases, ProgressMode, Total};
use crate::store::Opened;

/// Verifies a table of any access method where nobody writes to it, and returns the number of damaged
/// places; otherwise notes that nothing was verified.
pub(crate) fn damage_count_if_still(
    opened: &Opened,
    mode: ProgressMode,
    console: Console,
) -> Result<u64> {
    match opened.as_store().map(|db| verify(db, mode, console)) {
        None => {
            let checked = opened.check().map_err(|error| opened.failed(&error))?;
            Ok(checked.damage_count)
        }
        Some(Ok(report)) => Ok(report.damage_count),
        Some(Err(Error::Locked { path, .. })) => {
            let path = path.display();
            console.note(format_args!("not verified first: another process writes to `{path}`"));
            Ok(0)
        }
        Some(Err(error)) => Err(opened.failed(&error)),
    }
}

/// Verifies a store, and shows progress.
pub(crate) fn verify(db: &Db, mode: ProgressMode, console: Console) -> Result<CheckReport, Error> {
    let mut phases = Phases::new(mode, console);
    let report = db.check_with(|CheckProgress { stage, bytes, bytes_total, .. }| {
        let phase = match stage {
            CheckStage::Log => "verify",
            CheckStage::Index => "index",
            _ => "check",
        };
        phases.tell(phase, Total::Bytes(bytes_total), 0, bytes);
        ControlFlow::Continue(())
    });
    phases.finish();
    report
}
