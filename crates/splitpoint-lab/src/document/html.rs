//! A document as one page, for the screen, for paper, for the ear.
//!
//! # Invariants
//!
//! - The page names no address of any kind, and its policy forbids loading anything.
//! - Color is never the only sign. Without scripts the page lacks only sorting.

use maud::{Markup, PreEscaped, html};

use super::plain::visible;
use super::{Block, Document, Figure, Fold, Line, Span, Table, WIDTH};

/// The start of every page, which identifies a file as one.
pub const PAGE_START: &str = "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
    <meta name=\"generator\" content=\"splitpoint lab\">";

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The digest that permits the page's script and no other, such as one inside a key.
const SCRIPT_SHA256: &str = "eWWCaC0VdnzAfHiWCJjKwJ2+SYPbH++n0EeftVRj+F4=";

pub(super) fn page(document: &Document) -> String {
    let Document { title, subtitle, sections } = document;
    let words: String = title.0.iter().map(|span| html! { (words(span)) }.into_string()).collect();
    let body = html! {
        header { h1 { (line(title)) } p { (line(subtitle)) } }
        nav aria-label="Sections of this page" {
            ul { @for section in sections {
                li { a href={ "#" (section.id) } { (section.title) } }
            } }
        }
        main {
            @for section in sections {
                section id=(section.id) aria-labelledby={ (section.id) "-title" } {
                    h2 id={ (section.id) "-title" } { (section.title) }
                    (blocks(&section.blocks))
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
        title { (PreEscaped(visible(&words))) }
        style { (PreEscaped(STYLE)) }
    };
    let script = html! { script { (PreEscaped(SCRIPT)) } };
    // Of the page's own text nothing is hidden, whatever brought it along.
    let body = visible(&body.into_string());
    format!("{PAGE_START}{}</head><body>{body}{}</body></html>\n", head.0, script.0)
}

fn blocks(blocks: &[Block]) -> Markup {
    html! { @for one in blocks { (block(one)) } }
}

fn block(block: &Block) -> Markup {
    match block {
        Block::Lead(words) => html! { p.lead { (line(words)) } },
        Block::Prose(words) => html! { p { (line(words)) } },
        Block::Warning(words) => html! { p.warn role="note" { (line(words)) } },
        Block::List(heading, items) => html! {
            @if !heading.is_empty() { p { strong { (heading) } } }
            ul { @for item in items { li { (line(item)) } } }
        },
        Block::Grades(lines) => html! {
            ul.verdicts { @for (grade, words) in lines { li class=(grade.word()) { (line(words)) } } }
        },
        Block::Facts(facts) => html! {
            dl.facts { @for (name, value) in facts { div { dt { (name) } dd { (line(value)) } } } }
        },
        Block::Table(one) => table(one),
        Block::Pair(tables) => html! { div.pair { @for one in tables { (table(one)) } } },
        Block::Figures(figures) => html! {
            div.charts { @for one in figures { (figure(one)) } }
        },
        Block::Beside(words, proof) => html! {
            div.beside { div { (blocks(words)) } div { (figure(proof)) } }
        },
        Block::Fold(Fold { summary, is_headed, is_open, blocks: inner }) => html! {
            details.depth[*is_headed] open[*is_open] {
                summary {
                    @if *is_headed { h3 { (line(summary)) } } @else { (line(summary)) }
                }
                (blocks(inner))
            }
        },
    }
}

fn line(line: &Line) -> Markup {
    html! {
        @for span in &line.0 {
            @match span {
                Span::Plain(_) => (words(span)),
                Span::Strong(_) | Span::Alarm(_) => strong { (words(span)) },
                Span::Code(_) => code { (words(span)) },
                Span::Faint(_) => span.faint { (words(span)) },
                Span::Grade(grade) => span class={ "badge " (grade.word()) } { (words(span)) },
            }
        }
    }
}

fn words(span: &Span) -> &str {
    match span {
        Span::Grade(grade) => grade.word(),
        Span::Plain(text)
        | Span::Strong(text)
        | Span::Code(text)
        | Span::Faint(text)
        | Span::Alarm(text) => text,
    }
}

/// A table in a container that scrolls if the window is narrow.
fn table(table: &Table) -> Markup {
    let Table { caption, columns, rows, is_sortable, bars: _ } = table;
    let class = |index: usize| columns[index].is_number.then_some("n");
    html! {
        div.scroll role="region" aria-label=(caption) tabindex="0" {
            table data-sort[*is_sortable] {
                caption { span { (caption) } }
                thead { tr {
                    @for (index, column) in columns.iter().enumerate() {
                        th scope="col" class=[class(index)] { (column.name) }
                    }
                } }
                tbody {
                    @for row in rows { tr {
                        @for (index, cell) in row.iter().enumerate() {
                            @let order = cell.order.filter(|_| *is_sortable);
                            @let order = order.map(|order| format!("{order:e}"));
                            @if index == 0 {
                                th scope="row" data-v=[order] class=[class(index)] { (line(&cell.line)) }
                            } @else {
                                td data-v=[order] class=[class(index)] { (line(&cell.line)) }
                            }
                        }
                    } }
                }
            }
        }
    }
}

fn figure(figure: &Figure) -> Markup {
    let Figure { id, title, summary, height, drawing, legend, data, letters: _ } = figure;
    let (title_id, text_id) = (format!("{id}-title"), format!("{id}-text"));
    html! {
        figure id=(id) {
            figcaption { (title) }
            ul.legend { @for (mark, name) in legend {
                li { svg.mark viewBox="0 0 22 10" aria-hidden="true" { (mark) } (name) }
            } }
            svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-labelledby=(title_id)
                aria-describedby=(text_id) {
                title id=(title_id) { (title) }
                desc id=(text_id) { (summary) }
                (drawing)
            }
            p.seen aria-hidden="true" { (summary) }
            @if let Some(data) = data {
                details.data { summary { "Numbers of this picture" } (table(data)) }
            }
        }
    }
}
