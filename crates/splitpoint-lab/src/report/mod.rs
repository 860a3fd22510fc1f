//! A study as a page: one file that needs no other, for the screen, for paper, for the ear.
//!
//! ```text
//! Study --> Entry --> sections: words, tables, figures --> page
//!            scale: where a value stands     chart: what is drawn there
//! ```
//!
//! The page says nothing that is not in the [`Study`], so that one made from a saved study is the
//! one that was made at once, byte by byte.
//!
//! # Invariants
//!
//! - The page names no address of any kind; its policy forbids to load anything.
//! - Text of unknown origin goes through `plain::shown`, then through the template's escapes.
//! - What a picture shows is said in words beside it and in numbers below it.
//! - Nothing is told by color alone. Without scripts the page lacks sorting, nothing else.

mod bars;
mod chart;
mod choices;
mod cost;
mod curve;
mod depth;
mod entry;
mod heat;
mod keys;
mod league;
mod method;
mod number;
mod plain;
mod scale;
mod sizes;
mod slots;
mod strip;
mod table;
mod timing;
mod verdict;

use maud::{Markup, PreEscaped, html};

use self::entry::Entry;
use self::number::counted;
use self::plain::{shown, shown_whole};
use crate::study::Study;

pub use self::sizes::SizeClass;

/// What every page starts with, by which a file is known as one.
pub const PAGE_START: &str = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
    <meta name=\"generator\" content=\"splitpoint lab\">";

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The script may run because it has this digest; what a key might bring along may not.
const SCRIPT_SHA256: &str = "eWWCaC0VdnzAfHiWCJjKwJ2+SYPbH++n0EeftVRj+F4=";

/// A section of the page.
struct Section {
    id: &'static str,
    title: &'static str,
    body: Markup,
}

/// Returns the page of a study.
///
/// # Cost
///
/// Time and memory in proportion to the page: some kilobytes for each function and reduction.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::study::{KeyFacts, Machine, Program};
/// use splitpoint_lab::{Study, report};
///
/// let keys = KeyFacts { source: "words".to_string(), ..KeyFacts::default() };
/// let page = report::html(&Study::new(Program::default(), Machine::default(), keys));
/// assert!(page.starts_with(report::PAGE_START));
/// assert!(page.contains("<h1>Hash functions on <code>words</code></h1>"));
/// ```
pub fn html(study: &Study) -> String {
    let sections = sections(study);
    let title = format!("Hash functions on {}", shown(&study.keys.source));
    let body = html! {
        header {
            h1 { "Hash functions on " code { (shown(&study.keys.source)) } }
            p { (counted(study.keys.key_count, "key")) ", measured beside an ideal hash" }
        }
        nav aria-label="Sections of this page" {
            ul { @for section in &sections {
                li { a href={ "#" (section.id) } { (section.title) } }
            } }
        }
        main {
            @for section in &sections {
                section id=(section.id) aria-labelledby={ (section.id) "-title" } {
                    h2 id={ (section.id) "-title" } { (section.title) }
                    (section.body)
                }
            }
        }
    };
    let policy = format!(
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{SCRIPT_SHA256}'"
    );
    let head = html! {
        meta http-equiv="Content-Security-Policy" content=(policy);
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
        link rel="icon" href="data:,";
        title { (title) }
        style { (PreEscaped(STYLE)) }
    };
    let script = html! { script { (PreEscaped(SCRIPT)) } };
    format!(
        "{PAGE_START}{}</head><body>{}{}</body></html>\n",
        head.into_string(),
        // Whatever has been forgotten: of the page's own text nothing is hidden.
        shown_whole(&body.into_string()),
        script.into_string()
    )
}

fn sections(study: &Study) -> Vec<Section> {
    let entries = Entry::all(&study.reports);
    let mut sections = Vec::new();
    let mut add = |id, title, body| sections.push(Section { id, title, body });
    add("verdict", "Verdict", verdict::section(study, &entries));
    add("keys", "The keys", keys::section(&study.keys, &study.key_positions));
    if !study.choices.is_empty() {
        add("choices", "What to choose", choices::section(&study.choices));
    }
    if entries.len() > 1 {
        add("league", "League table", league::table(&entries, study));
    }
    if let Some(body) = cost::section(&entries, &study.reports) {
        add("cost", "Cost over table size", body);
    }
    if !entries.is_empty() {
        add("depth", "In depth", depth::section(&entries, study.reports.len()));
    }
    if !study.avalanches.is_empty() {
        let figures = study.avalanches.iter().enumerate();
        add(
            "avalanche",
            "Avalanche",
            html! {
                div.charts { @for (index, avalanche) in figures {
                    (heat::figure(&format!("avalanche-{index}"), avalanche).render())
                } }
            },
        );
    }
    if !study.timings.is_empty() {
        add("timing", "Time per key", timing::section(&study.timings));
    }
    if let Some(slots) = &study.slots {
        add("slots", "Cluster slots", slots::section(slots));
    }
    add("method", "Method and versions", method::section(study));
    sections
}
