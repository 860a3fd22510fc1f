//! Mistakes in the paper, besides those that the golden results list.

use crate::golden::{self, Histogram, Slip};

/// Returns all of them, with the arithmetic.
pub(super) fn slips() -> Vec<Slip> {
    let mut slips: Vec<Slip> =
        golden::slips().into_iter().filter(|slip| slip.source == "Lever 2000").collect();
    let third = Histogram::of_paper(3);
    let by_buckets = third.rows.iter().max_by_key(|row| row[1]).map_or(0, |row| row[0]);
    let by_items = third.rows.iter().max_by_key(|row| row[2]).map_or(0, |row| row[0]);
    let up_to = |size: usize| third.rows.get(size).map_or(0, |row| row[3]);
    let slip = |printed: &str, evidence: String| Slip {
        source: "Lever 2000",
        printed: printed.to_owned(),
        evidence,
    };
    slips.extend([
        slip(
            "the average bucket of 37,000 buffers in 16384 buckets should be about 3",
            format!("37,256 / 16,384 = {:.3}", 37_256.0 / 16_384.0),
        ),
        slip(
            "the height of the distribution is at buckets of size 3, the expected average",
            format!(
                "buckets are most at size {by_buckets}, buffers at size {by_items}; the average is 2.27"
            ),
        ),
        slip(
            "about 68 % of the buffers are in buckets of the average or less",
            format!("Histogram 3: {} % up to size 2, {} % up to size 3", up_to(2), up_to(3)),
        ),
        slip(
            "each bucket requires two pointers, so a 64K bucket table requires 256K",
            format!(
                "65,536 buckets of two pointers take {} KiB; 256 KiB are one pointer each",
                65_536 * 8 / 1024
            ),
        ),
        slip(
            "the shift value is 15, the number of bits in 16384",
            format!(
                "16,384 = 2^{}; so for the dentry table, 8192 = 2^{} and not a shift of 14",
                16_384_u32.ilog2(),
                8192_u32.ilog2()
            ),
        ),
        slip(
            "making the inode table larger by a factor of four would do",
            "four times 256 are 1024; the kernels that he measured had 4096 and 16,384 buckets".to_owned(),
        ),
        slip(
            "Table 2: 32768 buckets, 4405.3 scripts an hour in 12 min 49 sec",
            "8192 buckets have fewer scripts an hour, 4387.3, and less elapsed time, 12 min 40 sec"
                .to_owned(),
        ),
    ]);
    slips
}
