//! Any partition of the keys, merged in any order, gives what one pass gives.

use proptest::prelude::*;
use splitpoint_lab::{PartialStats, Reduction, Report, Setup, Specimen};

fn setups() -> Vec<Setup> {
    [
        ("fnv1a-32", Reduction::LowMask, 64, 0),
        ("xxh3-64", Reduction::Split, 100, 0),
        ("siphash-1-3", Reduction::Range, 37, 2),
        ("netbsd-byte-sum", Reduction::Modulus, 50, 0),
        ("linux-3.10-name", Reduction::AddFold, 256, 1),
    ]
    .map(|(name, reduction, bucket_count, sampling)| {
        let specimen = Specimen::by_name(name).expect("is there");
        let setup = Setup::new(specimen, 3, reduction, bucket_count).expect("the size suits");
        setup.sample_hashes(sampling)
    })
    .to_vec()
}

/// Keys, each with the part that it goes to, and the order in which the parts are merged.
fn partitions() -> impl Strategy<Value = (Vec<(Vec<u8>, usize)>, Vec<usize>)> {
    (1..8_usize).prop_flat_map(|parts| {
        let keys =
            prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), 0..parts), 0..300);
        (keys, Just((0..parts).collect::<Vec<_>>()).prop_shuffle())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_partition_in_any_order_gives_the_serial_report((keys, order) in partitions()) {
        for setup in setups() {
            let serial = setup.count(keys.iter().map(|(key, _)| key.as_slice()));
            let of_part = |part: usize| {
                let keys = keys.iter().filter(|(_, to)| *to == part);
                setup.count(keys.map(|(key, _)| key.as_slice()))
            };
            let mut merged = PartialStats::new(setup);
            for &part in &order {
                // Through bytes, as between machines.
                let bytes = of_part(part).encode();
                let decoded = PartialStats::decode(&bytes, setup).expect("they were just made");
                merged.merge(&decoded).expect("one setup");
            }
            prop_assert_eq!(merged.encode(), serial.encode());
            prop_assert_eq!(Report::new(&merged), Report::new(&serial));
        }
    }

    /// Three parts grouped either way.
    #[test]
    fn merging_is_associative_and_commutative(
        keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 3..60)
    ) {
        let third = keys.len() / 3;
        for setup in setups() {
            let count = |keys: &[Vec<u8>]| setup.count(keys.iter().map(Vec::as_slice));
            let parts =
                [&keys[..third], &keys[third..2 * third], &keys[2 * third..]].map(count);
            let join = |left: &PartialStats, right: &PartialStats| {
                let mut joined = left.clone();
                joined.merge(right).expect("one setup");
                joined
            };
            let [a, b, c] = &parts;
            let left = join(&join(a, b), c).encode();
            prop_assert_eq!(&left, &join(a, &join(b, c)).encode());
            prop_assert_eq!(&left, &join(&join(c, a), b).encode());
            let nothing = PartialStats::new(setup);
            prop_assert_eq!(join(&nothing, a).encode(), a.encode());
            prop_assert_eq!(join(a, &nothing).encode(), a.encode());
        }
    }
}
