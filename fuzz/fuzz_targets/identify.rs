//! A file of any format or of none: named, and where it is one that is read, read in every way.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    splitpoint_legacy::fuzzing::identify(input);
});
