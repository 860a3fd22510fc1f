//! Detects the format of an input from its first bytes.

use super::{LoadFormat, hex};

/// The result of the detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detected {
    /// One of the formats.
    Format(LoadFormat),
    /// A known kind of input that `load` does not read.
    Foreign(Foreign),
    /// The format is uncertain, with the reason.
    Unclear(&'static str),
}

/// A known kind of input that `load` does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// A file of this program.
    Store,
    /// A file of gdbm.
    Gdbm,
    /// A file of Berkeley DB.
    BerkeleyDb,
    /// Compressed data, with the program that prints what it holds.
    Compressed(&'static str),
}

/// First bytes of a store.
const STORE_MAGICS: [&[u8]; 2] = [b"\x89SPLIT\r\n", b"\xcf\x9a\x57\x13SPLT"];

/// First bytes of compressed data, with the program that prints what it holds.
const COMPRESSED: [(&[u8], &str); 4] = [
    (&[0x1f, 0x8b], "zcat"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstdcat"),
    (b"\xfd7zXZ\0", "xzcat"),
    (b"BZh91AY&SY", "bzcat"),
];

/// Returns the format of an input that begins with `start`.
pub(crate) fn detect(start: &[u8]) -> Detected {
    if let Some(foreign) = detect_foreign(start) {
        return Detected::Foreign(foreign);
    }
    if start.starts_with(b"VERSION=") {
        let is_print = start.windows(14).take(4096).any(|window| window == b"\nformat=print\n");
        return Detected::Format(if is_print { LoadFormat::Print } else { LoadFormat::Bytevalue });
    }
    if start.starts_with(b"# GDBM dump") {
        return Detected::Format(LoadFormat::GdbmAscii);
    }
    if start.starts_with(b"!\r\n! GDBM") {
        return Detected::Format(LoadFormat::GdbmBinary);
    }
    if is_cdb(start) {
        return Detected::Format(LoadFormat::Cdb);
    }
    if start.contains(&0) {
        return Detected::Unclear("it holds NUL bytes");
    }
    detect_by_lines(&whole_lines(start))
}

/// Returns the lines of `start`, at least one, without a last one that may be incomplete.
fn whole_lines(start: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = start.split(|byte| *byte == b'\n').collect();
    let last = lines.pop().unwrap_or_default();
    if lines.is_empty() {
        lines.push(last);
    }
    lines
}

fn detect_by_lines(lines: &[&[u8]]) -> Detected {
    let has_tab = |line: &[u8]| line.contains(&b'\t');
    let is_object = |line: &[u8]| {
        let line = line.trim_ascii();
        line.starts_with(b"{") && line.contains(&b'"')
    };
    let first = lines.first().copied().unwrap_or_default();
    if is_object(first) {
        Detected::Format(LoadFormat::Jsonl)
    } else if lines.iter().all(|line| hex::is_record(line)) {
        Detected::Format(LoadFormat::Hex)
    } else if lines.iter().all(|line| has_tab(line)) {
        Detected::Format(LoadFormat::Tsv)
    } else if !lines.iter().any(|line| has_tab(line)) {
        Detected::Format(LoadFormat::Lines)
    } else {
        Detected::Unclear("some lines have a TAB and some have none")
    }
}

/// Returns whether `start` is the start of a cdb dump: a record's lengths or the final line.
fn is_cdb(start: &[u8]) -> bool {
    if start == b"\n" {
        return true;
    }
    let Some(rest) = start.strip_prefix(b"+") else { return false };
    let after_digits = |bytes: &[u8], end: u8| -> Option<usize> {
        let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (digits > 0 && bytes.get(digits) == Some(&end)).then_some(digits + 1)
    };
    after_digits(rest, b',').is_some_and(|used| after_digits(&rest[used..], b':').is_some())
}

fn detect_foreign(start: &[u8]) -> Option<Foreign> {
    const GDBM_MAGICS: [[u8; 4]; 6] = [
        [0xce, 0x9a, 0x57, 0x13],
        [0xcd, 0x9a, 0x57, 0x13],
        [0xcf, 0x9a, 0x57, 0x13],
        [0xd0, 0x9a, 0x57, 0x13],
        [0x13, 0x57, 0x9a, 0xce],
        [0x13, 0x57, 0x9a, 0xcf],
    ];
    const BERKELEY_MAGICS: [[u8; 4]; 4] = [
        [0x61, 0x15, 0x06, 0x00],
        [0x00, 0x06, 0x15, 0x61],
        [0x62, 0x31, 0x05, 0x00],
        [0x00, 0x05, 0x31, 0x62],
    ];
    if STORE_MAGICS.iter().any(|magic| start.starts_with(magic)) {
        return Some(Foreign::Store);
    }
    if GDBM_MAGICS.iter().any(|magic| start.starts_with(magic)) {
        return Some(Foreign::Gdbm);
    }
    // db 1.85 has its magic number at the start, later versions at byte 12.
    let later = start.get(12..).unwrap_or_default();
    if BERKELEY_MAGICS.iter().any(|magic| start.starts_with(magic) || later.starts_with(magic)) {
        return Some(Foreign::BerkeleyDb);
    }
    COMPRESSED
        .iter()
        .find(|(magic, _)| start.starts_with(magic))
        .map(|(_, program)| Foreign::Compressed(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(start: &[u8], expected: LoadFormat) {
        assert_eq!(detect(start), Detected::Format(expected), "{}", start.escape_ascii());
    }

    #[test]
    fn every_format_is_recognized() {
        check(b"616263 646566\n- -\n", LoadFormat::Hex);
        check(b"apple\nbanana\n", LoadFormat::Lines);
        check(b"apple\tred\nbanana\tyellow\n", LoadFormat::Tsv);
        check(b"+5,3:alpha->one\n\n", LoadFormat::Cdb);
        check(b"VERSION=3\nformat=bytevalue\ntype=hash\nHEADER=END\n", LoadFormat::Bytevalue);
        check(b"VERSION=3\nformat=print\ntype=hash\nHEADER=END\n", LoadFormat::Print);
        check(b"{\"key\":\"a\",\"value\":\"b\"}\n", LoadFormat::Jsonl);
        check(b"# GDBM dump file created by GDBM version 1.23", LoadFormat::GdbmAscii);
        check(b"!\r\n! GDBM FLAT FILE DUMP", LoadFormat::GdbmBinary);
    }

    #[test]
    fn what_only_looks_like_a_format_is_not_taken_for_it() {
        check(b"dead beef\ncafe babe\ncoffee\n", LoadFormat::Lines);
        check(b"+1 for that\n", LoadFormat::Lines);
        check(b"{curly\n", LoadFormat::Lines);
        check(b"one line without newline", LoadFormat::Lines);
        check(b"", LoadFormat::Lines);
    }

    #[test]
    fn a_line_that_may_go_on_is_not_judged() {
        check(b"apple\tred\nbana", LoadFormat::Tsv);
        assert!(matches!(detect(b"apple\tred\nbanana\n"), Detected::Unclear(_)));
    }

    #[test]
    fn foreign_files_are_named() {
        for (start, foreign) in [
            (&b"\x89SPLIT\r\n\x01"[..], Foreign::Store),
            (b"\xcf\x9a\x57\x13SPLT\x01", Foreign::Store),
            (b"\xcf\x9a\x57\x13\0\0", Foreign::Gdbm),
            (b"\0\0\0\0\x01\0\0\0\0\0\0\0\x61\x15\x06\0", Foreign::BerkeleyDb),
            (b"\x1f\x8b\x08", Foreign::Compressed("zcat")),
            (b"\x28\xb5\x2f\xfd\x04", Foreign::Compressed("zstdcat")),
            (b"\xfd7zXZ\0\0", Foreign::Compressed("xzcat")),
            (b"BZh91AY&SY\xc0", Foreign::Compressed("bzcat")),
        ] {
            assert_eq!(detect(start), Detected::Foreign(foreign));
        }
        assert!(matches!(detect(b"a\0b\n"), Detected::Unclear(_)));
    }
}
