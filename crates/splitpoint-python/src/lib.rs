//! The native half of the Python package `splitpoint`: what the modules in `python/` build on.
//!
//! ```text
//! splitpoint.Table  (python/splitpoint/_table.py: the dict's protocol, views, pickling)
//!        |
//! _native.Table  -->  Handle --> Opened: a Db, or any other access method
//! ```
//!
//! # Invariants
//!
//! - Whatever waits for a device, for a lock or for more than a few records runs without the
//!   interpreter's lock; a single lookup keeps it, because releasing costs as much as the lookup.
//! - No call holds a lock of ours while Python code may run: a finalizer could close the table.
//! - Bytes that Python may change are copied before the interpreter's lock is released.
//! - A table is closed by `close`, whatever iterators, snapshots and transactions are
//!   left. A view of a value keeps it open.

#![deny(unsafe_code)]
#![expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]

mod bytes;
mod durability;
mod error;
mod handle;
mod interpreter;
mod lab;
mod number;
mod objects;
mod opening;
mod pairs;
mod pinned;
mod scan;
mod snapshot;
mod table;
mod transaction;
mod watch;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the `splitpoint` command with `arguments`, the first of which is the program's name, and
/// returns its exit code. It runs itself again by the words of `program`.
#[pyfunction]
fn run_command(py: Python<'_>, program: Vec<OsString>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| splitpoint_cli::main_of_another(program, arguments))
}

/// Returns the name of the format of the file at `path`, or `None` if it is unknown.
#[pyfunction]
fn identify(py: Python<'_>, path: std::path::PathBuf) -> PyResult<Option<&'static str>> {
    match py.detach(|| splitpoint_legacy::identify(path)) {
        Ok(identity) => Ok(identity.map(|identity| identity.format.name())),
        Err(splitpoint::Error::NotAStore { .. }) => Ok(None),
        Err(error) => Err(error::raise(py, &error)),
    }
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::be_the_only_one(module.py())?;
    error::maker(module.py())?;
    splitpoint_legacy::register().map_err(|error| error::raise(module.py(), &error))?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(run_command, module)?)?;
    module.add_function(wrap_pyfunction!(identify, module)?)?;
    module.add_function(wrap_pyfunction!(handle::note_fork, module)?)?;
    module.add_class::<table::Table>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<pinned::Pinned>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<transaction::Savepoint>()?;
    lab::add_to(module)
}
