//! `Db`: a store in a file or in memory; the only place where log and index meet.

use std::path::Path;

use crate::check::CheckReport;
use crate::error::Result;
use crate::options::{Durability, Options};
use crate::stats::Stats;
use crate::table::{Entry, Value};

/// A store: keys and values in one file or in memory. (skeleton: signatures are final)
#[derive(Debug)]
pub struct Db {}

#[expect(clippy::missing_errors_doc, clippy::unused_self, missing_docs, reason = "skeleton")]
impl Db {
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(path)
    }
    pub fn in_memory() -> Result<Self> {
        Options::new().in_memory()
    }
    pub(crate) fn open_with(_path: &Path, _options: &Options) -> Result<Self> {
        todo!()
    }
    pub(crate) fn in_memory_with(_options: &Options) -> Result<Self> {
        todo!()
    }
    pub fn get(&self, _key: &[u8]) -> Result<Option<Value<'_>>> {
        todo!()
    }
    /// Replaces the content of `buf`; false if the key is missing.
    pub fn get_into(&self, _key: &[u8], _buf: &mut Vec<u8>) -> Result<bool> {
        todo!()
    }
    pub fn contains(&self, _key: &[u8]) -> Result<bool> {
        todo!()
    }
    pub fn put(&self, _key: &[u8], _value: &[u8]) -> Result<()> {
        todo!()
    }
    pub fn put_with(&self, _key: &[u8], _value: &[u8], _durability: Durability) -> Result<()> {
        todo!()
    }
    /// False if the key exists.
    pub fn put_new(&self, _key: &[u8], _value: &[u8]) -> Result<bool> {
        todo!()
    }
    pub fn delete(&self, _key: &[u8]) -> Result<bool> {
        todo!()
    }
    pub fn delete_with(&self, _key: &[u8], _durability: Durability) -> Result<bool> {
        todo!()
    }
    pub fn get_many(&self, _keys: &[&[u8]]) -> Result<Vec<Option<Value<'_>>>> {
        todo!()
    }
    pub fn put_many(&self, _pairs: &[(&[u8], &[u8])]) -> Result<()> {
        todo!()
    }
    pub fn scan(&self) -> Result<Scan<'_>> {
        todo!()
    }
    pub fn len(&self) -> u64 {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
    pub fn close(self) -> Result<()> {
        todo!()
    }
    pub fn stats(&self) -> Result<Stats> {
        todo!()
    }
    pub fn check(&self) -> Result<CheckReport> {
        todo!()
    }
}

/// A scan.
#[derive(Debug)]
pub struct Scan<'db>(std::marker::PhantomData<&'db Db>);
impl<'db> Iterator for Scan<'db> {
    type Item = Result<Entry<'db>>;
    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}

impl crate::table::Table for Db {
    fn capabilities(&self) -> crate::table::Capabilities {
        todo!()
    }
    fn get(&self, _key: &[u8]) -> Result<Option<Value<'_>>> {
        todo!()
    }
    fn put(&self, _key: &[u8], _value: &[u8], _mode: crate::table::PutMode) -> Result<bool> {
        todo!()
    }
    fn delete(&self, _key: &[u8]) -> Result<bool> {
        todo!()
    }
    fn scan(&self) -> Result<crate::table::Entries<'_>> {
        todo!()
    }
    fn len(&self) -> Result<u64> {
        todo!()
    }
    fn sync(&self) -> Result<()> {
        todo!()
    }
    fn stats(&self) -> Result<Stats> {
        todo!()
    }
}
