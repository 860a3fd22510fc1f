//! What a bug of this program looks like to its user: one line, no backtrace.

use std::panic::{self, PanicHookInfo};

use crate::console;
use crate::failure::Exit;

/// Makes every panic end the process with one line on standard error.
///
/// The process ends at once, as if it had been killed: a store is made for that, and keeps every
/// change that was acknowledged.
pub(crate) fn report_on_one_line() {
    panic::set_hook(Box::new(|info| {
        console::report_error(
            &message(info),
            Some(
                "this is a bug of splitpoint, please report it; the store keeps every change \
                 that was acknowledged",
            ),
        );
        std::process::exit(Exit::Bug as i32);
    }));
}

fn message(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let what = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it stopped without saying why");
    match info.location() {
        Some(place) => format!("internal error at {}:{}: {what}", place.file(), place.line()),
        None => format!("internal error: {what}"),
    }
}
