//! `ndbm(3)`: databases of two files, `NAME.pag` and `NAME.dir`, on Splitpoint's store.
//!
//! ```text
//! program --> dbm_open ... --> DBM: what a program holds ---> Database: a store, or an old file
//! dbm(3) --------------------------------------------------> Database
//! ```
//!
//! # Invariants
//!
//! - `NAME.pag` is the whole database at any moment; `NAME.dir` only says so to programs that look.
//! - An old file is never written unless `SPLITPOINT_OLD_FILES=convert`.
//! - A datum that was returned stays until the next call of the same kind on its handle.

mod converting;
mod database;
mod descriptor;
#[cfg(feature = "exports")]
mod exports;
pub mod gdbm_errno;
mod lent;
mod names;
mod opening;
mod table;

pub use database::{Database, Failure, StoreMode};
#[cfg(feature = "exports")]
pub use exports::*;
pub use lent::Lent;
pub use opening::Request;
