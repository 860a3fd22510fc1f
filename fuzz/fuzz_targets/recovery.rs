//! A program of changes, crashes and faults on a simulated machine, all chosen by the input.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| splitpoint::fuzzing::recovery(input));
