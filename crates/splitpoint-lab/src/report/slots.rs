//! The keys over the slots and nodes of a cluster.

use maud::html;

use super::chart::{Column, columns, legend};
use super::number::{counted, expected, fixed, grouped, percent};
use crate::document::{Bar, Block, Figure, Letters, Line, Table, cells, shown};
use crate::study::{NodeLoad, Slots};

/// Nodes of which a table names each; of more, the fullest and the emptiest.
const NODES_SHOWN: usize = 24;

/// Returns what to do, the facts, the picture of the nodes, and the fullest tags and slots.
pub(super) fn section(slots: &Slots) -> Vec<Block> {
    let advice = slots.advice().iter().map(|words| Line::sentence(words)).collect();
    let imbalance = format!(
        "{} times the mean, ideal {}, p = {:.4} of {}",
        fixed(slots.imbalance, 3),
        fixed(slots.imbalance_ideal, 3),
        slots.p,
        counted(slots.round_count, "trial")
    );
    let used = format!(
        "{} of 16,384, ideal {}",
        grouped(slots.used_slot_count),
        expected(slots.used_slot_ideal)
    );
    let tags = format!(
        "{} with a tag; {}, a key without one being its own",
        counted(slots.tagged_count, "key"),
        counted(slots.distinct_tag_count, "different tag")
    );
    let mut blocks = vec![
        Block::List("", advice),
        Block::Facts(vec![
            ("fullest node", imbalance.into()),
            ("slots in use", used.into()),
            ("hash tags", tags.into()),
        ]),
        Block::Figures(vec![nodes(slots)]),
    ];
    let tags = slots.heaviest_tags.iter();
    let tags = tags.map(|(tag, keys)| (Line::code(format!("{{{}}}", shown(tag))), *keys));
    let fullest = slots.fullest_slots.iter().map(|(slot, keys)| (slot.to_string().into(), *keys));
    for (caption, name, rows) in [
        ("The tags with most keys", "tag", tags.collect::<Vec<(Line, u64)>>()),
        ("The fullest slots", "slot", fullest.collect()),
    ] {
        let mut table = Table::new(caption).words([name]).numbers(["keys", "share"]);
        for (name, keys) in rows {
            let share = percent(keys as f64 / slots.key_count().max(1) as f64);
            table.push(cells![name, keys, share]);
        }
        if !table.is_empty() {
            blocks.push(Block::Table(table));
        }
    }
    blocks
}

fn nodes(slots: &Slots) -> Figure {
    let total = slots.key_count();
    let mean = total as f64 / slots.nodes.len().max(1) as f64;
    let most = slots.nodes.iter().map(|node| node.key_count).max().unwrap_or(1).max(1);
    let column = |(index, node): (usize, &NodeLoad)| Column {
        name: index.to_string(),
        value: node.key_count as f64,
        title: format!("node {index}: {}", counted(node.key_count, "key")),
    };
    let drawn: Vec<Column> = slots.nodes.iter().enumerate().map(column).collect();
    let titles = ["node, each with as many slots", "keys"];
    let title = format!("Keys of each of {}", counted(slots.nodes.len() as u64, "node"));
    let summary = format!(
        "The fullest node has {}, {} times the mean of {}.",
        counted(most, "key"),
        fixed(slots.imbalance, 3),
        expected(mean)
    );
    let legend = legend([
        (html! { rect.measured x="3" y="1" width="16" height="8" {} }, "keys"),
        (html! { path.ideal d="M1 5H21" {} }, "mean"),
    ]);
    let drawing = columns(&drawn, most as f64 * 1.05, Some(mean), titles);
    let (data, letters) = (Some(data(&slots.nodes, total, mean)), Letters::Data);
    Figure { legend, data, letters, ..Figure::new("nodes", title, summary, drawing) }
}

fn data(nodes: &[NodeLoad], total: u64, mean: f64) -> Table {
    let mut shown: Vec<(usize, &NodeLoad)> = (0..).zip(nodes).collect();
    let left_out = shown.len().saturating_sub(NODES_SHOWN);
    let mut caption = "Keys of the nodes".to_string();
    if left_out > 0 {
        shown.sort_by_key(|(_, node)| std::cmp::Reverse(node.key_count));
        shown.drain(NODES_SHOWN / 2..NODES_SHOWN / 2 + left_out);
        let between = counted(left_out as u64, "node");
        caption = format!("{caption}, the fullest and the emptiest: {between} between these");
    }
    let mut table =
        Table::new(caption).numbers(["node"]).words(["slots"]).numbers(["keys", "share"]);
    for (number, node) in shown {
        let slots = format!("{}-{}", node.first_slot, node.end_slot.saturating_sub(1));
        let share = percent(node.key_count as f64 / total.max(1) as f64);
        let bar = Bar { measured: node.key_count as f64, ideal: mean, band: None };
        table.push_bar(cells![number.to_string(), slots, node.key_count, share], bar);
    }
    table
}
