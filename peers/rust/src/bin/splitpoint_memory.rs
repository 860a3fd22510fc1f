//! Splitpoint in memory.

use engines::splitpoint::{InMemory, Store};

fn main() {
    engines::run::<Store<InMemory>>()
}
