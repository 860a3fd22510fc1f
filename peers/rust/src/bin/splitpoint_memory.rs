//! Splitpoint in memory, as `Db::in_memory` makes it.

use engines::{Config, Engine, Outcome};
use splitpoint::Db;

struct Store(Db);

impl Engine for Store {
    const IS_PERSISTENT: bool = false;

    fn open(_: &Config) -> Outcome<Self> {
        Ok(Self(Db::in_memory()?))
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
        Ok(())
    }

    fn close(self) -> Outcome<()> {
        Ok(())
    }

    fn get_many(&mut self, keys: &[&[u8]], mut found: impl FnMut(usize, &[u8])) -> Outcome<bool> {
        for (i, value) in self.0.get_many(keys)?.iter().enumerate() {
            if let Some(value) = value {
                found(i, value);
            }
        }
        Ok(true)
    }
}

fn main() {
    engines::run::<Store>()
}
