//! What a race was run on.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::programs::output;

/// A machine. Its kernel and its file system may change from race to race; all else makes it another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The name that `--machine` gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_name: Option<String>,
    pub processor: String,
    pub processor_count: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    /// Of the directory with the stores.
    pub file_system: String,
    pub huge_pages: String,
    pub lscpu: String,
}

/// What `lscpu` says of a processor that does not change from boot to boot.
const LSCPU_FACTS: [&str; 6] =
    ["CPU family:", "Model:", "Stepping:", "L1d cache:", "L2 cache:", "L3 cache:"];

impl Machine {
    pub fn read(stores: &Path, given_name: Option<String>) -> Self {
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
            given_name,
            processor: field("Model name:"),
            processor_count: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory_kib.unwrap_or(0) * 1024,
            kernel: output(Command::new("uname").args(["-s", "-r"])).unwrap_or_default(),
            file_system: output(Command::new("stat").args(stat).arg(stores)).unwrap_or_default(),
            huge_pages: pages.unwrap_or_default().trim().to_owned(),
            lscpu,
        }
    }

    /// Returns a short name for a directory: the given one, or family, model and processors, such as
    /// `xeon-207-2core`. Makers sell different processors under one family.
    pub fn name(&self) -> String {
        if let Some(name) = &self.given_name {
            return name.clone();
        }
        let makers = ["intel", "amd", "arm", "processor", "cpu", "r", "tm"];
        let model = self.processor.to_lowercase();
        let mut words = model.split(|letter: char| !letter.is_ascii_alphanumeric());
        let family = words.find(|word| !word.is_empty() && !makers.contains(word));
        let model = self.lscpu_line("Model:").replace("Model: ", "-");
        format!("{}{model}-{}core", family.unwrap_or("unknown"), self.processor_count)
    }

    /// Returns in what another machine differs, with both values; `None` if it may be the same.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let gib =
            |machine: &Self| format!("{} GiB of memory", machine.memory_bytes.div_ceil(1 << 30));
        let facts = |machine: &Self| {
            let count = format!("{} processors", machine.processor_count);
            let mut facts = vec![machine.name(), machine.processor.clone(), count, gib(machine)];
            facts.extend(LSCPU_FACTS.map(|name| machine.lscpu_line(name)));
            facts
        };
        let mut both = facts(self).into_iter().zip(facts(other));
        let (ours, theirs) = both.find(|(ours, theirs)| ours != theirs)?;
        Some(format!("`{ours}` and `{theirs}`"))
    }

    /// Returns a line of `lscpu`, with single spaces, or nothing.
    fn lscpu_line(&self, name: &str) -> String {
        let line = self.lscpu.lines().find(|line| line.trim().starts_with(name));
        line.map_or_else(String::new, |line| line.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_processor_memory_or_name_is_another_machine_and_another_kernel_is_not() {
        let machine = Machine {
            processor: "Intel(R) Xeon(R) Processor".into(),
            processor_count: 2,
            memory_bytes: 24 << 30,
            kernel: "Linux 6.1".into(),
            lscpu: "Model name: Xeon\n  Model:     143\nL3 cache:   260 MiB\n".into(),
            ..Machine::default()
        };
        let same =
            Machine { kernel: "Linux 6.18".into(), file_system: "xfs".into(), ..machine.clone() };
        assert_eq!(machine.difference(&same), None);
        let lscpu = machine.lscpu.replace("143", "207");
        let newer = Machine { lscpu, ..machine.clone() };
        assert_eq!(
            machine.difference(&newer).as_deref(),
            Some("`xeon-143-2core` and `xeon-207-2core`")
        );
        let larger = Machine { memory_bytes: 48 << 30, ..machine.clone() };
        assert!(machine.difference(&larger).expect("more memory").contains("48 GiB"));
        let lscpu = machine.lscpu.replace("260", "105");
        let smaller = Machine { lscpu, ..machine.clone() };
        let caches = Some("`L3 cache: 260 MiB` and `L3 cache: 105 MiB`");
        assert_eq!(machine.difference(&smaller).as_deref(), caches);
        let named = Machine { given_name: Some("rack-7".into()), ..machine.clone() };
        assert_eq!(machine.difference(&named).as_deref(), Some("`xeon-143-2core` and `rack-7`"));
    }

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
