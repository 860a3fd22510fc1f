//! Shortens the bundled word list: of each word, only what the word before it does not begin with.

use std::path::Path;
use std::{env, fs};

/// Counts of shared bytes are below it, and bytes of words are not.
const WORD_BYTE_MIN: u8 = 32;

fn main() {
    println!("cargo::rerun-if-changed=data/words.txt");
    let list = fs::read("data/words.txt").expect("the list is there");
    let (mut coded, mut last) = (Vec::new(), &[][..]);
    for word in list.strip_suffix(b"\n").expect("whole lines").split(|byte| *byte == b'\n') {
        assert!(word.iter().all(|byte| *byte >= WORD_BYTE_MIN), "a byte of control");
        let shared = word.iter().zip(last).take_while(|(one, other)| one == other).count();
        let shared = shared.min(usize::from(WORD_BYTE_MIN - 1));
        coded.push(shared as u8);
        coded.extend_from_slice(&word[shared..]);
        last = word;
    }
    let directory = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&directory).join("words"), coded).expect("the directory is ours");
}
