//! Keys of every format, held and streamed.

use std::collections::HashSet;
use std::sync::Mutex;

use proptest::prelude::*;

use super::*;

fn format(name: &str, column: &str) -> KeyFormat {
    let column = Column { name: column.to_owned(), has_header: false };
    KeyFormat::by_name(name, column).expect("a known name")
}

fn read_all(bytes: &[u8], format: &KeyFormat) -> Result<(Vec<Vec<u8>>, Noticed), ReadError> {
    let (mut batch, mut keys) = (KeyBatch::default(), Vec::new());
    // A buffer that is shorter than most keys.
    let input = std::io::BufReader::with_capacity(7, bytes);
    let mut input = reader(input, format)?;
    loop {
        batch.clear();
        let has_more = input.read_batch(&mut batch)?;
        keys.extend(batch.iter().map(<[u8]>::to_vec));
        if !has_more {
            return Ok((keys, input.noticed()));
        }
    }
}

#[track_caller]
fn check(name: &str, bytes: &[u8], expected: &[&[u8]]) -> Noticed {
    let (keys, noticed) = read_all(bytes, &format(name, "2")).expect("the bytes are keys");
    assert_eq!(keys, expected);
    noticed
}

#[track_caller]
fn check_malformed(format: &KeyFormat, bytes: &[u8], expected: &str) {
    match read_all(bytes, format) {
        Err(error) => assert_eq!(error.to_string(), expected),
        Ok((keys, _)) => panic!("{keys:?}"),
    }
}

#[test]
fn lines_are_keys_and_what_is_odd_is_noticed() {
    let noticed =
        check("lines", b"a\r\n\nb\0\n\r\nthe last one", &[b"a\r", b"b\0", b"the last one"]);
    assert_eq!(noticed, Noticed { blank_count: 2, carriage_return_count: 1, nul_count: 1 });
    check("nul", b"a\0\0b", &[b"a", b"", b"b"]);
    check("lines", b"", &[]);
    check("hex", b"00ff\r\n61\n", &[&[0, 0xff], b"a"]);
    check("base64", b"YQ==\nYQ\n", &[b"a", b"a"]);
    check("decimal", b"258\r\n1\n", &[&[2, 1, 0, 0, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0, 0, 0]]);
}

#[test]
fn integers_and_lengths_have_their_width_and_order() {
    check("u16", &[1, 2, 3, 4], &[&[1, 2], &[3, 4]]);
    check("u16-be", &[1, 2, 3, 4], &[&[2, 1], &[4, 3]]);
    check("u24-be", &[1, 2, 3], &[&[3, 2, 1]]);
    check("u8", &[1, 2], &[&[1], &[2]]);
    check("len8", b"\x03abc\x00\x01d", &[b"abc", b"", b"d"]);
    check("len16", b"\x03\x00abc", &[b"abc"]);
    check("len32-be", b"\x00\x00\x00\x09123456789", &[b"123456789"]);
    check("len64", b"\x01\0\0\0\0\0\0\0a", &[b"a"]);
    let mut bytes = vec![0xac, 0x02];
    bytes.extend([b'k'; 300]);
    check("varint", &bytes, &[&[b'k'; 300]]);
}

#[test]
fn a_column_of_a_table_is_found_by_number_or_name() {
    let table = b"id,name,note\n1,\"Doe, \"\"J\"\"\",x\r\n2,,y\n3,\"two\nlines\",z\n";
    let (keys, noticed) = read_all(table, &format("csv", "name")).expect("the column is there");
    assert_eq!(keys, [b"Doe, \"J\"".to_vec(), b"two\nlines".to_vec()]);
    assert_eq!(noticed.blank_count, 1);
    let (keys, _) = read_all(table, &format("csv", "1")).expect("the column is there");
    assert_eq!(keys[0], b"id");
    check("tsv", b"a\t\"b\nc\td\r\n", &[b"\"b", b"d"]);
    let mut format = format("csv", "1");
    format.encoding = "u16".parse().expect("an encoding");
    let (keys, _) = read_all(b"7,x\n8,y\n", &format).expect("numbers");
    assert_eq!(keys, [[7, 0], [8, 0]]);
}

