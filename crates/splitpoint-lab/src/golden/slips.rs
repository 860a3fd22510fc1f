//! Mistakes in the published texts, with the evidence.

use serde::Serialize;

use super::lever::Histogram;

/// A slip in a published text. The golden rows follow the data, not the slip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slip {
    /// The text.
    pub source: &'static str,
    /// What it says.
    pub printed: String,
    /// What shows that it is wrong, computed where it can be.
    pub evidence: String,
}

/// Lever's macro of the multiplicative hash, as printed.
const PRINTED_MACRO: &str = "(((block) * 2654435761UL) >> SHIFT) & bh_hash_mask)";

/// Returns the slips of the texts whose figures `rows` computes again.
pub fn slips() -> Vec<Slip> {
    let lever =
        |printed: String, evidence: String| Slip { source: "Lever 2000", printed, evidence };
    let second = Histogram::of_paper(2);
    let count = |wanted: char| PRINTED_MACRO.chars().filter(|&letter| letter == wanted).count();
    let used = second.buckets() - second.empty_buckets();
    let shifts: Vec<u32> = [15, 14, 13].map(|bits| 32 - bits).to_vec();
    let superblock = 0xc3f5_a600_u32;
    let inode_values = 1_u64 << (superblock as u16).count_zeros();
    let mut slips = vec![
        lever(
            "Table 4 is captioned dentry cache and Table 5 inode cache".to_owned(),
            "they carry each other's rows: Table 4 has the kernel of 12 bits, which the text on inodes \
             discusses"
                .to_owned(),
        ),
        lever(
            "bucket sizes approach a normal distribution".to_owned(),
            "an ideal hash gives binomial sizes, nearly Poisson, skewed at a mean of 2.3".to_owned(),
        ),
        lever(
            "Histogram 2's caption: 3,000+ buffers in about 220 buckets".to_owned(),
            format!("its log: {} buffers in {used} buckets", second.object_count),
        ),
        lever(
            "shifts 16, 17 and 18 for tables of 15, 14 and 13 bits".to_owned(),
            format!("by his own rule, 32 less the bits, they are {shifts:?}"),
        ),
        lever(
            format!("the macro of the multiplicative hash: {PRINTED_MACRO}"),
            format!("{} parentheses open and {} close", count('('), count(')')),
        ),
        lever(
            "a larger inode table is better".to_owned(),
            format!(
                "the function ORs the superblock's address in: with {superblock:#x} only \
                 {inode_values} of 65536 values of the low 16 bits are left"
            ),
        ),
    ];
    slips.extend(super::classics::slips());
    slips
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen::linux_2_2::inode_2_2;

    #[test]
    fn the_evidence_is_computed_from_the_data() {
        let slips = slips();
        assert_eq!(slips.len(), 6 + 9);
        assert_eq!(slips[2].evidence, "its log: 2644 buffers in 217 buckets");
        assert_eq!(slips[3].evidence, "by his own rule, 32 less the bits, they are [17, 18, 19]");
        assert_eq!(slips[4].evidence, "3 parentheses open and 4 close");
    }

    #[test]
    fn the_or_leaves_the_values_that_the_slip_names() {
        let values: std::collections::BTreeSet<u32> =
            (0..65_536).map(|inode| inode_2_2(0xc3f5_a600, inode) & 0xffff).collect();
        assert!(slips()[5].evidence.contains(&format!("only {} of", values.len())));
    }
}
