//! Limits of this process: available memory, and address space left.

use std::fs;
use std::path::{Path, PathBuf};

/// Directory of the control groups, the controllers in the line of `/proc/self/cgroup` that names
/// this process's group, and the file with its limit: version 2, version 1.
const HIERARCHIES: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup", "", "memory.max"),
    ("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes"),
];

/// Returns the memory in bytes that this process may use, page cache included: that of the machine,
/// or less if a control group limits it, as that of a container does.
///
/// Costs a few reads of files in `/proc` and `/sys`, tens of microseconds.
pub(super) fn memory_limit_bytes() -> u64 {
    if cfg!(miri) {
        return 0;
    }
    let info = rustix::system::sysinfo();
    let of_machine = info.totalram as u64 * u64::from(info.mem_unit);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files = limit_files(&groups).into_iter();
    least(of_machine, files.filter_map(|path| fs::read_to_string(path).ok()))
}

/// Returns whether this process may use so many bytes of memory at all.
pub(crate) fn fits_in_memory(bytes: u64) -> bool {
    cfg!(miri) || bytes <= memory_limit_bytes()
}

/// Returns how many bytes of an index may be locked in memory: five eighths of what this process
/// may use beside its private memory. The rest is for the log, which is read at random.
pub(super) fn locked_bytes_max() -> u64 {
    memory_limit_bytes().saturating_sub(private_bytes()) / 8 * 5
}

/// Returns the bytes of this process's memory that are no part of a file, or 0 if unknown.
fn private_bytes() -> u64 {
    let statistics = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = statistics.split(' ').skip(1).map_while(|count| count.parse::<u64>().ok());
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared).saturating_mul(rustix::param::page_size() as u64)
}

/// Returns the least of the machine's memory and the limits in the texts of limit files. Version 2
/// writes "max" for no limit.
fn least(of_machine: u64, texts: impl IntoIterator<Item = String>) -> u64 {
    let limits = texts.into_iter().filter_map(|text| text.trim().parse::<u64>().ok());
    limits.fold(of_machine, u64::min)
}

/// Returns how many bytes of address space this process may still reserve. The limit is 64 TiB, half
/// of x86-64's and a guess elsewhere, or `ulimit -v` if that is less.
#[cfg(not(miri))]
pub(super) fn address_space_left_bytes() -> u64 {
    const ADDRESS_SPACE_BYTES: u64 = 64 << 40;
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
    let statistics = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let used_pages = statistics.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    let used_bytes = used_pages.unwrap_or(0).saturating_mul(rustix::param::page_size() as u64);
    limit.unwrap_or(u64::MAX).min(ADDRESS_SPACE_BYTES).saturating_sub(used_bytes)
}

#[cfg(miri)]
pub(super) fn address_space_left_bytes() -> u64 {
    0
}

/// Returns the limit files of a process's groups and of their ancestors. Each line of `groups` is
/// `number:controllers:path`.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (root, controller, file) in HIERARCHIES {
        let path_of = |line: &'_ str| {
            let mut fields = line.splitn(3, ':').skip(1);
            let is_ours = fields.next()?.split(',').any(|name| name == controller);
            fields.next().filter(|_| is_ours).map(str::to_owned)
        };
        let Some(path) = groups.lines().find_map(path_of) else { continue };
        // Inside a container the path may be that of the host, and then only the root exists.
        let inside = Path::new(path.trim_start_matches('/'));
        files.extend(inside.ancestors().map(|group| Path::new(root).join(group).join(file)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts_and_max_is_none() {
        let limit = |texts: &[&str]| least(1000, texts.iter().map(ToString::to_string));
        assert_eq!(limit(&["max\n", "700\n", "800\n"]), 700);
        assert_eq!(limit(&["max\n", "9223372036854771712\n"]), 1000);
        assert_eq!(limit(&[]), 1000);
    }

    #[test]
    fn the_limits_of_all_groups_around_a_process_count() {
        let paths = |groups| {
            let files = limit_files(groups);
            files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            paths("0::/a/b\n"),
            [
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        let first = "9:cpu,cpuacct:/\n4:name=x,memory:/a:b\n";
        assert_eq!(
            paths(first),
            [
                "/sys/fs/cgroup/memory/a:b/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
        assert_eq!(paths("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
        assert!(paths("").is_empty() && paths("nonsense\n1:x\n").is_empty());
        assert!(memory_limit_bytes() > 0);
    }
}
