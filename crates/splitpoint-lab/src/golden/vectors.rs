//! Test vectors: the values that the originals gave.
//!
//! # Source
//!
//! The original C, compiled and run, where it could be had; for `glibc-hsearch`, `sysv-hsearch`,
//! `netbsd-hash32-buf` and the Linux names of 2.2 to 3.17 the published formulas, worked out apart
//! from this crate. FNV and the modern functions agree with the vectors of their authors.

use crate::reduction::Reduction;

/// The keys of the vectors, in the order of their columns.
pub(super) const KEYS: [&str; 7] = [
    "",
    "a",
    "abc",
    "foobar",
    "a999999",
    "libsesquipedalianism.so.3.141",
    "The quick brown fox jumps over the lazy dog",
];

/// Name of the function, seed, and the hashes of the first of [`KEYS`].
pub(super) type Vector = (&'static str, u64, &'static [u64]);

/// The vectors of functions of plain keys.
pub(super) const VECTORS: &[Vector] = &[
    ("dbm", 0, &[0, 0x53fc_e33f, 0xabc5_cb35, 0x2dda_462e, 0x0237_be39, 0xa6cc_3878, 0xe3b7_3dbe]),
    ("db-hash1", 0, &[0, 0x41, 0x0001_52e0, 0x000c_53f2, 0x000d_0a6c, 0x000b_36fa, 0x0009_8f7f]),
    (
        "db-hash2",
        0,
        &[0, 0x9c39_c39e, 0xee32_8325, 0x448e_7f4f, 0x1ba2_0432, 0xf395_5096, 0x650e_3878],
    ),
    ("sdbm", 0, &[0, 0x61, 0x3025_f862, 0xa643_7b0d, 0xae16_29a1, 0xecd5_e991, 0x8ca7_7173]),
    ("db-hash4", 0, &[0, 0x61, 0x0001_a9a6, 0xf605_5bf9, 0xb3ee_c157, 0x63b8_1a4d, 0x2524_1cf9]),
    (
        "gdbm",
        0,
        &[0x3039, 0x094a_72e9, 0x4225_adf3, 0x7335_2fa5, 0x273d_a28d, 0x1fa5_6235, 0x3918_bdaf],
    ),
    ("glibc-hsearch", 0, &[1, 0x71, 0x9981, 0x0d87_9656, 0xaccc_ccf1, 0xc89c_98fc, 0xa0c3_6bd4]),
    ("sysv-hsearch", 0, &[0, 0x62, 0x129, 0x27f, 0x1be, 0xaaa, 0x1004]),
    (
        "fnv1-32",
        0,
        &[
            0x811c_9dc5,
            0x050c_5d7e,
            0x439c_2f4b,
            0x31f0_b262,
            0x21eb_8c54,
            0x1fd6_2abc,
            0xe9c8_6c6e,
        ],
    ),
    (
        "fnv1-32-bsd",
        0,
        &[
            0x0200_0023,
            0x4900_3778,
            0xec75_5c5d,
            0x4180_fa0c,
            0x5838_e63e,
            0x19e8_ca7a,
            0x78b0_930c,
        ],
    ),
    (
        "fnv1a-32",
        0,
        &[
            0x811c_9dc5,
            0xe40c_292c,
            0x1a47_e90b,
            0xbf9c_f968,
            0x500f_70ee,
            0x2d7c_a49a,
            0x048f_ff90,
        ],
    ),
    (
        "fnv1-64",
        0,
        &[
            0xcbf2_9ce4_8422_2325,
            0xaf63_bd4c_8601_b7be,
            0xd8dc_ca18_6baf_adcb,
            0x340d_8765_a4dd_a9c2,
            0xc952_4428_57ec_e9b4,
            0x6c6e_d958_8a0a_017c,
            0xa8b2_f311_7de3_7ace,
        ],
    ),
    (
        "fnv1a-64",
        0,
        &[
            0xcbf2_9ce4_8422_2325,
            0xaf63_dc4c_8601_ec8c,
            0xe71f_a219_0541_574b,
            0x8594_4171_f739_67e8,
            0x1a2e_3f52_118c_226e,
            0xdb0f_2cff_100e_fb3a,
            0xf3f9_b7f5_e7e4_7110,
        ],
    ),
    (
        "netbsd-hash32-buf",
        0,
        &[
            0x0015_1a05,
            0x152f_8066,
            0xf4f9_742b,
            0xe375_df7e,
            0x82fb_92bc,
            0xb642_c092,
            0xe040_a2de,
        ],
    ),
    ("linux-2.2-name", 0, &[0, 0x61, 0x6743, 0x0609_9462, 0x62aa_aaa9, 0xb4fd_a1fd, 0xf7c5_5681]),
    (
        "linux-r5-name",
        0,
        &[0, 0x42f2, 0x0022_d0aa, 0xbfc2_a203, 0x7bef_da06, 0xef56_6be3, 0x8780_9804],
    ),
    (
        "linux-3.10-name",
        0,
        &[0, 0x61, 0x0063_6261, 0x626f_e1c7, 0x3972_729a, 0x48ee_9c5f, 0x5ab9_b06d],
    ),
    (
        "linux-3.17-name",
        0,
        &[0, 0xf337_ffff, 0x6337_fe72, 0x88ca_e8a3, 0x868c_5454, 0x1902_612e, 0x4a3a_ffeb],
    ),
    (
        "linux-4.8-name",
        0,
        &[0, 0x98d5_1a30, 0x2692_3322, 0xcb29_9820, 0x97d7_0f65, 0x6a71_adf2, 0x93be_977d],
    ),
    (
        "linux-4.8-name",
        0xffff_8880_03c0_a9c0,
        &[
            0x8457_b607,
            0x9ac4_4c03,
            0xe737_5d3e,
            0x2301_f1af,
            0x4aad_5a95,
            0xc672_4a6b,
            0x9b40_22c0,
        ],
    ),
    (
        "linux-jhash",
        0,
        &[
            0xdead_beef,
            0x58d6_8708,
            0x0e39_7631,
            0xaeb7_2b0c,
            0x194c_451b,
            0x84e1_c3ad,
            0x64a2_cd46,
        ],
    ),
    (
        "rapidhash-v3",
        0,
        &[
            0x0338_dc4b_e2ce_cdae,
            0x599f_47df_33a2_e1eb,
            0xcb47_5bea_fa9c_0da2,
            0xd76f_53d9_bff5_e23c,
        ],
    ),
    (
        "xxh3-64",
        0,
        &[
            0x2d06_8005_38d3_94c2,
            0xe6c6_32b6_1e96_4e1f,
            0x78af_5f94_892f_3950,
            0xd78f_da63_144c_5c84,
        ],
    ),
    (
        "xxh64",
        0,
        &[
            0xef46_db37_51d8_e999,
            0xd24e_c4f1_a98c_6e5b,
            0x44bc_2cf5_ad77_0999,
            0xa2aa_05ed_9085_aaf9,
        ],
    ),
    #[cfg(all(target_feature = "aes", target_feature = "sse2"))]
    (
        "gxhash64",
        0,
        &[
            0xeed9_6c43_96ff_e83f,
            0x8cfc_2035_18a4_70c9,
            0x7743_a6fa_eecc_5404,
            0x222a_7446_c2bf_86aa,
        ],
    ),
    (
        "siphash-1-3",
        0,
        &[
            0xd1fb_a762_150c_532c,
            0x4074_48d2_b89b_1813,
            0xc03b_c3a0_0426_30f2,
            0x7738_ae0a_5df0_9b34,
        ],
    ),
    (
        "highwayhash-64",
        0,
        &[
            0x7035_da75_b9d5_4469,
            0xbd6e_fba9_eb78_e61f,
            0x79c2_2973_b1c3_4e09,
            0xc215_dbc3_9b9f_9cac,
        ],
    ),
];

