//! Results as one page that needs no other file.

use std::fmt::Write as _;

use crate::busy::{self, Busy};
use crate::markdown::{self, Table};
use crate::picture::Picture;
use crate::plan::Place;
use crate::rows::{Rows, heading};
use crate::saved::Saved;
use crate::targets::Target;

const STYLE: &str = "\
body { font-family: sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; font-size: 85%; display: block; overflow-x: auto; }
td, th { border: 1px solid #ccc; padding: 0.2em 0.5em; text-align: left; }
.figure { text-align: right; }
svg { max-width: 100%; height: auto; }
";

/// All of `target/race/results.html`.
pub fn page(saved: &Saved, targets: &[Target], pictures: &[Picture]) -> String {
    let rows = Rows::of(saved);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Splitpoint: the race</title>\n\
         <style>\n{STYLE}</style>\n<h1>The race on {}</h1>\n",
        escaped(&saved.machine.name())
    );
    let _ = writeln!(out, "<p>{}</p>", marked(&markdown::introduction(saved)));
    let table = markdown::target_table(saved, &rows, targets);
    let _ = write!(out, "<h2>Targets</h2>\n{}", to_html(&table));
    let bounds = markdown::bounds(saved, &rows, targets);
    if !bounds.is_empty() {
        let items = bounds.iter().map(|bound| format!("<li>{}</li>\n", marked(bound)));
        let _ =
            write!(out, "<p>{}</p>\n<ul>\n{}</ul>\n", markdown::MISSED, items.collect::<String>());
    }
    let all = busy::all(saved, &rows);
    if !all.is_empty() {
        let _ = write!(out, "<h2>Busy machines</h2>\n<p>{}</p>\n", escaped(busy::INTRODUCTION));
    }
    for Busy { heading, beside_best, beside_quiet } in &all {
        let tables = to_html(beside_best) + &to_html(beside_quiet);
        let _ = write!(out, "<h3>{}, busy</h3>\n{tables}", escaped(heading));
    }
    for case in &saved.cases {
        for place in [Place::Disk, Place::Memory] {
            let Some(table) = markdown::times(saved, &rows, case, place) else { continue };
            let title = heading(case, place);
            let _ = write!(out, "<h2>{}</h2>\n{}", escaped(&title), to_html(&table));
            for picture in pictures.iter().filter(|picture| picture.is_of(case, place)) {
                out.push_str(&picture.svg);
            }
            if let Some(table) = markdown::beside(saved, &rows, case, place) {
                out.push_str(&to_html(&table));
            }
        }
    }
    let _ = write!(
        out,
        "<h2>Settings of each engine</h2>\n{}<h2>{}</h2>\n<p>{}</p>\n{}",
        to_html(&markdown::tuning(saved)),
        markdown::RUNS,
        markdown::RUNS_IN_TURN,
        to_html(&markdown::runs(saved))
    );
    for reason in markdown::without_result(saved) {
        let _ = writeln!(out, "<p>{}</p>", escaped(&reason));
    }
    out.push_str("</html>\n");
    out
}

fn to_html(table: &Table) -> String {
    let row = |cells: &[String], tag: &str| {
        let cells = cells.iter().enumerate().map(|(column, cell)| {
            let class = if table.has_figures(column) { " class=\"figure\"" } else { "" };
            format!("<{tag}{class}>{}</{tag}>", marked(cell))
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let mut out = format!("<table>\n{}", row(&table.heads, "th"));
    out.extend(table.lines.iter().map(|line| row(line, "td")));
    out.push_str("</table>\n");
    out
}

/// Escapes text, and makes bold what is between two pairs of stars.
fn marked(text: &str) -> String {
    let escaped = escaped(text);
    let parts: Vec<&str> = escaped.split("**").collect();
    let bold = |(i, part): (usize, &&str)| {
        if i % 2 == 1 { format!("<b>{part}</b>") } else { (*part).to_owned() }
    };
    parts.iter().enumerate().map(bold).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
