//! Hash maps in memory, with their own copies of keys and values.

use crate::{Config, Engine, Outcome};

/// A map from boxed bytes to boxed bytes.
pub trait BoxedMap: Default {
    fn insert(&mut self, key: &[u8], value: &[u8]);
    fn get(&self, key: &[u8]) -> Option<&[u8]>;
    fn remove(&mut self, key: &[u8]) -> bool;
    fn each(&self, each: impl FnMut(&[u8], &[u8]));
}

/// A map as an engine.
#[derive(Debug, Default)]
pub struct MapEngine<M>(M);

impl<M: BoxedMap> Engine for MapEngine<M> {
    const IS_PERSISTENT: bool = false;

    fn open(_: &Config) -> Outcome<Self> {
        Ok(Self(M::default()))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.0.insert(key, value);
        Ok(())
    }

    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Outcome<bool> {
        Ok(self.0.get(key).map(&mut found).is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<bool> {
        Ok(self.0.remove(key))
    }

    fn scan(&mut self, each: impl FnMut(&[u8], &[u8])) -> Outcome<()> {
        self.0.each(each);
        Ok(())
    }

    fn sync(&mut self) -> Outcome<()> {
        Ok(())
    }

    fn close(self) -> Outcome<()> {
        Ok(())
    }
}
