//! The body of the fuzz target `load_formats`. It is not an API and changes without notice.

use std::io::{self, Read};

use clap::ValueEnum;

use crate::format::{
    Contents, DumpFormat, Input, LoadFormat, ReadError, Record, WriteError, detect,
};

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A source that returns a few bytes at a time, with an interruption before each read.
struct Dribble {
    bytes: io::Cursor<Vec<u8>>,
    is_interrupted: bool,
}

impl Read for Dribble {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.is_interrupted = !self.is_interrupted;
        if self.is_interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let some = buf.len().min(3);
        self.bytes.read(&mut buf[..some])
    }
}

/// Reads all records, and returns the error after them, if any.
///
/// # Panics
///
/// If reading from memory fails, or the reader returns a record without consuming input.
fn read(format: LoadFormat, source: Box<dyn Read + Send>) -> (Pairs, Option<String>) {
    let mut input = Input::new(source);
    let mut reader = format.reader(None);
    let (mut record, mut records) = (Record::default(), Vec::new());
    loop {
        let before = input.offset();
        match reader.read(&mut input, &mut record) {
            Ok(true) => {
                assert!(input.offset() > before, "a record of no bytes: there is no end of them");
                records.push((record.key.clone(), record.value.clone()));
            }
            Ok(false) => return (records, None),
            Err(ReadError::Malformed { place, reason }) => {
                return (records, Some(format!("{place}: {reason}")));
            }
            Err(ReadError::Io(error)) => panic!("reading from memory failed: {error}"),
        }
    }
}

/// Returns a dump of `records`, or `None` if the format cannot hold one of them.
fn write(format: DumpFormat, records: &Pairs) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut writer = format.writer();
    let record_count = crate::number::count(records.len());
    writer
        .begin(&mut out, Contents { record_count, ..Contents::default() })
        .expect("memory takes all");
    for (key, value) in records {
        let len = out.len();
        match writer.write(&mut out, key, value) {
            Ok(()) => {}
            Err(WriteError::Unfit { .. }) => {
                assert_eq!(out.len(), len, "a refused record was written in part");
                return None;
            }
            Err(WriteError::Io(error)) => panic!("writing to memory failed: {error}"),
        }
    }
    writer.end(&mut out).expect("memory takes all");
    Some(out)
}

const fn load_format(format: DumpFormat) -> LoadFormat {
    match format {
        DumpFormat::Hex => LoadFormat::Hex,
        DumpFormat::Tsv => LoadFormat::Tsv,
        DumpFormat::Cdb => LoadFormat::Cdb,
        DumpFormat::Bytevalue | DumpFormat::Mdb => LoadFormat::Bytevalue,
        DumpFormat::Print => LoadFormat::Print,
        DumpFormat::Jsonl => LoadFormat::Jsonl,
        DumpFormat::GdbmAscii => LoadFormat::GdbmAscii,
        DumpFormat::GdbmBinary => LoadFormat::GdbmBinary,
    }
}

/// Reads the bytes after the first in the format that the first one selects, and passes the records
/// to every writer. Also runs the detection.
///
/// A source that dribbles must give the same records and the same error as one that does not, and
/// every dump must read back unchanged.
///
/// # Panics
///
/// If any of this does not hold.
pub fn load_formats(input: &[u8]) {
    let Some((&format, bytes)) = input.split_first() else { return };
    let formats = LoadFormat::value_variants();
    let format = formats[usize::from(format) % formats.len()];
    detect(bytes);
    let found = read(format, Box::new(io::Cursor::new(bytes.to_vec())));
    let dribble = Dribble { bytes: io::Cursor::new(bytes.to_vec()), is_interrupted: false };
    assert_eq!(read(format, Box::new(dribble)), found, "{format:?} depends on how bytes come");
    let (records, _) = found;
    for &format in DumpFormat::value_variants() {
        let Some(dump) = write(format, &records) else {
            assert_eq!(format, DumpFormat::Tsv, "{format:?} carries every record");
            continue;
        };
        let source = Box::new(io::Cursor::new(dump));
        let expected = (records.clone(), None);
        assert_eq!(read(load_format(format), source), expected, "{format:?} loses something");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Runs the saved inputs, among them those that failed once.
    #[test]
    fn every_input_of_the_corpus_passes() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/load_formats");
        let mut input_count = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            super::load_formats(&std::fs::read(&path).unwrap());
            input_count += 1;
        }
        assert!(input_count >= 7, "there is at least one for each format");
    }
}
