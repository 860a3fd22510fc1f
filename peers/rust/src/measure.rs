//! What is measured beside the clock: latencies, memory, space on disk, and what else ran.

use std::fmt::{self, Write as _};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often an operation took how long: buckets of a sixteenth of a power of two.
#[derive(Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, time: Duration) {
        if self.counts.is_empty() {
            self.counts = vec![0; 61 * 16];
        }
        self.counts[bucket(time.as_nanos() as u64)] += 1;
        self.total += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the upper end, in nanoseconds, of the bucket in which this part of all is.
    pub(crate) fn at(&self, part: f64) -> u64 {
        let rank = (part * (self.total - 1) as f64) as u64;
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen > rank
        });
        upper(found.unwrap_or(self.counts.len() - 1))
    }
}

fn bucket(ns: u64) -> usize {
    if ns < 16 {
        return ns as usize;
    }
    let log = ns.ilog2();
    (log as usize - 3) * 16 + (ns >> (log - 4) & 15) as usize
}

fn upper(i: usize) -> u64 {
    if i < 16 { i as u64 } else { (i as u64 % 16 + 17) << (i / 16 - 1) }
}

/// What the processors have done, in ticks of the kernel.
pub(crate) struct Load {
    busy: u64,
    stolen: u64,
    own: u64,
    at: Instant,
}

/// Ticks in a second: what Linux shows to programs on every architecture.
const TICKS: f64 = 100.0;

impl Load {
    pub(crate) fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields: Vec<u64> = text
            .lines()
            .next()
            .unwrap_or("")
            .split_whitespace()
            .skip(1)
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let field = |i: usize| fields.get(i).copied().unwrap_or(0);
        // user, nice, system, idle, iowait, irq, softirq, steal
        let busy = field(0) + field(1) + field(2) + field(5) + field(6);
        Self { busy, stolen: field(7), own: own_ticks(), at: Instant::now() }
    }

    /// Appends how many processors this process, others and the host have used since.
    pub(crate) fn print_since(&self, line: &mut String) -> fmt::Result {
        let now = Self::now();
        let ticks = ((now.at - self.at).as_secs_f64() * TICKS).max(1.0);
        let own = (now.own - self.own) as f64;
        let others = ((now.busy - self.busy) as f64 - own).max(0.0) / ticks;
        let stolen = (now.stolen - self.stolen) as f64 / ticks;
        write!(line, ",\"others_cpus\":{others:.3},\"stolen_cpus\":{stolen:.3}")?;
        write!(line, ",\"own_cpus\":{:.3}", own / ticks)
    }
}

/// Returns the fields of `/proc/self/stat` after the name, which may hold spaces.
fn own_stat() -> Vec<u64> {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    after.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect()
}

fn own_ticks() -> u64 {
    let fields = own_stat();
    let field = |i: usize| fields.get(i).copied().unwrap_or(0);
    field(11) + field(12)
}

/// Returns how many page faults this process has had.
pub(crate) fn faults() -> u64 {
    let fields = own_stat();
    let field = |i: usize| fields.get(i).copied().unwrap_or(0);
    field(7) + field(9)
}

/// Returns how many bytes this process has had the device read, by calls or by page faults.
pub(crate) fn device_read_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// Returns a field of `/proc/self/status` in bytes.
pub(crate) fn status_bytes(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = value.and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Returns the lengths of all files in `dir`, and the bytes that are allocated for them.
pub(crate) fn space(dir: &Path) -> (u64, u64) {
    let Ok(entries) = fs::read_dir(dir) else { return (0, 0) };
    let (mut file_bytes, mut disk_bytes) = (0, 0);
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        let (file, disk) = if metadata.is_dir() {
            space(&entry.path())
        } else {
            (metadata.len(), metadata.blocks() * 512)
        };
        file_bytes += file;
        disk_bytes += disk;
    }
    (file_bytes, disk_bytes)
}
