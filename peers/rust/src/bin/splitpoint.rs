//! Splitpoint in a file.

use engines::splitpoint::{InFile, Store};

fn main() {
    engines::run::<Store<InFile>>()
}
