//! Buffers as Linux 6.x finds them: the 16 most recent of a processor, then the xarray of the device.
//!
//! A trace does not tell which processor did what, so one processor does it all. Entries are compared
//! from the most recent on; what is found goes to the front, what is not is looked up in the xarray of
//! the device, which is as deep as its largest block so far needs, and goes to the front too.
//!
//! # Source
//!
//! `fs/buffer.c` of 6.x, `BH_LRU_SIZE`: its behavior, written from the description of it.

use super::trees::{SLOT_BITS, levels_of, lines_of};
use super::{BufferKey, KernelTable, Step, Streams, TreeReplay};

/// Entries of a processor.
const RECENT_COUNT: usize = 16;
/// Entries in a line of 64 bytes.
const ENTRIES_PER_LINE: u64 = 8;

/// Returns what the lookups of buffers visit today: the buffers compared, and the nodes of the xarray.
///
/// A block counts as a page of the device, which it is where blocks have 4096 bytes. Nothing is removed from the recent buffers when a trace removes a block: no trace has such an
/// event.
pub fn recent_buffers(streams: &Streams) -> TreeReplay {
    let keys = streams.buffer.keys();
    let mut largest: Vec<u64> = Vec::new();
    let mut recent: Vec<BufferKey> = Vec::with_capacity(RECENT_COUNT + 1);
    let mut sum = TreeReplay::new(KernelTable::Buffer, "16 recent, then xarray");
    for step in streams.buffer.steps() {
        let (object, count) = match *step {
            Step::Hit(object, count) => (object, u64::from(count)),
            Step::Miss(object) => (object, 1),
            Step::Insert(_) | Step::Remove(_) => continue,
        };
        let key = keys[object as usize];
        let device = key.device as usize;
        if largest.len() <= device {
            largest.resize(device + 1, 0);
        }
        let place = recent.iter().position(|it| *it == key);
        let (compared, nodes, lines) = if let Some(place) = place {
            recent.remove(place);
            (place as u64 + 1, 0, 0)
        } else {
            let levels = levels_of(largest[device]);
            let node_lines =
                (0..levels).map(|level| lines_of(key.block >> (SLOT_BITS * level))).sum();
            (recent.len() as u64, u64::from(levels), node_lines)
        };
        recent.insert(0, key);
        recent.truncate(RECENT_COUNT);
        largest[device] = largest[device].max(key.block);
        // A line of each buffer that is compared, and those of the entries.
        let entry_lines = compared.div_ceil(ENTRIES_PER_LINE).max(1);
        sum.add(1, compared + nodes, entry_lines + compared + lines);
        // The same again finds it first.
        sum.add(count - 1, 1, 2);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::{Shrink, Trace, trace::FIRST_LINE};
    use super::*;

    fn replay(events: &str) -> TreeReplay {
        let text = format!("{FIRST_LINE}\n{events}");
        let trace = Trace::new(text.as_bytes()).unwrap();
        recent_buffers(&Streams::read(trace, Shrink::None, |_| {}).unwrap())
    }

    #[test]
    fn recent_buffers_visit_what_was_counted_by_hand() {
        // An empty tree of one node; block 7 behind 9; 9 is second, then first twice.
        let found = replay("B 1 4096 9\nB 1 4096 7\nB 1 4096 9\nB 1 4096 9 x2\n");
        assert_eq!((found.lookup_count, found.deepest), (5, 2));
        assert_eq!(found.visited, 1 + (1 + 1) + 2 + 1 + 1);
        // Blocks 9 and 7 are behind the first three slots of the node.
        assert_eq!(found.line_count, (1 + 2) + (1 + 1 + 2) + (1 + 2) + 2 + 2);
    }

    #[test]
    fn the_seventeenth_buffer_drives_the_first_out() {
        let blocks: Vec<String> = (0..17).map(|block| format!("B 1 4096 {block}\n")).collect();
        let blocks = blocks.concat();
        let all = replay(&blocks);
        let again = replay(&format!("{blocks}B 1 4096 0\n"));
        assert_eq!(again.visited - all.visited, 16 + 1, "16 compared in vain, then a node");
        let second = replay(&format!("{blocks}B 1 4096 1\n"));
        assert_eq!(second.visited - all.visited, 16, "the last of those that are kept");
    }
}
