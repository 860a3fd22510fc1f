//! Captures of tracefs, made into the events of pages and buffers.
//!
//! The text of an instance's `trace` or `trace_pipe` with the events of filemap and ext4, and of block the
//! two of buffers. A capture that lost events is refused: its replay would miss lookups.

use std::collections::BTreeSet;
use std::io::BufRead;

use super::{CaptureError, DeviceFacts, TraceWriter, next_line};

const PAGE_SHIFT: u32 = 12;
/// Largest order of a folio: one of 1 GiB.
const ORDER_MAX: u64 = 18;

/// What became of a capture.
#[derive(Debug)]
pub struct Import {
    /// The trace.
    pub writer: TraceWriter,
    /// Lines with events that are in the trace.
    pub event_count: u64,
    /// Lines with other events.
    pub other_count: u64,
    /// Lines of devices that were not asked for.
    pub left_out_count: u64,
}

/// Makes a trace of a capture; of all devices, or of those with these numbers, such as `8:1`.
///
/// # Errors
///
/// [`CaptureError`] with the number of a line that says that events were lost, or that has an event
/// without its fields, or if no line has an event.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::capture::tracefs;
///
/// let text = "cat-7 [000] ..... 1.5: mm_filemap_get_pages: dev=8:1 ino=d ofs=0-8191\n";
/// let import = tracefs::import(text.as_bytes(), &[], |_| {})?;
/// let mut trace = Vec::new();
/// import.writer.write("cat", "tracefs", &mut trace)?;
/// assert!(trace.ends_with(b"\nG 1 13 0 2\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn import(
    mut input: impl BufRead,
    devices: &[String],
    mut progress: impl FnMut(u64),
) -> Result<Import, CaptureError> {
    let wanted: BTreeSet<u64> = devices.iter().filter_map(|text| device_id(text)).collect();
    let mut import = Import {
        writer: TraceWriter::default(),
        event_count: 0,
        other_count: 0,
        left_out_count: 0,
    };
    let (mut line, mut line_number) = (Vec::new(), 1);
    while next_line(&mut input, &mut line, line_number)? {
        let text = String::from_utf8_lossy(&line);
        import.follow(&text, &wanted).map_err(|reason| CaptureError { line_number, reason })?;
        line_number += 1;
        if line_number.is_multiple_of(1 << 12) {
            progress(line_number);
        }
    }
    if import.event_count + import.left_out_count == 0 {
        let reason =
            "no event of pages or buffers: this is no text of tracefs, or other events were \
                      enabled"
                .to_owned();
        return Err(CaptureError { line_number: line_number - 1, reason });
    }
    Ok(import)
}

/// Returns how many events a CPU lost, by the text of its `stats`.
///
/// # Errors
///
/// The name of the number that is missing.
pub fn lost(stats: &str) -> Result<u64, String> {
    let number = |name: &str| -> Result<u64, String> {
        let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|text| text.trim().parse().ok()).ok_or_else(|| format!("no line `{name}: N`"))
    };
    Ok(number("overrun")?.saturating_add(number("dropped events").unwrap_or(0)))
}

impl Import {
    fn follow(&mut self, line: &str, wanted: &BTreeSet<u64>) -> Result<(), String> {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            return complete(comment);
        }
        if line.contains("LOST ") && line.contains(" EVENTS]") {
            return Err(format!(
                "events are lost, as `{line}` says: give each CPU a larger buffer"
            ));
        }
        let Some((name, fields)) = event(line) else {
            return match line {
                "" => Ok(()),
                _ => Err(format!("`{}` is no event of tracefs", shortened(line))),
            };
        };
        let Some(kind) = Kind::of(name) else {
            self.other_count += 1;
            return Ok(());
        };
        let fields = Fields { text: fields };
        let id = fields.device().ok_or_else(|| missing("dev", fields.text))?;
        if !wanted.is_empty() && !wanted.contains(&id) {
            self.left_out_count += 1;
            return Ok(());
        }
        let device = self.writer.device(id, DeviceFacts::default)?;
        self.event_count += 1;
        self.write(kind, device, &fields)
    }

    fn write(&mut self, kind: Kind, device: u32, fields: &Fields<'_>) -> Result<(), String> {
        let number = |name: &str, radix| {
            fields.number(name, radix).ok_or_else(|| missing(name, fields.text))
        };
        match kind {
            Kind::Folio(letter) => {
                let order = fields.number("order", 10).unwrap_or(0);
                if order > ORDER_MAX {
                    return Err(format!("a folio of order {order}"));
                }
                let owner = format!("{device} {}", number("ino", 16)?);
                self.writer.pages(letter, &owner, number("ofs", 10)? >> PAGE_SHIFT, 1 << order);
            }
            Kind::Range(letter) => {
                let owner = format!("{device} {}", number("ino", 16)?);
                let start = number("ofs", 10)?;
                let end = fields.range_end().unwrap_or(start);
                let first = start >> PAGE_SHIFT;
                let count = (end >> PAGE_SHIFT)
                    .checked_sub(first)
                    .ok_or_else(|| format!("a range ends before its start: `{}`", fields.text))?;
                self.writer.pages(letter, &owner, first, count + 1);
            }
            Kind::Write => {
                let owner = format!("{device} {}", number("ino", 10)?);
                let (start, bytes) = (number("pos", 10)?, number("len", 10)?.max(1));
                let first = start >> PAGE_SHIFT;
                let last = start.saturating_add(bytes - 1) >> PAGE_SHIFT;
                self.writer.pages('W', &owner, first, last - first + 1);
            }
            Kind::Free => {
                let inode = number("ino", 10)?;
                self.writer.event(format!("E {device} {inode}"));
            }
            Kind::Buffer(letter) => {
                let (bytes, block) = (number("size", 10)?, number("sector", 10)?);
                self.writer.event(format!("{letter} {device} {bytes} {block}"));
            }
        }
        Ok(())
    }
}

