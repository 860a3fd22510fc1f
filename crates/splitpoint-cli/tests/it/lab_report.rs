//! `splitpoint lab report`: the page in a real browser.
//!
//! The page is the golden one of `splitpoint-lab`, which has every section.

use serde_json::{Value, json};

use crate::browser::{Browser, Page, View, golden_page};
use crate::sandbox::Sandbox;

/// Opens everything that can be opened.
const OPEN_ALL: &str = "document.querySelectorAll('details').forEach(it => it.open = true)";

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

#[test]
fn a_page_loads_without_requests_and_complaints_and_looks_right_everywhere() {
    let Some(mut browser) = Browser::start() else { return };
    let path = golden_page();
    let browser = &mut browser;
    for (width, is_dark) in [(1280, false), (1280, true), (400, false)] {
        let page = browser.open(&path, View { is_dark, ..View::of_width(width) });
        browser.value(&page, OPEN_ALL);
        check_width(browser, &page, width);
        check_contrast(browser, &page);
        check_pictures(browser, &page);
        assert_eq!(browser.complaints(&page), [""; 0]);
        if width == 400 {
            let league = "(it => it && it.scrollWidth <= it.clientWidth + 1)\
                (document.querySelector('#league .scroll'))";
            assert_eq!(browser.value(&page, league), true, "the league table fits a phone");
        }
    }
    // A4 between its margins, at 96 dots an inch.
    let print = browser.open(&path, View { is_print: true, ..View::of_width(703) });
    browser.value(&print, OPEN_ALL);
    check_width(browser, &print, 703);
    let cut = "[...document.querySelectorAll('.scroll')]\
        .filter(it => it.scrollWidth > it.clientWidth + 1).map(it => it.ariaLabel)";
    assert_eq!(texts(&browser.value(&print, cut)), [""; 0], "columns are cut off on paper");
}

/// Nothing makes the page itself scroll sideways.
#[track_caller]
fn check_width(browser: &mut Browser, page: &Page, width: u32) {
    let wide = "[...document.querySelectorAll('body *')].filter(it => !it.closest('.scroll, svg') \
        && it.getBoundingClientRect().right > document.documentElement.clientWidth + 1)\
        .map(it => it.outerHTML.slice(0, 120))";
    assert_eq!(texts(&browser.value(page, wide)), [""; 0], "at {width}");
    let found = browser.value(page, "document.documentElement.scrollWidth");
    assert!(found.as_u64().is_some_and(|found| found <= u64::from(width)), "{found} of {width}");
}

/// All text is told from what is behind it: 4.5 to 1, by the formula of WCAG 2.
#[track_caller]
fn check_contrast(browser: &mut Browser, page: &Page) {
    let faint = include_str!("contrast.js");
    assert_eq!(texts(&browser.value(page, faint)), [""; 0]);
}

/// The words of a picture stay inside it.
#[track_caller]
fn check_pictures(browser: &mut Browser, page: &Page) {
    let cut = "[...document.querySelectorAll('figure > svg')].flatMap(svg => { \
        const all = svg.getBoundingClientRect(); \
        return [...svg.querySelectorAll('text')].filter(text => { \
            const box = text.getBoundingClientRect(); \
            return box.left < all.left - 1 || box.right > all.right + 1 \
                || box.top < all.top - 1 || box.bottom > all.bottom + 1; \
        }).map(text => svg.querySelector('title').textContent + ': ' + text.textContent); })";
    assert_eq!(texts(&browser.value(page, cut)), [""; 0]);
    let touching = "[...document.querySelectorAll('figure > svg')].flatMap(svg => { \
        const boxes = [...svg.querySelectorAll('text')].map(it => [it, it.getBoundingClientRect()]); \
        return boxes.flatMap(([it, a], i) => boxes.slice(i + 1).filter(([, b]) => \
            a.left < b.right - 1 && b.left < a.right - 1 \
            && a.top < b.bottom - 3 && b.top < a.bottom - 3) \
            .map(([other]) => svg.querySelector('title').textContent + ': ' + it.textContent \
                + ' over ' + other.textContent)); })";
    assert_eq!(texts(&browser.value(page, touching)), [""; 0]);
}

