//! The decoders of records, segment headers, superblocks and the live header on arbitrary bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| splitpoint::fuzzing::record(input));
