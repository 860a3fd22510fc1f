//! The layout of a big pair over pages: arithmetic only.
//!
//! The key comes first, then the value, and each page is as full as possible. If the value ends on
//! the same page as the key, that page must have a free byte, by which a reader recognizes the end.
//! So a pair that would fill that page exactly needs another layout.
//!
//! The old implementations fail here, each in another way. db 1.85 crashes when it reads its own
//! file. FreeBSD's and Apple's leave the page half full, and 1.85 may put another pair there that
//! nothing finds again; with an empty value they loop. This library holds back one byte of the key
//! on the page before, which all of them read. Then the value either continues on the next page or
//! is empty on a separate page.

use std::ops::Range;

use super::page::{After, part_bytes_max};

/// The parts of a big pair on one page: ranges of the key and of the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
    pub(super) after: After,
    /// Whether the page begins with a part of the key.
    pub(super) has_key: bool,
}

/// Returns the pages of a pair of these sizes.
pub(super) fn layout(page_bytes: usize, key_bytes: usize, value_bytes: usize) -> Vec<Share> {
    let part_bytes = part_bytes_max(page_bytes);
    let mut shares = Vec::new();
    let mut key_at = 0;
    loop {
        let rest = key_bytes - key_at;
        let would_fill = |rest: usize| rest.checked_add(value_bytes) == Some(part_bytes);
        let held_back = rest > part_bytes && would_fill((rest - 1) % part_bytes + 1);
        // Only the last page that the key fills gives up its last byte.
        let is_next_to_last = rest <= 2 * part_bytes;
        let len = rest.min(part_bytes - usize::from(held_back && is_next_to_last));
        let key = key_at..key_at + len;
        key_at += len;
        if key_at < key_bytes {
            shares.push(Share { key, value: 0..0, after: After::Key, has_key: true });
            continue;
        }
        let value = 0..value_bytes.min(part_bytes - len);
        let is_whole = value.end == value_bytes && len + value.end < part_bytes;
        let after = if is_whole { After::Nothing } else { After::Value };
        let value_at = value.end;
        shares.push(Share { key, value, after, has_key: true });
        if !is_whole {
            value_shares(part_bytes, value_at, value_bytes, &mut shares);
        }
        return shares;
    }
}

/// Adds the pages that have only a part of the value, from `at` on.
fn value_shares(part_bytes: usize, at: usize, value_bytes: usize, shares: &mut Vec<Share>) {
    let mut at = at;
    while at < value_bytes {
        let rest = value_bytes - at;
        // As the original does: a value that fits one page exactly gets two.
        let held_back = usize::from(at == 0 && rest == part_bytes);
        let value = at..at + rest.min(part_bytes) - held_back;
        at = value.end;
        let after = if at < value_bytes { After::Value } else { After::Nothing };
        shares.push(Share { key: 0..0, value, after, has_key: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db185::page::is_big;

    /// For every size around the borders of small pages: nothing is lost, every page is within its
    /// bounds, and the end of the value can be told.
    #[test]
    fn every_layout_is_whole_and_can_be_read() {
        for page_bytes in [32, 64] {
            let part_bytes = part_bytes_max(page_bytes);
            for key_bytes in 0..4 * part_bytes {
                for value_bytes in 0..4 * part_bytes {
                    if is_big(page_bytes, key_bytes, value_bytes) {
                        check(part_bytes, key_bytes, value_bytes);
                    }
                }
            }
        }
    }

    fn check(part_bytes: usize, key_bytes: usize, value_bytes: usize) {
        let shares = layout(part_bytes + 14, key_bytes, value_bytes);
        let about = format!("{part_bytes} {key_bytes} {value_bytes} {shares:?}");
        let (mut key_at, mut value_at) = (0, 0);
        for (i, share) in shares.iter().enumerate() {
            let is_last = i + 1 == shares.len();
            assert_eq!(share.after == After::Nothing, is_last, "{about}");
            let used = share.key.len() + share.value.len();
            assert!(used <= part_bytes, "{about}");
            if share.has_key {
                assert_eq!(share.key.start, key_at, "{about}");
                key_at = share.key.end;
                let ends = key_at == key_bytes;
                assert_eq!(share.after == After::Key, !ends, "{about}");
                // A page that could take another pair would be given one by the original.
                assert!(share.after != After::Key || used + 4 > part_bytes, "{about}");
                assert!(share.after != After::Value || used == part_bytes, "{about}");
                assert!(share.after != After::Nothing || used < part_bytes, "{about}");
            } else {
                assert!(key_at == key_bytes && !share.value.is_empty(), "{about}");
            }
            if !share.value.is_empty() {
                assert_eq!(share.value.start, value_at, "{about}");
                value_at = share.value.end;
            }
        }
        assert_eq!((key_at, value_at), (key_bytes, value_bytes), "{about}");
        assert!(shares.len() <= (key_bytes + value_bytes).div_ceil(part_bytes) + 2, "{about}");
    }

    #[test]
    fn pairs_that_crash_the_original_are_laid_out_otherwise() {
        // Pages of 512 bytes have 498 bytes for a part.
        let lens = |key_bytes, value_bytes| {
            let shares = layout(512, key_bytes, value_bytes);
            shares.iter().map(|share| (share.key.len(), share.value.len())).collect::<Vec<_>>()
        };
        assert_eq!(lens(988, 8), [(497, 0), (491, 7), (0, 1)]);
        assert_eq!(lens(996, 0), [(497, 0), (498, 0), (1, 0)]);
        assert_eq!(lens(988, 7), [(498, 0), (490, 7)]);
        assert_eq!(lens(988, 9), [(498, 0), (490, 8), (0, 1)]);
        assert_eq!(lens(498, 498), [(498, 0), (0, 497), (0, 1)]);
        assert_eq!(lens(0, 600), [(0, 498), (0, 102)]);
    }
}
