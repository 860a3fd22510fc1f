//! Every format that `dump` writes against its golden bytes, arbitrary records and broken input.

use super::*;
use proptest::prelude::*;

const DUMP_FORMATS: [(DumpFormat, LoadFormat); 9] = [
    (DumpFormat::Hex, LoadFormat::Hex),
    (DumpFormat::Tsv, LoadFormat::Tsv),
    (DumpFormat::Cdb, LoadFormat::Cdb),
    (DumpFormat::Bytevalue, LoadFormat::Bytevalue),
    (DumpFormat::Print, LoadFormat::Print),
    (DumpFormat::Mdb, LoadFormat::Bytevalue),
    (DumpFormat::Jsonl, LoadFormat::Jsonl),
    (DumpFormat::GdbmAscii, LoadFormat::GdbmAscii),
    (DumpFormat::GdbmBinary, LoadFormat::GdbmBinary),
];

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn write(format: DumpFormat, records: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = format.writer();
    let contents =
        Contents { record_count: crate::number::count(records.len()), ..Contents::default() };
    writer.begin(&mut out, contents).unwrap();
    for (key, value) in records {
        writer.write(&mut out, key, value).unwrap();
    }
    writer.end(&mut out).unwrap();
    out
}

/// Reads all records, and the place and reason of what is wrong after them.
fn read(format: LoadFormat, bytes: &[u8]) -> (Pairs, Option<String>) {
    let mut input = Input::new(Box::new(io::Cursor::new(bytes.to_vec())));
    let mut reader = format.reader(None);
    let (mut record, mut records) = (Record::default(), Vec::new());
    loop {
        match reader.read(&mut input, &mut record) {
            Ok(true) => records.push((record.key.clone(), record.value.clone())),
            Ok(false) => return (records, None),
            Err(ReadError::Malformed { place, reason }) => {
                return (records, Some(format!("{place}: {reason}")));
            }
            Err(ReadError::Io(error)) => panic!("reading from memory failed: {error}"),
        }
    }
}

