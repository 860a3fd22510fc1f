//! The program: all of it is in the library beside, where tests and the fuzzer reach it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    splitpoint_cli::main()
}
