//! The figures of the 1991 paper, run again, as a document: the claims first, then each figure with its
//! numbers, as it was drawn.

mod drawing;
mod figures;
mod tables;

use super::kernel_tables::page;
use super::number::{bytes, fixed, grouped};
use super::paper::{findings_table, notes, slips_list};
use crate::document::{Block, Document, Line, Table, cells};
use crate::paper::seltzer_yigit::{Claim, ClaimVerdict, DataFacts, PaperFigure, PaperRerun};

const VERDICTS: [ClaimVerdict; 3] =
    [ClaimVerdict::Held, ClaimVerdict::DidNotHold, ClaimVerdict::CannotTell];

/// Returns the document of `lab paper seltzer-yigit`.
pub fn paper_rerun(rerun: &PaperRerun) -> Document {
    let mut sections = vec![("claims", "Claims", claims(rerun))];
    for &figure in &rerun.figures {
        let (id, title, mut blocks) = match figure {
            PaperFigure::BucketSizes => {
                ("figure-5", "Figures 5a, 5b, 5c: bucket sizes", figures::bucket_sizes(rerun))
            }
            PaperFigure::Growth => ("figure-6", "Figure 6: growth", figures::growth(rerun)),
            PaperFigure::Pool => ("figure-7", "Figure 7: the buffer pool", figures::pool(rerun)),
            PaperFigure::Reread => {
                ("text", "After Figure 5c: from the disk", figures::reread(rerun))
            }
            PaperFigure::Dictionary => {
                ("figure-8a", "Figure 8a: the dictionary", tables::comparison(rerun, figure))
            }
            PaperFigure::Passwd => {
                ("figure-8b", "Figure 8b: the password file", tables::comparison(rerun, figure))
            }
        };
        let picture = blocks.iter().position(|block| matches!(block, Block::Figures(_)));
        let place = picture.map_or(blocks.len().min(1), |picture| picture + 1);
        blocks.insert(place, Block::List("What the paper says", beside(rerun, figure)));
        sections.push((id, title, blocks));
    }
    let mut numbers = vec![Block::Table(findings_table(&rerun.findings))];
    numbers.push(Block::List("", notes(&rerun.findings)));
    sections.push(("numbers", "Numbers of the text", numbers));
    sections.push(("slips", "Mistakes in the text", vec![slips_list(&rerun.slips)]));
    sections.push(("method", "Data, systems, method", method(rerun)));
    page(rerun.paper, "its figures, run again on this machine", sections)
}

/// Returns a verdict as words, in the color of what asks for a look if it did not hold.
fn verdict(claim: &Claim) -> Line {
    match claim.verdict {
        ClaimVerdict::DidNotHold => Line::alarm(claim.verdict.words()),
        verdict => verdict.words().into(),
    }
}

fn claims(rerun: &PaperRerun) -> Vec<Block> {
    let count = |verdict| rerun.claims.iter().filter(|it| it.verdict == verdict).count();
    let counts = VERDICTS.map(|verdict| format!("{} {}", count(verdict), verdict.words()));
    let lead = format!("{} claims: {}.", rerun.claims.len(), counts.join(", "));
    let mut blocks = vec![Block::Lead(lead.into())];
    if let Some(missing) = &rerun.interruption {
        blocks.push(Block::Warning(format!("interrupted: {missing}").into()));
    }
    let mut table = Table::new("What became of the claims").words(["where", "claim", "verdict"]);
    table = table.words(["found here"]).wide();
    for claim in &rerun.claims {
        let found = if claim.ours == "-" { &claim.note } else { &claim.ours };
        table.push(cells![claim.place, claim.name, verdict(claim), found.as_str()]);
    }
    blocks.push(Block::Table(table));
    blocks.push(Block::Prose(
        "A claim is decided by the means of all runs; a difference that their 95 % intervals explain is a \
         tie. Times of 1991 are of a machine of 33 MHz: what can be compared with them are signs, ratios and \
         the pages that are read and written."
            .into(),
    ));
    blocks
}