#[test]
fn columns_are_sorted_by_mouse_and_by_keyboard() {
    let Some(mut browser) = Browser::start() else { return };
    let page = browser.open(&golden_page(), View::of_width(1280));
    let order =
        "[...document.querySelectorAll('#league tbody tr')].map(row => row.cells[0].textContent)";
    let first = browser.value(&page, order);
    assert!(texts(&first).len() > 2);

    browser.click(&page, "#league th:nth-child(1) button");
    let sort = "[...document.querySelectorAll('#league thead th')].map(it => it.ariaSort)";
    assert_eq!(browser.value(&page, sort)[0], "ascending");
    let mut expected = texts(&first);
    expected.sort_unstable();
    assert_eq!(texts(&browser.value(&page, order)), expected);

    // On to the next column, and twice.
    browser.press(&page, "Tab", 9);
    browser.press(&page, "Enter", 13);
    browser.press(&page, "Enter", 13);
    let state = browser.value(&page, sort);
    assert_eq!([&state[0], &state[1]], [&Value::Null, &json!("descending")]);
    let focus = "document.activeElement.closest('th').cellIndex";
    assert_eq!(browser.value(&page, focus), 1);

    // Numbers are sorted by their value: 9 before 10.
    let costs =
        "[...document.querySelectorAll('#league tbody tr')].map(row => +row.cells[2].dataset.v)";
    browser.click(&page, "#league th:nth-child(3) button");
    let costs = browser.value(&page, costs);
    let costs: Vec<f64> =
        costs.as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
    assert!(costs.len() > 2 && costs.is_sorted(), "{costs:?}");
}

/// Also where the name of a column just fits: the mark of the order needs no line of its own.
#[test]
fn the_names_of_the_columns_end_on_one_line() {
    let Some(mut browser) = Browser::start() else { return };
    for width in [700, 900, 1280] {
        let page = browser.open(&golden_page(), View::of_width(width));
        browser.value(&page, OPEN_ALL);
        let uneven = "[...document.querySelectorAll('table[data-sort] thead tr')].filter(row => { \
            const ends = [...row.querySelectorAll('button')].map(button => { \
                const range = document.createRange(); \
                range.selectNodeContents(button); \
                return range.getBoundingClientRect().bottom; \
            }).filter(end => end > 0); \
            return Math.max(...ends) - Math.min(...ends) > 2; \
        }).map(row => row.textContent)";
        assert_eq!(texts(&browser.value(&page, uneven)), [""; 0], "{width}");
    }
}

#[test]
fn a_screen_reader_finds_headings_names_and_captions() {
    let Some(mut browser) = Browser::start() else { return };
    let page = browser.open(&golden_page(), View::of_width(1280));
    browser.value(&page, OPEN_ALL);
    let nodes = browser.accessible(&page);
    let of_role = |role: &str| -> Vec<&Value> {
        nodes.iter().filter(|node| node["role"]["value"] == role).collect()
    };
    let name = |node: &Value| node["name"]["value"].as_str().unwrap_or("").to_string();
    let pictures = of_role("image");
    let drawn = browser.value(&page, "document.querySelectorAll('figure > svg').length");
    assert_eq!(json!(pictures.len()), drawn);
    for kind in ["image", "table", "region", "button", "heading", "columnheader", "rowheader"] {
        let found = of_role(kind);
        assert!(!found.is_empty(), "there is no {kind}");
        // The corner of a table heads nothing.
        let unnamed = found.iter().filter(|node| name(node).is_empty()).count();
        assert!(unnamed == 0 || kind == "columnheader", "{unnamed} of {} {kind}", found.len());
    }
    for picture in pictures {
        let text = picture["description"]["value"].as_str().unwrap_or("");
        assert!(text.len() > 20, "`{}` is described as `{text}`", name(picture));
    }
    let levels = "[...document.querySelectorAll('h1,h2,h3,h4')].map(it => +it.tagName[1])";
    let levels = browser.value(&page, levels);
    let levels: Vec<u64> =
        levels.as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
    assert_eq!(levels.first(), Some(&1));
    assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1 && pair[1] > 1), "{levels:?}");
}

#[test]
fn a_page_says_the_same_without_scripts() {
    let Some(mut browser) = Browser::start() else { return };
    let text = "document.body.innerText";
    let with = browser.open(&golden_page(), View::of_width(1280));
    let with = browser.value(&with, text);
    let without = View { has_scripts: false, ..View::of_width(1280) };
    let without = browser.open(&golden_page(), without);
    let buttons = browser.value(&without, "document.querySelectorAll('button').length");
    assert_eq!(buttons, 0, "buttons that do nothing");
    assert_eq!(browser.value(&without, text), with);
    assert_eq!(browser.complaints(&without), [""; 0]);
}

