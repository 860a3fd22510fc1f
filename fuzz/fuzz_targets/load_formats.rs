//! Arbitrary input for each format of `load`, and everything read through every format of `dump`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| splitpoint_cli::fuzzing::load_formats(input));
