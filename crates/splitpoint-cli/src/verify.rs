//! A check of a store that shows how far it is.

use std::ops::ControlFlow;

use splitpoint::check::{CheckProgress, CheckReport, CheckStage};
use splitpoint::{Db, Error};

use crate::console::Console;
use crate::progress::{Phases, ProgressMode, Total};

/// Verifies a store.
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