#[test]
fn a_page_of_a_saved_study_is_the_page_made_at_once() {
    let sandbox = Sandbox::new();
    let keys = (0..2000).map(|n| format!("a{n:06}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", keys.as_bytes());
    let measure = ["lab", "hash", "keys", "--hash", "sdbm", "--hash", "fnv1a-32"];
    let saving = ["--json", "study.json", "--html", "once.html"];
    let measured = sandbox.run(&[&measure[..], &saving].concat());
    let notes = "splitpoint: saved the study to `study.json`\n\
        splitpoint: wrote the lab page `once.html`\n";
    assert_eq!((measured.exit, measured.stderr.as_str()), (0, notes));
    let made = sandbox.run(&["lab", "report", "study.json", "--html", "later.html"]);
    assert_eq!((made.exit, made.text()), (0, measured.text()));
    assert_eq!(sandbox.read("once.html"), sandbox.read("later.html"));
    let printed = sandbox.run(&["lab", "report", "study.json", "--html", "-"]);
    assert_eq!((printed.exit, printed.stdout), (0, sandbox.read("once.html")));

    // Over itself, but over nothing else.
    let again = ["lab", "report", "study.json", "--html", "later.html"];
    assert_eq!(sandbox.run(&again).exit, 0);
    let refused = sandbox.run(&["lab", "report", "study.json", "--html", "keys"]);
    refused.check_error(2, "`keys` exists and is not a lab page, so it was not replaced");
    assert_eq!(sandbox.read("keys"), keys.as_bytes());
    let refused = sandbox.run(&["lab", "report", "keys", "--html", "new.html"]);
    assert_eq!(refused.exit, 2, "{}", refused.stderr);
    assert!(!sandbox.path("new.html").exists());
}

#[test]
fn markdown_is_written_like_a_page_and_says_what_the_text_says() {
    let sandbox = Sandbox::new();
    let keys = (0..500).map(|n| format!("key|{n}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", keys.as_bytes());
    let args = ["lab", "table", "keys", "--hash", "fnv1a-32", "--markdown"];
    let written = sandbox.run(&[&args[..], &["table.md"]].concat());
    let note = "splitpoint: wrote the lab Markdown file `table.md`\n";
    assert_eq!((written.exit, written.stderr.as_str()), (0, note));
    let markdown = String::from_utf8(sandbox.read("table.md")).expect("Markdown is UTF-8");
    for needle in [
        "<!-- splitpoint lab -->\n\n# Hash functions on `keys`\n",
        "\n## Verdict\n",
        "\n| size | buckets | keys | sum-pct | ideal | deviation | sd |\n| --: |",
        "\n- `key|0`\n",
        "\n## Method and versions\n",
    ] {
        assert!(markdown.contains(needle), "no `{needle}` in\n{markdown}");
    }
    // Over itself, but over nothing else; and to standard output.
    assert_eq!(sandbox.run(&[&args[..], &["table.md"]].concat()).exit, 0);
    let refused = sandbox.run(&[&args[..], &["keys"]].concat());
    refused.check_error(2, "`keys` exists and is not a lab Markdown file, so it was not replaced");
    let printed = sandbox.run(&[&args[..], &["-"]].concat()).text();
    assert!(printed.starts_with("<!-- splitpoint lab -->\n"), "{printed}");
}

#[test]
fn a_study_of_one_table_is_told_with_its_bars_and_without_control_characters() {
    let sandbox = Sandbox::new();
    let keys = (0..500).map(|n| format!("key {n}\n")).collect::<Vec<_>>().concat();
    sandbox.write("keys", keys.as_bytes());
    let args = ["lab", "table", "keys", "--hash", "fnv1a-32", "--json", "study.json"];
    let measured = sandbox.run(&args);
    let text = measured.text();
    assert!(text.contains("# measured | ideal ( ) 2 sd\n"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let study = String::from_utf8(sandbox.read("study.json")).expect("JSON is UTF-8");
    let hostile = study.replace("\"source\":\"keys\"", "\"source\":\"\\u001b[31mkeys\"");
    assert_ne!(hostile, study);
    sandbox.write("hostile.json", hostile.as_bytes());
    let told = sandbox.run(&["lab", "report", "hostile.json"]);
    assert_eq!((told.exit, told.text()), (0, text.replace("`keys`\n", "`\\u{1b}[31mkeys`\n")));
}

/// `-` is standard output for each of the options, which has room for one of them.
#[test]
fn one_document_goes_to_standard_output() {
    let sandbox = Sandbox::new();
    sandbox.write("keys", b"one\ntwo\n");
    let run = |more: &[&str]| {
        let of = ["lab", "hash", "keys", "--hash", "dbm", "--no-times"];
        sandbox.run(&[&of, more].concat())
    };
    let printed = run(&["--json", "-"]);
    assert_eq!(printed.stderr, "");
    assert_eq!(printed.json()["reports"], run(&["--json"]).json()["reports"]);
    assert!(!sandbox.path("-").exists());
    let sizes = sandbox.run(&["lab", "tables", "--memory", "512M", "--json", "-"]);
    assert!(sizes.json()["tables"].is_array());
    for (options, first, last) in [
        (&["--html", "-", "--markdown", "-"][..], "--html", "--markdown"),
        (&["--json", "--html", "-"], "--json", "--html"),
        (&["--markdown", "-", "--json", "-"], "--json", "--markdown"),
    ] {
        let error = format!(
            "splitpoint: error: standard output has room for {first} or {last}, not for both\n\
             hint: give one of them a file: {last} FILE\n"
        );
        run(options).check(2, "", &error);
        let tables = ["lab", "tables", "--memory", "512M"];
        sandbox.run(&[&tables, options].concat()).check(2, "", &error);
    }
    let both = run(&["--json", "-", "--markdown", "study.md"]);
    assert!(both.json()["reports"].is_array());
    assert!(sandbox.path("study.md").exists());
}
