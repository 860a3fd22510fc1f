/// Returns the 32-bit hash of dbm and ndbm: `calchash` of the seventh edition.
///
/// For each nibble, the lower one of a byte first, it advances an index by a step of that nibble
/// and adds the word at the index. A file uses as many of the low bits as its size requires.
///
/// It serves to read old files; no store can use it. Its state is the sum of a few table words, so
/// collisions can be found by hand.
///
/// # Cost
///
/// Two additions of table words per key byte.
///
/// # Source
///
/// Dbm of the seventh edition; the words were published with 4.3BSD and illumos.
///
/// # Examples
///
/// ```
/// assert_eq!(splitpoint::hash::dbm(b""), 0);
/// assert_eq!(splitpoint::hash::dbm(b"\0"), 0o3_642_763_134 + 0o3_637_211_610);
/// ```
pub fn dbm(key: &[u8]) -> u32 {
    let (mut index, mut hash) = (0_u32, 0_u32);
    for &byte in key {
        for nibble in [byte & 15, byte >> 4] {
            index = index.wrapping_add(STEPS[usize::from(nibble)]);
            hash = hash.wrapping_add(WORDS[(index & 63) as usize]);
        }
    }
    hash
}

/// Steps of the table index of [`dbm`], by nibble.
const STEPS: [u32; 16] = [61, 57, 53, 49, 45, 41, 37, 33, 29, 25, 21, 17, 13, 9, 5, 1];

/// The words that [`dbm`] adds up, in octal as they were published.
const WORDS: [u32; 64] = [
    0o6_100_151_277,
    0o6_106_161_736,
    0o6_452_611_562,
    0o5_001_724_107,
    0o2_614_772_546,
    0o4_120_731_531,
    0o4_665_262_210,
    0o7_347_467_531,
    0o6_735_253_126,
    0o6_042_345_173,
    0o3_072_226_605,
    0o1_464_164_730,
    0o3_247_435_524,
    0o7_652_510_057,
    0o1_546_775_256,
    0o5_714_532_133,
    0o6_173_260_402,
    0o7_517_101_630,
    0o2_431_460_343,
    0o1_743_245_566,
    0o261_675_137,
    0o2_433_103_631,
    0o3_421_772_437,
    0o4_447_707_466,
    0o4_435_620_103,
    0o3_757_017_115,
    0o3_641_531_772,
    0o6_767_633_246,
    0o2_673_230_344,
    0o260_612_216,
    0o4_133_454_451,
    0o615_531_516,
    0o6_137_717_526,
    0o2_574_116_560,
    0o2_304_023_373,
    0o7_061_702_261,
    0o5_153_031_405,
    0o5_322_056_705,
    0o7_401_116_734,
    0o6_552_375_715,
    0o6_165_233_473,
    0o5_311_063_631,
    0o1_212_221_723,
    0o1_052_267_235,
    0o6_000_615_237,
    0o1_075_222_665,
    0o6_330_216_006,
    0o4_402_355_630,
    0o1_451_177_262,
    0o2_000_133_436,
    0o6_025_467_062,
    0o7_121_076_461,
    0o3_123_433_522,
    0o1_010_635_225,
    0o1_716_177_066,
    0o5_161_746_527,
    0o1_736_635_071,
    0o6_243_505_026,
    0o3_637_211_610,
    0o1_756_474_365,
    0o4_723_077_174,
    0o3_642_763_134,
    0o5_750_130_273,
    0o3_655_541_561,
];