/// What an event says.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A folio came or went.
    Folio(char),
    /// Pages from one offset to another.
    Range(char),
    Write,
    Free,
    /// A buffer; its sector counts in units of its size.
    Buffer(char),
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "mm_filemap_add_to_page_cache" => Self::Folio('A'),
            "mm_filemap_delete_from_page_cache" => Self::Folio('X'),
            "mm_filemap_get_pages" => Self::Range('G'),
            "mm_filemap_map_pages" => Self::Range('M'),
            "mm_filemap_fault" => Self::Range('F'),
            "ext4_write_begin" | "ext4_da_write_begin" => Self::Write,
            "ext4_free_inode" => Self::Free,
            "block_touch_buffer" => Self::Buffer('B'),
            "block_dirty_buffer" => Self::Buffer('D'),
            _ => return None,
        })
    }
}

/// Checks the comment that counts what was written and what is still there.
fn complete(comment: &str) -> Result<(), String> {
    let Some(counts) = comment.trim().strip_prefix("entries-in-buffer/entries-written: ") else {
        return Ok(());
    };
    let counts = counts.split_whitespace().next().unwrap_or_default();
    match counts.split_once('/') {
        Some((there, written)) if there == written => Ok(()),
        _ => Err(format!(
            "events are lost: {counts} are in the buffer and were written; give each CPU a larger one"
        )),
    }
}

/// Returns the name of an event and its fields: what follows the time.
fn event(line: &str) -> Option<(&str, &str)> {
    // The name of the task may have anything in it, but no other bracket before a CPU.
    let after_cpu = line.match_indices("] ").find_map(|(end, _)| {
        let start = line[..end].rfind('[')?;
        let cpu = &line[start + 1..end];
        (!cpu.is_empty() && cpu.bytes().all(|it| it.is_ascii_digit())).then(|| &line[end + 2..])
    })?;
    let (before, fields) = after_cpu.split_once(": ")?;
    let is_time = |text: &str| text.bytes().all(|it| it.is_ascii_digit() || it == b'.');
    if !before.split_whitespace().next_back().is_some_and(is_time) {
        return None;
    }
    let (name, fields) = fields.split_once(':')?;
    Some((name.trim(), fields.trim()))
}

/// The fields of an event: `name=value` or `name value`.
struct Fields<'line> {
    text: &'line str,
}

impl<'line> Fields<'line> {
    fn value(&self, name: &str) -> Option<&'line str> {
        let mut words = self.text.split_whitespace();
        while let Some(word) = words.next() {
            if word == name {
                return words.next();
            }
            if let Some(value) = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
                return Some(value);
            }
        }
        None
    }

    fn number(&self, name: &str, radix: u32) -> Option<u64> {
        let value = self.value(name)?;
        let end = value.find(|letter: char| !letter.is_digit(radix)).unwrap_or(value.len());
        u64::from_str_radix(&value[..end], radix).ok()
    }

    /// Returns the number of the device: that of a field, or the first word.
    fn device(&self) -> Option<u64> {
        device_id(self.value("dev").or_else(|| self.text.split_whitespace().next())?)
    }

    /// Returns where a range ends, as kernels of two ages print it.
    fn range_end(&self) -> Option<u64> {
        if let Some(end) = self.number("max_ofs", 10) {
            return Some(end);
        }
        let (_, end) = self.value("ofs")?.split_once('-')?;
        end.parse().ok()
    }
}

