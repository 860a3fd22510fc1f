//! What the three renderings make of the same blocks.

use maud::html;

use super::*;

fn document(blocks: Vec<Block>) -> Document {
    let section = Section { id: "one", title: "", is_appendix: false, blocks };
    Document { sections: vec![section], ..Document::default() }
}

fn text(blocks: Vec<Block>) -> String {
    document(blocks).text(&Look::plain(80))
}

/// Returns the Markdown after its titles.
fn markdown(blocks: Vec<Block>) -> String {
    let all = document(blocks).markdown();
    all.split_once("\n## \n").expect("a section").1.to_string()
}

fn html_of(blocks: Vec<Block>) -> String {
    let all = document(blocks).html();
    let start = all.find("<main>").expect("a page has a main part");
    all[start..all.find("</main>").expect("which ends")].to_string()
}

fn wide_numbers() -> Table {
    let mut table = Table::new("").words(["method"]).numbers(["hit", "ideal", "slots"]);
    table.push(cells!["linear probing", "48271.205", "1.456", 9_806_007_u64]);
    table.push(cells!["x", "1", "2.000", 7_u64]);
    table
}

#[test]
fn wide_numbers_do_not_run_together_in_text() {
    let expected = "
method                hit  ideal      slots
linear probing  48271.205  1.456  9,806,007
x                       1  2.000          7
";
    assert_eq!(text(vec![Block::Table(wide_numbers())]), expected[1..]);
}

#[test]
fn text_leaves_out_wide_columns_appendices_and_closed_folds() {
    let mut table = Table::new("").words(["kept"]).numbers(["left out"]).wide();
    table.push(cells!["cell", 5_u64]);
    let fold = Fold::closed("summary", Block::Prose("folded".into()));
    let mut document = document(vec![Block::Table(table), fold]);
    document.sections.push(Section {
        id: "two",
        title: "Appendix",
        is_appendix: true,
        blocks: vec![Block::Prose("for reference".into())],
    });
    assert_eq!(document.text(&Look::plain(80)), "kept\ncell\n\n");
    let whole = document.text(&Look { is_whole: true, ..Look::plain(80) });
    assert_eq!(whole, "kept\ncell\n\nsummary\nfolded\n");
    for all in [document.html(), document.markdown()] {
        for word in ["left out", "summary", "folded", "Appendix", "for reference"] {
            assert!(all.contains(word), "no `{word}` in {all}");
        }
    }
}

#[test]
fn words_are_wrapped_at_80_columns_and_at_those_of_a_narrow_terminal() {
    let words = Line::from("word ".repeat(60));
    for (columns, widest) in [(300, 80), (80, 80), (50, 50), (3, 40)] {
        let list = Block::List("", vec![words.clone()]);
        let text = document(vec![list]).text(&Look::plain(columns));
        let found = text.lines().map(str::len).max().unwrap_or(0);
        assert!(found <= widest && found + 5 > widest, "{found} of {widest}: {text}");
        assert!(text.starts_with("- word") && text.contains("\n  word"), "{text}");
        assert_eq!(text.matches("word").count(), 60);
    }
}

#[test]
fn colors_do_not_change_columns_or_wrapping() {
    let paint = |tone: Tone, text: &str| format!("\u{1b}[{}m{text}\u{1b}[0m", tone as u8 + 30);
    let look = Look { columns: 80, is_whole: false, paint: &paint };
    let mut table = wide_numbers();
    table.push(cells![Grade::Worse, Line::alarm("+3.4"), Line::strong("7"), 8_u64]);
    let words = Line::from(Grade::Fits).then(Line::strong(" word".repeat(40)));
    let document = document(vec![Block::Lead(words), Block::Table(table)]);
    let mut plain = String::new();
    let mut is_escape = false;
    for character in document.text(&look).chars() {
        is_escape |= character == '\u{1b}';
        if !is_escape {
            plain.push(character);
        }
        is_escape &= character != 'm';
    }
    assert_eq!(plain, document.text(&Look::plain(80)));
    assert!(plain.contains("\nworse               !+3.4      7          8\n"), "{plain}");
}

