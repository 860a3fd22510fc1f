//! A pair of files of dbm or ndbm, damaged or foreign: listed, looked up, checked, salvaged.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    splitpoint_legacy::fuzzing::dbm(input);
});
