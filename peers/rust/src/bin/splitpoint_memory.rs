//! Splitpoint in memory, as `Db::in_memory` makes it.

use engines::{Config, Opened, Outcome, Store};
use splitpoint::Db;

struct InMemory;

impl Opened for InMemory {
    const IS_PERSISTENT: bool = false;

    fn open(_: &Config) -> Outcome<Db> {
        Ok(Db::in_memory()?)
    }
}

fn main() {
    engines::run::<Store<InMemory>>()
}