#[test]
fn what_is_malformed_is_refused_with_its_place() {
    for (name, bytes, expected) in [
        ("hex", &b"61\n\nxy\n"[..], "line 3: `x` at column 1 is not a hex digit"),
        ("base64", b"YQ\nY*\n", "line 2: no base64: Invalid symbol 42, offset 1."),
        ("decimal", b"1\n1.5\n", "line 2: `1.5` is not a number from 0 to 18446744073709551615"),
        ("u32", &[0; 7], "byte 4: expected 4 bytes, found 3 before the end of the file"),
        (
            "len16",
            b"\x01\x00a\x05\x00bc",
            "byte 5: expected 5 bytes, found 2 before the end of the file",
        ),
        ("len16", b"\x01", "byte 0: expected 2 bytes, found 1 before the end of the file"),
        ("varint", &[0xff; 12], "byte 0: a varint has at most 10 bytes"),
        (
            "len32",
            b"abcdefgh",
            "byte 0: a key of 1684234849 bytes, and 16777216 are the most: the lengths may be \
             written in another way",
        ),
        ("csv", b"a,b\nc\n", "line 2: a row of 1 column, where the first row has 2"),
        ("csv", b"a,b\nc,\"d\ne,f\n", "line 2: a quote is opened and never closed"),
        ("csv", b"a\nb\n", "line 1: expected a column 2, found a row of 1"),
    ] {
        check_malformed(&format(name, "2"), bytes, expected);
    }
    check_malformed(
        &format("tsv", "nme"),
        b"id\tname\n1\tx\n",
        "line 1: the header has no column `nme`, it has `id`, `name`",
    );
    check_malformed(&format("csv", "0"), b"a\n", "columns are numbered from 1");
}

#[test]
fn a_key_of_a_megabyte_is_read_and_a_file_without_lines_is_not() {
    let long = vec![b'k'; 1 << 20];
    check("lines", &long, &[&long]);
    let binary = vec![1; KEY_BYTES_MAX + 1];
    check_malformed(
        &format("lines", "1"),
        &binary,
        "line 1: the key is longer than 16777216 bytes",
    );
}

/// Lines that can be read once, like those of a pipe.
struct Pipe {
    bytes: Vec<u8>,
    is_read: Mutex<bool>,
    spilled: Mutex<Vec<u8>>,
}

impl Pipe {
    fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, is_read: Mutex::new(false), spilled: Mutex::default() }
    }
}

struct Spill<'a>(&'a Mutex<Vec<u8>>);

impl Write for Spill<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl KeySource for Pipe {
    fn open(&self) -> Result<Box<dyn KeyInput + Send + '_>, ReadError> {
        if !std::mem::replace(&mut *self.is_read.lock().expect("no panic"), true) {
            return reader(&self.bytes[..], &format("lines", "1"));
        }
        let spilled = self.spilled.lock().expect("no panic").clone();
        reader(std::io::Cursor::new(spilled), &format("varint", "1"))
    }

    fn spill(&self) -> Result<Option<Box<dyn Write + '_>>, ReadError> {
        Ok(Some(Box::new(Spill(&self.spilled))))
    }
}

fn keys_of(keys: &Keys<'_>) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    keys.for_each(|key| {
        found.push(key.to_vec());
        ControlFlow::Continue(())
    })
    .expect("the keys can be read");
    found
}

/// 40,000 lines, of which every third came before.
fn long_list() -> Vec<u8> {
    let line = |n: u64| if n % 3 == 2 { n / 2 } else { n };
    (0..40_000).flat_map(|n| format!("key number {}\n", line(n)).into_bytes()).collect()
}