/// Returns the claims of a figure in full.
fn beside(rerun: &PaperRerun, figure: PaperFigure) -> Vec<Line> {
    let of_figure = rerun.claims.iter().filter(|claim| claim.figure == figure);
    let line = |claim: &Claim| {
        let Claim { place, words, check, ours, note, .. } = claim;
        let mut rest = format!("{place}, \"{words}\". Checked: {check}.");
        for found in [ours, note].into_iter().filter(|it| !it.is_empty() && *it != "-") {
            rest += &format!(" Found: {found}.").replace("Found: the 95", "The 95");
        }
        Line::strong(format!("{}: ", claim.verdict.words())).then(rest)
    };
    of_figure.map(line).collect()
}

fn method(rerun: &PaperRerun) -> Vec<Block> {
    let machine = &rerun.machine;
    let load = rerun.load_average.map_or_else(|| "?".to_owned(), |load| fixed(load, 2));
    let mut facts = vec![
        ("machine", Line::from(machine.processor.as_str())),
        ("cores", grouped(machine.core_count).into()),
        ("system", machine.system.as_str().into()),
        ("load at the start", load.into()),
        ("runs of each kind", grouped(rerun.run_count).into()),
        ("seed", rerun.seed.to_string().into()),
    ];
    facts.push(("version", rerun.program.version.as_str().into()));
    let mut systems = Table::new("Systems").words(["system", "here", "what"]);
    for it in &rerun.systems {
        let what =
            if it.note.is_empty() { it.what.clone() } else { format!("{}: {}", it.what, it.note) };
        systems.push(cells![it.system.name(), if it.is_here { "yes" } else { "no" }, what]);
    }
    vec![
        Block::Facts(facts),
        Block::Table(data_sets(&rerun.data_sets)),
        Block::List("", rerun.data_sets.iter().map(source).collect()),
        Block::Table(systems),
        Block::List(
            "How it is measured",
            [
                "Each run is a process of its own, in an order that the seed shuffles. User and system time \
                 are the kernel's for that process, from before the work until after it; a short run is \
                 repeated inside until it takes 20 ms.",
                "The kernel counts the time of a process exactly and splits it into user and system time \
                 by clock ticks: of a short run the sum is better than its parts.",
                "CREATE in a file ends with a sync of the file; READ and the others open the file anew. \
                 READ from disk asks the kernel to drop the file's pages before each repetition, which takes no \
                 rights; whether it did is seen from the bytes that came from the device.",
                "algorithm:* are the algorithms of the paper over pages in memory, without a file: their \
                 times have no system calls, so only their pages and probes and their user times compare.",
                "hash is db 1.85 as this library writes it: between two syncs, pages that leave the pool go to \
                 a temporary file, not to the file itself as in 1991. The number of pages is the same.",
            ]
            .map(Line::from)
            .to_vec(),
        ),
    ]
}

fn data_sets(sets: &[DataFacts]) -> Table {
    let mut table = Table::new("Data sets").words(["data set"]);
    table = table.numbers(["records", "key bytes", "pair bytes"]).words(["SHA-256"]).wide();
    for it in sets {
        table.push(cells![
            it.name.words(),
            it.pair_count,
            fixed(it.key_bytes_mean, 2),
            fixed(it.pair_bytes_mean, 2),
            Line::code(it.sha256.as_str()),
        ]);
    }
    table
}

fn source(it: &DataFacts) -> Line {
    let lost = if it.is_synthetic {
        "; the original is lost, and these accounts are of nobody"
    } else {
        "; the original list is lost"
    };
    let size = bytes((it.pair_bytes_mean * it.pair_count as f64).round() as u64);
    format!("{}: {}, {size}, seed {}{lost}", it.name.words(), it.source, it.seed).into()
}

/// Returns milliseconds with three digits.
fn milliseconds(seconds: f64) -> String {
    super::number::significant(seconds * 1e3)
}

#[cfg(test)]
mod tests;