/// Vectors of other keys: the header probe of db 1.85, and bytes above 127 in gdbm.
pub(super) const OTHER_VECTORS: [(&str, &[u8], u64); 3] = [
    ("db-hash4", b"%$sniglet^&\0", 0x956e_7de3),
    ("gdbm-signed", &[0xe9, 0xff], 0x18b2_6f86),
    ("gdbm", &[0xe9, 0xff], 0x28ce_3a86),
];

/// Function, reduction if not its own, fields and text of the key, bits of the table, bucket.
pub(super) type BucketVector =
    (&'static str, Option<Reduction>, &'static [u32], &'static str, u32, u64);

const DEVICE: u32 = 0x801;
const BLOCK: u32 = 123_456;
const INODE: u32 = 0xc3a5_1110;
const OFFSET: u32 = 0x7000;
const PARENT: u32 = 0xc2f3_b980;
const SUPERBLOCK: u32 = 0xc3f5_a600;

/// Buckets of the tables of Linux 2.2.
pub(super) const BUCKETS: &[BucketVector] = &[
    ("linux-2.2.5-buffer", None, &[DEVICE, BLOCK], "", 14, 0x2a41),
    ("lever-buffer-mult-11", None, &[DEVICE, BLOCK], "", 14, 0x1fb5),
    ("lever-buffer-mult-by-size", None, &[DEVICE, BLOCK], "", 14, 0x7e),
    ("lever-buffer-mult-11", Some(Reduction::Shift(18)), &[DEVICE, BLOCK], "", 14, 0x3f),
    ("steiner-buffer", None, &[DEVICE, BLOCK], "", 14, 0x3e38),
    ("linux-2.2.16-buffer", None, &[DEVICE, BLOCK], "", 14, 0x82f),
    ("linux-2.2.5-page", None, &[INODE, OFFSET], "", 11, 0x62),
    ("lever-page-offset", None, &[INODE, OFFSET], "", 14, 0x3203),
    ("lever-page-mult", None, &[INODE, OFFSET], "", 14, 0x677),
    ("linux-2.2.16-page", None, &[INODE, OFFSET], "", 14, 0x1118),
    ("linux-2.2.5-dentry", None, &[PARENT], "vmlinux", 10, 0x23e),
    ("lever-dentry-mult", None, &[PARENT], "vmlinux", 14, 0xa5d),
    ("linux-2.2.16-dentry", None, &[PARENT], "vmlinux", 13, 0x7d),
    ("linux-2.2-inode", None, &[SUPERBLOCK, 45_123], "", 8, 0xee),
    ("linux-2.2-inode", None, &[SUPERBLOCK, 45_123], "", 12, 0x661),
    ("linux-2.2-name", Some(Reduction::HighShift), &[], "vmlinux", 32, 0x70ba_f928),
];
