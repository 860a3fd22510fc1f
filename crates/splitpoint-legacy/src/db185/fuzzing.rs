//! What the fuzz target `db185` runs. Not an API: it changes without notice.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use splitpoint::{Error, Result, Table, TableExt};

use super::disk::Disk;
use super::open::Options;
use super::table::Db185;

/// Largest file that is looked at, in bytes: a hostile one can ask for pages far away.
const FILE_BYTES_MAX: u64 = 1 << 24;

/// A file in memory.
#[derive(Clone, Debug, Default)]
struct MemoryDisk(Arc<Mutex<Vec<u8>>>);

impl Disk for MemoryDisk {
    fn path(&self) -> &Path {
        Path::new(":fuzz:")
    }

    fn file_bytes(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let image = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let there = &image[image.len().min(offset as usize)..];
        let count = there.len().min(bytes.len());
        bytes[..count].copy_from_slice(&there[..count]);
        bytes[count..].fill(0);
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        if end > FILE_BYTES_MAX {
            let source = std::io::ErrorKind::FileTooLarge.into();
            return Err(Error::Io { action: "write", path: ":fuzz:".into(), source });
        }
        let mut image = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if image.len() < end as usize {
            image.resize(end as usize, 0);
        }
        image[offset as usize..end as usize].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Opens the bytes as a file, reads all of it in every way, changes it, syncs and opens it again.
///
/// # Panics
///
/// If a put into a sound table succeeded and is not found, a delete that succeeded has not deleted,
/// a scan has no end, or anything inside panics.
pub fn db185(file: &[u8]) {
    let disk = MemoryDisk(Arc::new(Mutex::new(file.to_vec())));
    let options = Options::new().cache_bytes(0);
    let keys = match options.clone().any_hash().open_disk(Box::new(disk.clone())) {
        Ok(store) => read_all(&Db185::new(store), file.len()),
        Err(_) => Vec::new(),
    };
    let Ok(store) = options.open_disk(Box::new(disk.clone())) else { return };
    let table = Db185::new(store);
    // What is written to a page that two chains share, or that is marked as free, may be lost.
    let is_sound = table.check().is_ok_and(|report| report.is_clean());
    change(&table, &keys, is_sound);
    let is_written = table.sync().is_ok();
    drop(table);
    if is_written {
        let store = options.open_disk(Box::new(disk));
        // A damaged chain may look like one that a crash has left, which is not changed again.
        if let Ok(store) = store {
            read_all(&Db185::new(store), FILE_BYTES_MAX as usize);
        }
    }
}

/// Reads everything and returns some of the keys.
fn read_all(table: &Db185, file_bytes: usize) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut pair_bytes = 0;
    for entry in table.scan().expect("a new handle is usable") {
        let Ok(entry) = entry else { continue };
        pair_bytes += entry.key.len() + entry.value.len();
        assert!(pair_bytes <= file_bytes + 65536, "a scan returns more than the file has");
        if keys.len() < 8 {
            keys.push(entry.key.to_vec());
        }
    }
    let _ = table.len();
    let _ = table.stats();
    let _ = table.check();
    for key in &keys {
        let _ = table.get(key);
    }
    keys
}

fn change(table: &Db185, keys: &[Vec<u8>], is_sound: bool) {
    let news = [(3, 5), (0, 40), (70, 0), (200, 300)];
    let news = news.map(|(key_bytes, value_bytes)| (vec![b'n'; key_bytes], vec![7; value_bytes]));
    for (number, key) in keys.iter().enumerate() {
        if number % 2 == 0 && table.delete(key).is_ok() {
            assert!(!matches!(table.get(key), Ok(Some(_))) || has_twice(table, key));
        } else {
            put(table, key, &[1; 90], is_sound);
        }
    }
    for (key, value) in &news {
        put(table, key, value, is_sound);
    }
}

/// In a damaged file a key may be in its bucket twice; deleting one uncovers the other.
fn has_twice(table: &Db185, key: &[u8]) -> bool {
    matches!(table.delete(key), Ok(true) | Err(_))
}

fn put(table: &Db185, key: &[u8], value: &[u8], is_sound: bool) {
    if table.put(key, value).is_ok()
        && let Ok(found) = table.get(key)
    {
        assert!(found.is_some() || !is_sound, "a key that was put is missing");
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::ByteOrder;

    fn sample(name: &str) -> Vec<u8> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
        std::fs::read(path).unwrap()
    }

    /// A table of small pages with ordinary and big pairs, a deleted one, and a few splits.
    fn small(order: ByteOrder) -> Vec<u8> {
        let disk = MemoryDisk::default();
        let options = Options::new().page_bytes(64).fill_factor(3).byte_order(order);
        let table = Db185::new(options.open_disk(Box::new(disk.clone())).unwrap());
        for number in 0..30_u8 {
            let value = vec![number; if number % 9 == 4 { 120 } else { 4 }];
            let key = vec![number + 40; if number % 13 == 5 { 60 } else { 3 }];
            table.put_new(&key, &value).unwrap();
        }
        table.delete(&[41; 3]).unwrap();
        table.close().unwrap();
        disk.0.lock().unwrap().clone()
    }

    /// Writes the inputs that the corpus starts from; see `every_input_of_the_corpus_passes`.
    #[test]
    fn every_input_of_the_corpus_passes() {
        let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/db185");
        if std::env::var_os("SPLITPOINT_WRITE_CORPUS").is_some() {
            std::fs::create_dir_all(&corpus).unwrap();
            std::fs::write(corpus.join("little-endian"), small(ByteOrder::Little)).unwrap();
            std::fs::write(corpus.join("big-endian"), small(ByteOrder::Big)).unwrap();
            std::fs::write(corpus.join("empty"), sample("db185-empty.db")).unwrap();
            let exact = sample("db185-apple-le-512-exactfit.db");
            std::fs::write(corpus.join("exact-fit"), exact).unwrap();
        }
        let mut input_count = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            db185(&std::fs::read(&path).unwrap());
            input_count += 1;
        }
        assert!(input_count >= 4);
    }

    #[test]
    fn files_cut_at_every_length_end_in_an_error_or_a_part() {
        for order in ByteOrder::ALL {
            let file = small(order);
            for len in 0..file.len() {
                db185(&file[..len]);
            }
        }
    }

    #[test]
    fn files_with_a_byte_flipped_end_in_an_error_or_a_part() {
        let is_slow = std::env::var_os("SPLITPOINT_SLOW").is_some_and(|value| value == "1");
        for order in ByteOrder::ALL {
            let mut file = small(order);
            for at in 0..file.len() {
                let masks: &[u8] =
                    if is_slow { &[1, 2, 4, 8, 16, 32, 64, 128, 255] } else { &[1, 0x80, 0xff] };
                for mask in masks {
                    file[at] ^= mask;
                    db185(&file);
                    file[at] ^= mask;
                }
            }
        }
    }
}
