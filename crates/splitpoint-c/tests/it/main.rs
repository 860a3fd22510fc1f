//! The C libraries as programs in C use them: compiled and run against an installed prefix only.

mod headers;
mod hsearch;
mod native;
mod support;
mod symbols;
