//! The C libraries as programs in C use them: compiled and run against an installed prefix only.

mod dbm;
mod headers;
mod hsearch;
mod memcheck;
mod native;
mod ndbm;
mod support;
mod symbols;
