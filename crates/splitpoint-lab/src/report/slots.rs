//! The keys over the slots and nodes of a cluster.

use maud::{Markup, html};

use super::chart::{Axis, Figure, SIDES, at, frame, legend};
use super::number::{counted, expected, fixed, grouped, p_is, percent};
use super::plain::shown;
use super::scale::{Scale, Tick};
use super::table::{Table, facts};
use crate::study::Slots;

/// Returns the facts, the picture of the nodes, and the fullest tags and slots.
pub(super) fn section(slots: &Slots) -> Markup {
    html! {
        (facts([
            ("fullest node", html! {
                (fixed(slots.imbalance, 3)) " times the mean, ideal "
                (fixed(slots.imbalance_ideal, 3)) ", " (p_is(slots.p))
            }),
            ("slots in use", html! {
                (grouped(slots.used_slot_count)) " of 16,384, ideal "
                (expected(slots.used_slot_ideal))
            }),
            ("hash tags", html! {
                (counted(slots.tagged_count, "key")) " with a tag, "
                (grouped(slots.distinct_tag_count)) " different tags or keys without"
            }),
        ]))
        div.charts { (nodes(slots).render()) }
        @if !slots.heaviest_tags.is_empty() { (tags(slots).render()) }
        @if !slots.fullest_slots.is_empty() { (fullest(slots).render()) }
    }
}

fn nodes(slots: &Slots) -> Figure {
    let total: u64 = slots.nodes.iter().map(|node| node.key_count).sum();
    let mean = total as f64 / slots.nodes.len().max(1) as f64;
    let most = slots.nodes.iter().map(|node| node.key_count).max().unwrap_or(1).max(1) as f64;
    let mut data = Table::new("Keys of the nodes")
        .numbers("node")
        .words("slots")
        .numbers("keys")
        .numbers("share");
    for (index, node) in slots.nodes.iter().enumerate() {
        data.push([
            (index + 1).to_string().into(),
            format!("{}-{}", node.first_slot, node.end_slot.saturating_sub(1)).into(),
            grouped(node.key_count).into(),
            percent(node.key_count as f64 / total.max(1) as f64).into(),
        ]);
    }
    Figure {
        id: "nodes".to_string(),
        title: format!("Keys of each of {}", counted(slots.nodes.len() as u64, "node")),
        summary: format!(
            "The fullest node has {} keys, {} times the mean of {}.",
            grouped(most as u64),
            fixed(slots.imbalance, 3),
            expected(mean)
        ),
        height: 220.0,
        drawing: drawing(slots, mean, most),
        legend: legend([
            (html! { rect.measured x="3" y="1" width="16" height="8" {} }, "keys"),
            (html! { path.ideal d="M1 5H21" {} }, "mean"),
        ]),
        data: Some(data.render()),
    }
}

fn drawing(slots: &Slots, mean: f64, most: f64) -> Markup {
    let [left, right] = SIDES;
    let step = (right - left) / slots.nodes.len().max(1) as f64;
    let middle = |index: usize| left + step * (index as f64 + 0.5);
    let apart = (30.0 / step).ceil().max(1.0) as usize;
    let x = Axis {
        scale: Scale::linear([0.0, 1.0], SIDES),
        ticks: (0..slots.nodes.len())
            .step_by(apart)
            .map(|index| Tick { at: middle(index), label: (index + 1).to_string() })
            .collect(),
        title: "node, each with as many slots",
    };
    let y = Axis::new(Scale::linear([0.0, most * 1.05], [174.0, 24.0]), 4, "keys");
    let width = (step * 0.72).clamp(1.0, 36.0);
    html! {
        (frame(&x, &y))
        @for (index, node) in slots.nodes.iter().enumerate() {
            @let top = y.scale.at(node.key_count as f64);
            rect.measured x=(at(middle(index) - width / 2.0)) y=(at(top)) width=(at(width))
                height=(at(174.0 - top)) {
                title { "node " (index + 1) ": " (counted(node.key_count, "key")) }
            }
        }
        path.ideal d={ "M" (at(left)) " " (at(y.scale.at(mean))) "H" (at(right)) } {}
    }
}

fn tags(slots: &Slots) -> Table {
    let mut table = Table::new("The tags with most keys").words("tag").numbers("keys");
    for (tag, key_count) in &slots.heaviest_tags {
        table.push([shown(tag).into(), grouped(*key_count).into()]);
    }
    table
}

fn fullest(slots: &Slots) -> Table {
    let mut table = Table::new("The fullest slots").numbers("slot").numbers("keys");
    for (slot, key_count) in &slots.fullest_slots {
        table.push([grouped(*slot).into(), grouped(*key_count).into()]);
    }
    table
}
