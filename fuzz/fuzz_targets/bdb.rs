//! A hash file or a btree of Berkeley DB, damaged or foreign: opened, listed, looked up, checked, salvaged.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    splitpoint_legacy::fuzzing::bdb(input);
});