/// Reads the numbers of a device: `8:1` or `8,1`.
fn device_id(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once([':', ','])?;
    let number = |text: &str| text.parse::<u32>().ok().map(u64::from);
    Some(number(major)? << 32 | number(minor)?)
}

/// Returns whether a text names a device as [`import`] takes it.
pub fn is_device(text: &str) -> bool {
    device_id(text).is_some()
}

fn missing(name: &str, fields: &str) -> String {
    format!("an event has no number `{name}`: `{}`", shortened(fields))
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 9/9   #P:2
#
             cat-31890   [001] ..... 100.000001: mm_filemap_add_to_page_cache: dev 254:0 ino d pfn=0x1 ofs=16384 order=2
     a [0] b-c d-31890   [000] d..2. 100.000002: mm_filemap_get_pages: dev=254:0 ino=d ofs=0-12287
             cat-31890   [000] ..... 100.000003: mm_filemap_map_pages: dev=254:0 ino=d ofs=4096 max_ofs=8192
             cat-31890   [000] ..... 100.000004: mm_filemap_fault: dev=254:0 ino=d ofs=4096
             cat-31890   [000] ..... 100.000004: mm_filemap_fault: dev=254:0 ino=d ofs=4096
             cat-31890   [000] ..... 100.000005: ext4_da_write_begin: dev 254,0 ino 15 pos 4095 len 2
             cat-31890   [000] ..... 100.000006: ext4_free_inode: dev 254,0 ino 15 mode 0100644 uid 0 gid 0 blocks 8
             cat-31890   [000] ..... 100.000007: block_touch_buffer: 7,1 sector=8195 size=1024
             cat-31890   [000] ..... 100.000008: block_dirty_buffer: 7,1 sector=8195 size=1024
             cat-31890   [000] ..... 100.000009: mm_filemap_delete_from_page_cache: dev 254:0 ino d pfn=0x1 ofs=0 order=0
             cat-31890   [000] ..... 100.000009: sched_switch: prev_comm=a
";

    fn events(text: &str, devices: &[String]) -> Result<Vec<String>, CaptureError> {
        let mut out = Vec::new();
        let import = import(text.as_bytes(), devices, |_| {})?;
        import.writer.write("t", "test", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        Ok(text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
    }

    #[test]
    fn every_event_becomes_the_line_that_it_means() {
        let expected = [
            "A 1 13 4 4",
            "G 1 13 0 3",
            "M 1 13 1 2",
            "F 1 13 1 1 x2",
            "W 1 15 0 2",
            "E 1 15",
            "B 2 1024 8195",
            "D 2 1024 8195",
            "X 1 13 0 1",
        ];
        assert_eq!(events(LINES, &[]).unwrap(), expected);
        assert_eq!(events(LINES, &["7:1".to_owned()]).unwrap(), ["B 1 1024 8195", "D 1 1024 8195"]);
    }

    #[test]
    fn a_capture_that_lost_events_is_refused_with_the_line() {
        let lost_line = LINES.replace("# tracer: nop", "CPU:1 [LOST 5 EVENTS]");
        let error = events(&lost_line, &[]).unwrap_err();
        assert_eq!((error.line_number, error.reason.starts_with("events are lost")), (1, true));
        let error = events(&LINES.replace("9/9", "9/10"), &[]).unwrap_err();
        assert_eq!((error.line_number, error.reason.starts_with("events are lost")), (3, true));
        let stats =
            "entries: 5\noverrun: 3\ncommit overrun: 0\ndropped events: 4\nread events: 9\n";
        assert_eq!((lost(stats), lost("entries: 5\n").is_err()), (Ok(7), true));
    }

    #[test]
    fn lines_that_are_no_events_are_refused() {
        let line = |payload: &str| format!("a-1 [000] ..... 1.0: {payload}\n");
        for text in [
            "hello\n".to_owned(),
            String::new(),
            line("sched_switch: prev"),
            line("mm_filemap_fault: dev=8:1 ino=d"),
            line("mm_filemap_fault: ino=d ofs=1"),
            line("mm_filemap_get_pages: dev=8:1 ino=d ofs=8192-0"),
            line("mm_filemap_add_to_page_cache: dev 8:1 ino d ofs=0 order=60"),
            line("block_touch_buffer: 8,1 sector=x size=1"),
        ] {
            assert!(events(&text, &[]).is_err(), "{text}");
        }
        assert!(is_device("8:1") && is_device("259,3") && !is_device("sda1"));
    }
}