fn pairs(records: &[(&[u8], &[u8])]) -> Pairs {
    records.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[track_caller]
fn check_golden(dump: DumpFormat, load: LoadFormat, records: &[(&[u8], &[u8])], golden: &[u8]) {
    let records = pairs(records);
    let written = write(dump, &records);
    assert_eq!(written.escape_ascii().to_string(), golden.escape_ascii().to_string());
    assert_eq!(read(load, golden), (records, None));
    assert_eq!(detect(golden), Detected::Format(load));
}

const AWKWARD: [(&[u8], &[u8]); 3] = [(b"alpha", b"one"), (b"", b"e"), (b"\x00\xff\\\n ", b"")];

#[test]
fn hex_is_written_and_read_as_its_golden_bytes() {
    let golden = b"616c706861 6f6e65\n- 65\n00ff5c0a20 -\n";
    check_golden(DumpFormat::Hex, LoadFormat::Hex, &AWKWARD, golden);
}

#[test]
fn tsv_is_written_and_read_as_its_golden_bytes() {
    let records: [(&[u8], &[u8]); 2] = [(b"alpha", b"o\tne"), (b"", b"\\")];
    check_golden(DumpFormat::Tsv, LoadFormat::Tsv, &records, b"alpha\to\tne\n\t\\\n");
}

#[test]
fn cdb_is_written_and_read_as_its_golden_bytes() {
    let golden = b"+5,3:alpha->one\n+0,1:->e\n+5,0:\x00\xff\\\n ->\n\n";
    check_golden(DumpFormat::Cdb, LoadFormat::Cdb, &AWKWARD, golden);
}

/// The bytes that `db5.3_dump` of Debian's db5.3-util 5.3.28 wrote for these records.
#[test]
fn bytevalue_is_written_and_read_as_its_golden_bytes() {
    let golden = b"VERSION=3\nformat=bytevalue\ntype=hash\nh_nelem=3\ndb_pagesize=4096\n\
        HEADER=END\n 616c706861\n 6f6e65\n \n 65\n 00ff5c0a20\n \nDATA=END\n";
    check_golden(DumpFormat::Bytevalue, LoadFormat::Bytevalue, &AWKWARD, golden);
}

/// The bytes that `db5.3_dump -p` of Debian's db5.3-util 5.3.28 wrote for these records.
#[test]
fn print_is_written_and_read_as_its_golden_bytes() {
    let golden = b"VERSION=3\nformat=print\ntype=hash\nh_nelem=3\ndb_pagesize=4096\n\
        HEADER=END\n alpha\n one\n \n e\n \\00\\ff\\\\\\0a \n \nDATA=END\n";
    check_golden(DumpFormat::Print, LoadFormat::Print, &AWKWARD, golden);
}

#[test]
fn jsonl_is_written_and_read_as_its_golden_bytes() {
    let golden = b"{\"key\":\"alpha\",\"value\":\"one\"}\n{\"key\":\"\",\"value\":\"e\"}\n\
        {\"key_base64\":\"AP9cCiA=\",\"value\":\"\"}\n";
    check_golden(DumpFormat::Jsonl, LoadFormat::Jsonl, &AWKWARD, golden);
}

#[test]
fn mdb_is_written_and_read_as_its_golden_bytes() {
    let golden = b"VERSION=3\nformat=bytevalue\ntype=btree\nmapsize=68719476736\n\
        HEADER=END\n 616c706861\n 6f6e65\n \n 65\n 00ff5c0a20\n \nDATA=END\n";
    check_golden(DumpFormat::Mdb, LoadFormat::Bytevalue, &AWKWARD, golden);
}

#[test]
fn gdbm_ascii_is_written_and_read_as_its_golden_bytes() {
    let golden = b"# GDBM dump file created by splitpoint\n#:version=1.1\n\
        #:file=splitpoint.gdbm\n#:format=standard\n# End of header\n\
        #:len=5\nYWxwaGE=\n#:len=3\nb25l\n#:len=0\n#:len=1\nZQ==\n\
        #:len=5\nAP9cCiA=\n#:len=0\n#:count=3\n# End of data\n";
    check_golden(DumpFormat::GdbmAscii, LoadFormat::GdbmAscii, &AWKWARD, golden);
}

/// The lengths are those that `gdbm_dump` writes on a little-endian machine of 64 bits.
#[test]
fn gdbm_binary_is_written_and_read_as_its_golden_bytes() {
    let golden = b"!\r\n! GDBM FLAT FILE DUMP -- THIS IS NOT A TEXT FILE\r\n! splitpoint\r\n!\r\n\
        \0\0\0\x05\0\0\0\0alpha\0\0\0\x03\0\0\0\0one\
        \0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0e\
        \0\0\0\x05\0\0\0\0\x00\xff\\\n \0\0\0\0\0\0\0\0";
    check_golden(DumpFormat::GdbmBinary, LoadFormat::GdbmBinary, &AWKWARD, golden);
}

#[test]
fn lines_are_numbered_from_one_and_may_be_empty() {
    let (records, error) = read(LoadFormat::Lines, b"apple\n\nbanana\r\nlast");
    let expected: [(&[u8], &[u8]); 4] =
        [(b"apple", b"1"), (b"", b"2"), (b"banana\r", b"3"), (b"last", b"4")];
    assert_eq!((records, error), (pairs(&expected), None));
}

#[test]
fn an_empty_store_is_dumped_and_loaded() {
    for (dump, load) in DUMP_FORMATS {
        assert_eq!(read(load, &write(dump, &[])), (Vec::new(), None), "{dump:?}");
    }
}

#[test]
fn tsv_refuses_a_tab_or_newline_and_says_where() {
    for (key, value, why) in [
        (&b"a\tb"[..], &b"v"[..], "its key holds a TAB"),
        (b"a\nb", b"v", "its key holds a newline"),
        (b"k", b"v\n", "its value holds a newline"),
    ] {
        let mut out = Vec::new();
        let refused = DumpFormat::Tsv.writer().write(&mut out, key, value);
        assert!(matches!(refused, Err(WriteError::Unfit { reason }) if reason == why));
        assert!(out.is_empty(), "a part of the record was written");
    }
}

#[test]
fn db_dump_takes_what_other_tools_add_to_the_header() {
    let mdb = b"VERSION=3\nformat=print\ntype=btree\nmapsize=1048576\nmaxreaders=126\n\
        db_pagesize=4096\nHEADER=END\n k\n \\5C\\5c\\\\\nDATA=END";
    let expected: [(&[u8], &[u8]); 1] = [(b"k", b"\\\\\\")];
    assert_eq!(read(LoadFormat::Print, mdb), (pairs(&expected), None));
}

#[test]
fn jsonl_takes_every_encoding_and_escape() {
    let input = b"{ \"value_hex\" : \"00FF\", \"key\" : \"\\u00e9\\n\" }\n\n\
        {\"key_base64\":\"AP8=\",\"value_base64\":\"\"}\n";
    let expected: [(&[u8], &[u8]); 2] = [("\u{e9}\n".as_bytes(), b"\x00\xff"), (b"\x00\xff", b"")];
    assert_eq!(read(LoadFormat::Jsonl, input), (pairs(&expected), None));
}

/// Reads `input` and checks how many records come before which error.
#[track_caller]
fn check_malformed(format: LoadFormat, input: &str, record_count: usize, error: &str) {
    let (records, found) = read(format, input.as_bytes());
    assert_eq!((records.len(), found.as_deref()), (record_count, Some(error)), "{input}");
}

#[test]
fn malformed_hex_is_reported_by_line() {
    for (input, record_count, error) in [
        ("61 62\n61\n", 1, "line 2: expected a key and a value in hex with one space between"),
        ("61 62\n6g 61\n", 1, "line 2: key: `g` at column 2 is not a hex digit"),
        ("61 626\n", 0, "line 1: value: 3 hex digits do not make whole bytes"),
        ("61 \n", 0, "line 1: value: it is missing; an empty string is written `-`"),
        ("61 62\n61 6263", 1, "line 2: the line has no newline at its end: the input is cut short"),
    ] {
        check_malformed(LoadFormat::Hex, input, record_count, error);
    }
}

#[test]
fn malformed_tsv_is_reported_by_line() {
    let error = "line 3: no TAB between a key and a value";
    check_malformed(LoadFormat::Tsv, "a\tb\nc\td\ne\n", 2, error);
}

#[test]
fn malformed_headers_of_db_dump_are_reported_by_line() {
    for (input, error) in [
        ("VERSION=2\n", "line 1: expected `VERSION=3`"),
        ("VERSION=3\ntype=hash\nHEADER=END\n", "line 3: the header has no `format=`"),
        ("VERSION=3\nformat=hex\n", "line 2: expected `format=bytevalue` or `format=print`"),
        (
            "VERSION=3\nformat=print\ntype=recno\n",
            "line 3: only dumps of type hash or btree have explicit keys",
        ),
        ("VERSION=3\nkeys=0\n", "line 2: the dump was made without its keys (`keys=0`)"),
        ("VERSION=3\nfree text\n", "line 2: expected `name=value` in the header"),
    ] {
        check_malformed(LoadFormat::Print, input, 0, error);
    }
}

#[test]
fn malformed_data_of_db_dump_is_reported_by_line() {
    let cut_short = "line 6: the input ends where a datum or DATA=END should be: it is cut short";
    let another = "line 6: data after DATA=END: dump and load the databases of a file one by one";
    for (data, record_count, error) in [
        (" a\n b\\q\nDATA=END\n", 0, r"line 6: a backslash is followed by `\` or two hex digits"),
        (" a\nb\nDATA=END\n", 0, "line 6: expected a space before a datum, or DATA=END"),
        (" a\nDATA=END\n", 0, "line 6: DATA=END where the value of a key should be"),
        (" a\n b\n", 1, cut_short),
        ("DATA=END\nVERSION=3\n", 0, another),
    ] {
        let input = format!("VERSION=3\nformat=print\ntype=hash\nHEADER=END\n{data}");
        check_malformed(LoadFormat::Print, &input, record_count, error);
    }
    let input = "VERSION=3\nformat=bytevalue\nHEADER=END\n 61\n 6\nDATA=END\n";
    let error = "line 5: 1 hex digit does not make a whole byte";
    check_malformed(LoadFormat::Bytevalue, input, 0, error);
}

#[test]
fn malformed_jsonl_is_reported_by_line() {
    for (input, record_count, error) in [
        (
            "{\"key\":\"a\",\"value\":\"b\"}\n{\"key\":\"a\"}\n",
            1,
            "line 2: no field `value`, `value_base64` or `value_hex`",
        ),
        (
            "{\"key\":\"a\",\"key_hex\":\"61\",\"value\":\"\"}\n",
            0,
            "line 1: more than one of `key`, `key_base64` and `key_hex`",
        ),
        (
            "{\"key\":\"a\",\"value\":3}\n",
            0,
            "line 1: invalid type: integer `3`, expected a string at column 20",
        ),
        ("{\"key\":\"a\",\"value\":\"b\n", 0, "line 1: EOF while parsing a string at column 21"),
    ] {
        check_malformed(LoadFormat::Jsonl, input, record_count, error);
    }
}

#[test]
fn malformed_cdb_is_reported_by_byte() {
    for (input, error) in [
        ("x", "byte 0: expected `+` or the empty line at the end, found `x`"),
        ("+1,1:a=>b\n", "byte 6: expected `->` after the key, found `=`"),
        ("+,1:->b\n", "byte 1: expected the length of a key, found `,`"),
        ("+1,1:a->bc\n", "byte 9: expected a newline after the value, found `c`"),
        ("+9,1:a", "byte 6: the input ends where a key should be: it is cut short"),
        (
            "+1,1:a->b\n",
            "byte 10: the input ends where a record or the empty line that ends a cdb dump \
             should be: it is cut short",
        ),
        ("\n\n", "byte 1: data after the empty line that ends a cdb dump"),
        ("+4294967296,1:", "byte 1: the length of a key is over the limit of 4294967295 bytes"),
    ] {
        assert_eq!(read(LoadFormat::Cdb, input.as_bytes()).1.as_deref(), Some(error), "{input}");
    }
}

/// Cuts a dump at every byte: a format that promises to notice must not take a part for the
/// whole.
#[test]
fn a_dump_that_is_cut_short_is_noticed() {
    let records = pairs(&AWKWARD);
    for (dump, load) in [
        (DumpFormat::Cdb, LoadFormat::Cdb),
        (DumpFormat::Bytevalue, LoadFormat::Bytevalue),
        (DumpFormat::Print, LoadFormat::Print),
    ] {
        let whole = write(dump, &records);
        for len in 0..whole.len() - 1 {
            assert!(read(load, &whole[..len]).1.is_some(), "{dump:?} cut at {len}");
        }
    }
    for (dump, load) in [(DumpFormat::Hex, LoadFormat::Hex), (DumpFormat::Jsonl, LoadFormat::Jsonl)]
    {
        let whole = write(dump, &records);
        for len in 0..whole.len() {
            let (read_records, _) = read(load, &whole[..len]);
            assert_eq!(read_records, records[..read_records.len()], "{dump:?} cut at {len}");
        }
    }
}

proptest! {
    #[test]
    fn every_binary_safe_format_gives_back_arbitrary_records(
        records in prop::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 0..20),
    ) {
        for (dump, load) in DUMP_FORMATS {
            if dump != DumpFormat::Tsv {
                let written = write(dump, &records);
                prop_assert_eq!(read(load, &written), (records.clone(), None));
            }
        }
    }

    #[test]
    fn tsv_gives_back_what_it_accepts(key: Vec<u8>, value: Vec<u8>) {
        let mut out = Vec::new();
        if DumpFormat::Tsv.writer().write(&mut out, &key, &value).is_ok() {
            prop_assert_eq!(read(LoadFormat::Tsv, &out), (vec![(key, value)], None));
        }
    }

    #[test]
    fn no_reader_fails_on_arbitrary_bytes_other_than_by_an_error(bytes: Vec<u8>) {
        for load in LoadFormat::value_variants() {
            read(*load, &bytes);
        }
        detect(&bytes);
    }

    #[test]
    fn no_reader_fails_on_damaged_dumps_other_than_by_an_error(
        at: prop::sample::Index,
        byte: u8,
    ) {
        for (dump, load) in DUMP_FORMATS {
            if dump != DumpFormat::Tsv {
                let mut bytes = write(dump, &pairs(&AWKWARD));
                let at = at.index(bytes.len());
                bytes[at] = byte;
                read(load, &bytes);
            }
        }
    }
}

/// As the program writes it on machines of both byte orders, and on those of 32 bits.
#[test]
fn the_lengths_of_a_binary_gdbm_dump_are_detected_in_every_width_and_order() {
    let header = b"!\r\n! GDBM FLAT FILE DUMP -- THIS IS NOT A TEXT FILE\r\n! x\r\n!\r\n";
    let records = vec![(b"k".to_vec(), b"one".to_vec()), (Vec::new(), vec![0; 300])];
    for (before, behind) in [(0, 4), (4, 0), (0, 0)] {
        let mut dump = header.to_vec();
        for datum in records.iter().flat_map(|(key, value)| [key, value]) {
            dump.extend(vec![0; before]);
            dump.extend([0, 0, (datum.len() >> 8) as u8, datum.len() as u8]);
            dump.extend(vec![0; behind]);
            dump.extend(datum);
        }
        assert_eq!(read(LoadFormat::GdbmBinary, &dump), (records.clone(), None), "{before}");
        let (_, cut) = read(LoadFormat::GdbmBinary, &dump[..dump.len() - 1]);
        assert!(cut.is_some(), "{before}");
    }
}
