//! A cdb file, damaged or foreign: opened, listed, looked up, checked, salvaged.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    splitpoint_legacy::fuzzing::cdb(input);
});
