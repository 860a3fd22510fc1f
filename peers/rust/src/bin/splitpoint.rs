//! Splitpoint in a file, as `Db::open` makes it: nothing is tuned, and the number of records is
//! not told.

use engines::{Config, Engine, Outcome, Shared};
use splitpoint::{Db, Durability};

struct Store(Db);

impl Engine for Store {
    const IS_PERSISTENT: bool = true;

    fn open(config: &Config) -> Outcome<Self> {
        Ok(Self(Db::open(config.dir.join("splitpoint.spt"))?))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.0.put(key, value)?)
    }

    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.0.get(key)?.as_deref().map(&mut found).is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<bool> {
        Ok(self.0.delete(key)?)
    }

    fn scan(&mut self, mut each: impl FnMut(&[u8], &[u8])) -> Outcome<()> {
        for record in self.0.scan()? {
            let record = record?;
            each(&record.key, &record.value);
        }
        Ok(())
    }

    fn sync(&mut self) -> Outcome<()> {
        Ok(self.0.sync()?)
    }

    fn close(self) -> Outcome<()> {
        Ok(self.0.close()?)
    }

    fn get_many(&mut self, keys: &[&[u8]], mut found: impl FnMut(usize, &[u8])) -> Outcome<bool> {
        for (i, value) in self.0.get_many(keys)?.iter().enumerate() {
            if let Some(value) = value {
                found(i, value);
            }
        }
        Ok(true)
    }

    fn shared(&self) -> Option<&dyn Shared> {
        Some(self)
    }
}

impl Shared for Store {
    fn put_durable(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.0.put_with(key, value, Durability::Sync)?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.0.put(key, value)?)
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.0.get(key)?.as_deref().map(found).is_some())
    }
}

fn main() {
    engines::run::<Store>()
}
