//! A document in GitHub's Markdown: pictures as the tables of their numbers.

use std::fmt::Write as _;

use super::plain::visible;
use super::{Block, Document, Figure, Fold, Letters, Line, Span, Table};

/// The start of every document, which identifies a file as one.
pub const MARKDOWN_START: &str = "<!-- splitpoint lab -->\n";

pub(super) fn markdown(document: &Document) -> String {
    let Document { title, subtitle, sections } = document;
    let mut out = format!("{MARKDOWN_START}\n# {}\n\n{}\n", line(title), line(subtitle));
    for section in sections {
        let _ = write!(out, "\n## {}\n", section.title);
        blocks(&section.blocks, &mut out);
    }
    out
}

fn blocks(blocks: &[Block], out: &mut String) {
    for block in blocks {
        out.push('\n');
        let _ = match block {
            Block::Lead(words) => writeln!(out, "**{}**", line(words).replace("**", "")),
            Block::Prose(words) => writeln!(out, "{}", line(words)),
            Block::Warning(words) => writeln!(out, "> **Note:** {}", line(words)),
            Block::List(heading, items) => {
                let heading =
                    if heading.is_empty() { String::new() } else { format!("**{heading}**\n\n") };
                write!(out, "{heading}{}", list(items.iter().map(line)))
            }
            Block::Grades(lines) => write!(out, "{}", list(lines.iter().map(|(_, it)| line(it)))),
            Block::Facts(facts) => {
                let fact = |(name, value): &(&str, Line)| format!("{name}: {}", line(value));
                write!(out, "{}", list(facts.iter().map(fact)))
            }
            Block::Table(one) => write!(out, "{}", table(one)),
            Block::Pair(tables) => {
                let tables: Vec<String> = tables.iter().map(table).collect();
                write!(out, "{}", tables.join("\n"))
            }
            Block::Figures(figures) => {
                let figures: Vec<String> = figures.iter().map(figure).collect();
                write!(out, "{}", figures.join("\n"))
            }
            Block::Beside(words, proof) => {
                self::blocks(words, out);
                write!(out, "\n{}", figure(proof))
            }
            Block::Fold(Fold { summary, blocks: inner, .. }) => {
                let _ = writeln!(out, "<details><summary>\n\n{}\n\n</summary>", line(summary));
                self::blocks(inner, out);
                write!(out, "\n</details>\n")
            }
        };
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.flat_map(|item| ["- ".to_string(), item, "\n".to_string()]).collect()
}

fn figure(figure: &Figure) -> String {
    let Figure { title, summary, data, letters, .. } = figure;
    let mut out = format!("**{}**\n\n{}\n", escaped(title), escaped(summary));
    match (data, letters) {
        (_, Letters::Lines(lines)) => {
            let _ = write!(out, "\n```text\n{}\n```\n", visible_lines(lines));
        }
        (Some(data), _) => {
            let _ = write!(out, "\n{}", table(data));
        }
        (None, _) => {}
    }
    out
}

fn visible_lines(lines: &[String]) -> String {
    lines.iter().map(|line| visible(line)).collect::<Vec<_>>().join("\n")
}

fn table(table: &Table) -> String {
    let Table { caption, columns, rows, .. } = table;
    let mut out = String::new();
    if !caption.is_empty() {
        let _ = write!(out, "**{}**\n\n", escaped(caption));
    }
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    out += &row(columns.iter().map(|column| escaped(&column.name)).collect());
    let rule = |is_number| if is_number { "--:".to_string() } else { "---".to_string() };
    out += &row(columns.iter().map(|column| rule(column.is_number)).collect());
    for cells in rows {
        // Even in code a bar would end the cell.
        let cell = |cell: &super::Cell| bars_escaped(&line(&cell.line));
        out += &row(cells.iter().map(cell).collect());
    }
    out
}

/// Puts a backslash before every bar that has none.
fn bars_escaped(text: &str) -> String {
    text.replace("\\|", "|").replace('|', "\\|")
}

fn line(line: &Line) -> String {
    let span = |span: &Span| match span {
        Span::Plain(text) | Span::Faint(text) => escaped(text),
        Span::Strong(text) | Span::Alarm(text) => format!("**{}**", escaped(text)),
        Span::Code(text) => code(&visible(text)),
        Span::Grade(grade) => format!("**{}**", grade.word()),
    };
    line.0.iter().map(span).collect()
}

/// Encloses code in more backticks than it has in a row.
fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let gap =
        if text.is_empty() || text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{gap}{text}{gap}{fence}")
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in visible(text).chars() {
        if "\\`*_[]<>|~&#".contains(character) {
            out.push('\\');
        }
        out.push(character);
    }
    out
}