#[test]
fn keys_that_do_not_fit_are_the_same_as_those_that_do() {
    let bytes = long_list();
    let source = Bytes { bytes: &bytes, format: format("lines", "1") };
    let read = |source: Box<dyn KeySource>, memory_bytes| {
        // The sources outlive the closure, and the box owns them.
        Keys::read(source, DuplicatePolicy::Remove, memory_bytes, &mut ()).expect("they fit")
    };
    let mut distinct = HashSet::new();
    let expected: Vec<&[u8]> = bytes
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty() && distinct.insert(*line))
        .collect();
    let held = Keys::read(Box::new(source.clone()), DuplicatePolicy::Remove, 1 << 30, &mut ())
        .expect("they fit");
    assert!(held.held().is_some());
    assert_eq!(held.facts().duplicates, Duplicates::Removed);
    // In one part and in five.
    for memory_bytes in [900_000, 200_000] {
        let streamed =
            Keys::read(Box::new(source.clone()), DuplicatePolicy::Remove, memory_bytes, &mut ())
                .expect("they fit");
        let piped = read(Box::new(Pipe::new(bytes.clone())), memory_bytes);
        for keys in [&held, &streamed, &piped] {
            assert_eq!(keys_of(keys), expected);
        }
        for keys in [&streamed, &piped] {
            assert!(keys.held().is_none() && keys.memory_bytes() < 10_000);
            let mut facts = keys.facts().clone();
            assert!(matches!(facts.duplicates, Duplicates::RemovedByFingerprint { wrong_p }
                if wrong_p > 0.0 && wrong_p < 1e-29));
            facts.duplicates = Duplicates::Removed;
            assert_eq!(&facts, held.facts());
        }
        let sample = |keys: &Keys<'_>| keys.sample(100, 1 << 20).expect("keys");
        assert_eq!(sample(&held).len(), 100);
        assert_eq!(sample(&streamed), sample(&held));
    }
}

#[test]
fn duplicates_are_kept_if_that_is_wanted() {
    let bytes = long_list();
    let source = || Box::new(Bytes { bytes: &bytes, format: format("lines", "1") });
    let read = |memory_bytes| {
        Keys::read(source(), DuplicatePolicy::Keep, memory_bytes, &mut ()).expect("they fit")
    };
    let (held, streamed) = (read(1 << 30), read(100_000));
    assert_eq!((held.len(), streamed.len()), (40_000, 40_000));
    assert_eq!(held.facts().duplicates, Duplicates::Kept);
    assert!(held.facts().duplicate_count > 6000);
    assert_eq!(streamed.facts().duplicates, Duplicates::Unchecked);
    assert_eq!(keys_of(&held), keys_of(&streamed));
    assert_eq!(held.facts().lengths, streamed.facts().lengths);
}

#[test]
fn too_little_memory_is_refused_with_the_sum() {
    let bytes = long_list();
    let source = Bytes { bytes: &bytes, format: format("lines", "1") };
    let refused = Keys::read(Box::new(source), DuplicatePolicy::Remove, 10_000, &mut ());
    match refused.map(|keys| keys.len()) {
        Err(ReadError::Memory { needed_bytes: 136_072, allowed_bytes: 10_000 }) => {}
        other => panic!("{other:?}"),
    }
}

/// A source that loses a key after the first time.
struct Changing(Mutex<u32>);

impl KeySource for Changing {
    fn open(&self) -> Result<Box<dyn KeyInput + Send + '_>, ReadError> {
        let mut times = self.0.lock().expect("no panic");
        *times += 1;
        let key_count = if *times == 1 { 40_000 } else { 39_999 };
        let lines: Vec<u8> = (0..key_count).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        reader(std::io::Cursor::new(lines), &format("lines", "1"))
    }
}

#[test]
fn a_file_that_changes_meanwhile_is_found_out() {
    let keys =
        Keys::read(Box::new(Changing(Mutex::new(0))), DuplicatePolicy::Remove, 300_000, &mut ());
    match keys.map(|keys| keys.len()) {
        Err(error) => assert_eq!(
            error.to_string(),
            "it changed while it was measured: 39999 keys, 40000 before"
        ),
        Ok(key_count) => panic!("{key_count}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is written as varint, as keys of a pipe are, comes back.
    #[test]
    fn written_keys_come_back(keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20)) {
        let mut bytes = Vec::new();
        for key in &keys {
            write_varint_key(&mut bytes, key).expect("memory takes all");
        }
        let (found, _) = read_all(&bytes, &format("varint", "1")).expect("what was written");
        prop_assert_eq!(found, keys);
    }

    /// Bytes that nobody has made for it are refused or read, in every format.
    #[test]
    fn any_bytes_are_no_bug(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for name in KeyFormat::names() {
            let _ = read_all(&bytes, &format(&name, "1"));
        }
    }
}