#[test]
fn bars_show_the_measured_the_ideal_and_its_band() {
    for ([measured, ideal, away], expected) in [
        ([10.0, 10.0, 1.0], "########(#| )"),
        ([10.0, 10.0, 0.1], "##########|"),
        ([5.0, 12.0, 1.5], "#####    (  |  )"),
        ([15.0, 8.0, 1.5], "#####(##|##)###"),
        ([0.0, 6.0, 1.0], "    ( | )"),
        ([0.0, 0.1, 0.1], ""),
        ([1.0, 0.1, 0.1], "#"),
    ] {
        let band = Some([ideal - 2.0 * away, ideal + 2.0 * away]);
        let bar = Bar { measured, ideal, band };
        assert_eq!(text::drawn(bar, 1.0, 20), expected, "{bar:?}");
    }
}

#[test]
fn what_means_something_to_html_is_escaped() {
    let hostile = "<b>&\"'</td>\u{202e}";
    let mut table = Table::new(hostile).words([hostile]);
    table.push(cells![Line::code(hostile)]);
    let page = html_of(vec![
        Block::Lead(hostile.into()),
        Block::Table(table),
        Block::Facts(vec![("name", Line::strong(hostile))]),
    ]);
    assert!(!page.contains("<b>") && !page.contains('\u{202e}'), "{page}");
    assert_eq!(page.matches("</td>").count(), 0, "the first cell heads its row");
    assert!(page.contains("<code>&lt;b&gt;&amp;&quot;'&lt;/td&gt;\\u{202e}</code>"), "{page}");
}

#[test]
fn bars_in_cells_do_not_end_the_cells_of_markdown() {
    let mut table = Table::new("a|b").words(["c|d"]).numbers(["n"]);
    table.push(cells!["e|f", Line::code("g|h")]);
    let expected = "
**a\\|b**

| c\\|d | n |
| --- | --: |
| e\\|f | `g\\|h` |
";
    assert_eq!(markdown(vec![Block::Table(table)]), expected);
}

#[test]
fn what_means_something_to_markdown_is_escaped() {
    for (line, expected) in [
        (
            Line::from("*a* _b_ [c](d) <e> #f ~g~ \\h &i;"),
            "\\*a\\* \\_b\\_ \\[c\\](d) \\<e\\> \\#f \\~g\\~ \\\\h \\&i;",
        ),
        (Line::code("a`b``c"), "```a`b``c```"),
        (Line::code("`"), "`` ` ``"),
        (Line::code("<e> *a*"), "`<e> *a*`"),
        (Line::from("line\nbreak\u{202e}"), "line\\\\u{a}break\\\\u{202e}"),
    ] {
        assert_eq!(markdown(vec![Block::Prose(line)]), format!("\n{expected}\n"));
    }
}

#[test]
fn a_picture_is_its_numbers_in_markdown_and_in_text() {
    let mut data = Table::new("Numbers").words(["size"]).numbers(["count"]);
    data.push_bar(cells!["1", 20_u64], Bar { measured: 20.0, ideal: 10.0, band: None });
    let figure = Figure {
        data: Some(data),
        letters: Letters::Data,
        ..Figure::new("id", "Title", "What is seen.", html! { path d="M0 0" {} })
    };
    let blocks = || vec![Block::Figures(vec![figure.clone()])];
    let in_text = text(blocks());
    assert!(in_text.starts_with("Numbers\nsize  count  # measured | ideal\n1        20  ####"));
    assert!(in_text.ends_with("\nWhat is seen.\n"), "{in_text}");
    let expected = "
**Title**

What is seen.

**Numbers**

| size | count |
| --- | --: |
| 1 | 20 |
";
    assert_eq!(markdown(blocks()), expected);
    let page = html_of(blocks());
    assert!(page.contains("aria-labelledby=\"id-title\"") && page.contains("<path d=\"M0 0\">"));
}

#[test]
fn tables_without_rows_have_their_headings_and_blocks_without_content_are_empty() {
    let table = || Block::Table(Table::new("").words(["a"]).numbers(["b"]));
    assert_eq!(text(vec![table()]), "a  b\n");
    assert_eq!(markdown(vec![table()]), "\n| a | b |\n| --- | --: |\n");
    assert!(html_of(vec![table()]).contains("<tbody></tbody>"));
    let nothing = Table::new("");
    assert_eq!(text(vec![Block::Table(nothing)]), "\n");
    assert_eq!(text(vec![Block::Figures(Vec::new()), Block::Pair(Vec::new())]), "");
    assert_eq!(text(Vec::new()), "");
}
