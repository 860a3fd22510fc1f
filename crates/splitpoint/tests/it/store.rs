//! What a store does beyond what every access method must.

use splitpoint::{Db, TableExt};

use crate::support::{on_every_table, tiny};

#[test]
fn a_value_of_100_mib_survives_reopening() {
    let value: Vec<u8> = (0..100_u32 << 20).map(|i| (i >> 12) as u8 ^ i as u8).collect();
    let memory = Db::in_memory().unwrap();
    memory.put(b"key", &value).unwrap();
    assert_eq!(memory.get(b"key").unwrap().as_deref(), Some(&value[..]));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("big.spt");
    let db = Db::open(&path).unwrap();
    db.put(b"key", b"small").unwrap();
    db.put(b"key", &value).unwrap();
    db.close().unwrap();
    let db = Db::open(&path).unwrap();
    assert_eq!(db.get(b"key").unwrap().as_deref(), Some(&value[..]));
    assert!(db.check().unwrap().is_clean());
}

#[test]
fn stats_tell_bytes_and_buckets() {
    on_every_table(&tiny().fill_factor(3.0), |table| {
        let put = |i: u32, value: &[u8]| table.put(i.to_le_bytes(), value);
        for i in 0..3000_u32 {
            put(i, &(!i).to_le_bytes()).unwrap();
        }
        for i in 0..100_u32 {
            put(i, b"again").unwrap();
            table.delete(&(i + 500).to_le_bytes()).unwrap();
        }
        let stats = table.stats().unwrap();
        let buckets = stats.geometry.bucket_count();
        assert!((900..1100).contains(&buckets), "{buckets} buckets for 2,900 keys at 3 each");
        assert_eq!(stats.live_bytes, 2800 * 16 + 100 * 32);
        assert_eq!(stats.dead_bytes, 200 * 16 + 100 * 24);
        let segments = stats.segments;
        assert!(segments.log >= stats.live_bytes + stats.dead_bytes);
        assert!(stats.log_bytes >= stats.live_bytes + stats.dead_bytes);
    });
}

#[test]
fn keys_and_values_may_have_4_gib() {
    on_every_table(&tiny(), |table| {
        let capabilities = table.capabilities();
        assert_eq!(capabilities.key_bytes_max, u64::from(u32::MAX));
        assert_eq!(capabilities.value_bytes_max, u64::from(u32::MAX));
    });
}

/// Two superblocks, the live header, the reader table, a page of buckets and a page of log: 4 KiB each.
#[test]
fn a_store_of_one_record_takes_six_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("one.spt");
    let db = Db::open(&path).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 6 * 4096);
    let allocated = std::os::unix::fs::MetadataExt::blocks(&metadata) * 512;
    assert!(allocated <= 6 * 4096, "{allocated} bytes");
}
