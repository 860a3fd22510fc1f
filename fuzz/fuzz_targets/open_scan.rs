//! A damaged or foreign file: opened, read, changed, closed and opened again.

#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;

/// Returns a path of this process alone, in memory where the system has such a place.
fn scratch_path() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let directory = if memory.is_dir() { memory } else { std::env::temp_dir() };
    directory.join(format!("splitpoint-fuzz-{}.spt", std::process::id()))
}

fuzz_target!(|input: &[u8]| {
    splitpoint::fuzzing::open_scan(input, |file| {
        let path = scratch_path();
        std::fs::write(&path, file).expect("the scratch file is written");
        path
    });
});
