//! Counts, sizes and probabilities as text, for terminals and pages alike.

/// Returns `number` with a comma between every three digits.
///
/// # Examples
///
/// ```
/// assert_eq!(splitpoint_lab::number::grouped(348_454), "348,454");
/// ```
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns `count` with the right form of `noun`: `1 key`, `2 keys`.
///
/// # Examples
///
/// ```
/// assert_eq!(splitpoint_lab::number::counted(1, "key"), "1 key");
/// assert_eq!(splitpoint_lab::number::counted(2500, "key"), "2,500 keys");
/// ```
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(count))
}

/// Returns `number` with `decimals` decimals, and commas before them.
///
/// # Examples
///
/// ```
/// assert_eq!(splitpoint_lab::number::fixed(18_208.394, 2), "18,208.39");
/// assert_eq!(splitpoint_lab::number::fixed(-0.004, 2), "0.00");
/// ```
pub fn fixed(number: f64, decimals: usize) -> String {
    let plain = format!("{:.decimals$}", number.abs());
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let whole = whole.parse().map_or_else(|_| whole.to_string(), grouped);
    let is_zero = plain.bytes().all(|digit| matches!(digit, b'0' | b'.'));
    let sign = if number < 0.0 && !is_zero { "-" } else { "" };
    format!("{sign}{whole}{rest}")
}

/// Returns `bytes` with a binary unit.
///
/// # Examples
///
/// ```
/// assert_eq!(splitpoint_lab::number::bytes(1536), "1.5 KiB");
/// ```
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut size, mut unit) = (bytes as f64 / 1024.0, 0);
    while size >= 1023.95 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// Returns a probability as text, which is never 0.
///
/// # Examples
///
/// ```
/// use splitpoint_lab::number::probability;
///
/// assert_eq!([probability(0.0312), probability(6.2e-12)], ["0.031", "6e-12"]);
/// assert_eq!(probability(0.0), "< 1e-300");
/// ```
pub fn probability(p: f64) -> String {
    match p {
        _ if p >= 0.9995 => "1.000".to_string(),
        _ if p >= 0.001 => format!("{p:.3}"),
        _ if p >= 1e-300 => format!("{p:.0e}"),
        _ => "< 1e-300".to_string(),
    }
}

/// Returns `p = 0.031`, or `p < 1e-300`.
pub fn p_is(p: f64) -> String {
    if p >= 1e-300 { format!("p = {}", probability(p)) } else { "p < 1e-300".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three() {
        for (number, shown) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (51294, "51,294"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), shown);
        }
        assert_eq!(counted(0, "record"), "0 records");
    }

    #[test]
    fn sizes_have_a_binary_unit() {
        for (size, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (3 << 30, "3.0 GiB"),
        ] {
            assert_eq!(bytes(size), shown);
        }
    }

    #[test]
    fn a_probability_of_nothing_is_not_called_zero() {
        assert_eq!(p_is(0.0), "p < 1e-300");
        assert_eq!(p_is(4e-301), "p < 1e-300");
        assert_eq!([p_is(1.0), p_is(0.5), p_is(2e-300)], ["p = 1.000", "p = 0.500", "p = 2e-300"]);
    }
}
