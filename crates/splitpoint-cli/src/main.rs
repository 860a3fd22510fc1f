//! The program. The code is in the library beside it, within reach of tests and the fuzzer.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    splitpoint_cli::main()
}
