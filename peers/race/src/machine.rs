//! What a race was run on.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::programs::output;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub processor_count: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    /// Of the directory with the stores.
    pub file_system: String,
    pub huge_pages: String,
    pub lscpu: String,
}

impl Machine {
    pub fn read(stores: &Path) -> Self {
        let lscpu = output(&mut Command::new("lscpu")).unwrap_or_default();
        let field = |name: &str| {
            let value = lscpu.lines().find_map(|line| line.trim().strip_prefix(name));
            value.map_or("?", str::trim).to_owned()
        };
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory_kib = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))
            .and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let pages = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let stat = ["--file-system", "--format", "%T"];
        Self {
            processor: field("Model name:"),
            processor_count: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory_kib.unwrap_or(0) * 1024,
            kernel: output(Command::new("uname").args(["-s", "-r"])).unwrap_or_default(),
            file_system: output(Command::new("stat").args(stat).arg(stores)).unwrap_or_default(),
            huge_pages: pages.unwrap_or_default().trim().to_owned(),
            lscpu,
        }
    }
}
