//! A file of the 1991 package, damaged or foreign: opened, read, changed, synced and opened again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| splitpoint_legacy::db185::fuzzing::db185(input));
