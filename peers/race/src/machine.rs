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

    /// Returns a short name for a directory: `xeon-2core`.
    pub fn name(&self) -> String {
        let makers = ["intel", "amd", "arm", "processor", "cpu", "r", "tm"];
        let model = self.processor.to_lowercase();
        let mut words = model.split(|letter: char| !letter.is_ascii_alphanumeric());
        let family = words.find(|word| !word.is_empty() && !makers.contains(word));
        format!("{}-{}core", family.unwrap_or("unknown"), self.processor_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_by_its_family_and_cores() {
        for (processor, name) in [
            ("Intel(R) Xeon(R) Processor", "xeon-2core"),
            ("AMD EPYC 7B13", "epyc-2core"),
            ("?", "unknown-2core"),
        ] {
            let processor = processor.to_owned();
            let machine = Machine { processor, processor_count: 2, ..Machine::default() };
            assert_eq!(machine.name(), name);
        }
    }
}
