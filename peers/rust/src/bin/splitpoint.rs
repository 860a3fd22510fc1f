//! Splitpoint in a file, as `Db::open` makes it: nothing is tuned, and the number of records is
//! not told.

use engines::{Config, Opened, Outcome, Store};
use splitpoint::Db;

struct InFile;

impl Opened for InFile {
    const IS_PERSISTENT: bool = true;

    fn open(config: &Config) -> Outcome<Db> {
        Ok(Db::open(config.dir.join("splitpoint.spt"))?)
    }
}

fn main() {
    engines::run::<Store<InFile>>()
}
