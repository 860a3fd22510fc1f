//! The command as its users meet it: exit codes and both streams of the real program.

mod backup;
mod bench;
mod check;
mod completions;
mod count;
mod create;
mod delete;
mod demo;
mod docs;
mod dump;
mod errors;
mod exchange;
mod get;
mod interrupt;
mod lab;
mod lab_depth;
mod lab_keys;
mod list;
mod load;
mod man;
mod put;
mod repair;
mod sandbox;
mod stat;
mod streams;
