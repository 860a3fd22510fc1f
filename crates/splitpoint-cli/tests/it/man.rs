//! `splitpoint man`.

use crate::sandbox::{Outcome, Sandbox, tool};

#[test]
fn man_pages_render() {
    let sandbox = Sandbox::new();
    sandbox.run(&["man", "pages/man1"]).check(
        0,
        "",
        "splitpoint: wrote 47 pages to `pages/man1`\n",
    );
    let page = String::from_utf8(sandbox.read("pages/man1/splitpoint-load.1")).expect("text");
    let synopsis = r"\fBsplitpoint load\fR [\-f|\-\-format <FORMAT>] [\-\-column <KEY,VALUE>]";
    assert!(page.contains(synopsis), "{page}");
    let Some(mandoc) = tool("mandoc", "mandoc") else { return };
    for page in ["splitpoint.1", "splitpoint-load.1", "splitpoint-stat.1"] {
        let page = format!("pages/man1/{page}");
        let mut command = sandbox.command(&mandoc, &["-T", "utf8", "-W", "error", &page]);
        let rendered = Outcome::of(&command.output().expect("mandoc can be run"));
        assert_eq!((rendered.exit, rendered.stderr.as_str()), (0, ""), "{page}");
        assert!(rendered.text().contains("splitpoint"), "{page}");
    }
}

#[test]
fn man_prints_the_main_page() {
    let page = Sandbox::new().run(&["man"]).text();
    assert!(page.contains(".TH SPLITPOINT 1"), "{page}");
}
