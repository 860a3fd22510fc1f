//! How numbers are written on the page: few digits, the same for every reader.

pub(super) use crate::number::{bytes, counted, fixed, grouped, p_is, probability};

/// Returns `number` with three digits that matter: `0.0123`, `1.23`, `12.3`, `1,234`.
pub(super) fn significant(number: f64) -> String {
    let size = number.abs();
    match size {
        0.0 => "0".to_string(),
        _ if size < 0.000_095 => format!("{number:.1e}"),
        _ if size < 0.995 => {
            let decimals = 2 - (size.log10().floor() as i32);
            fixed(number, decimals.clamp(2, 7) as usize)
        }
        _ if size < 9.995 => fixed(number, 2),
        _ if size < 99.95 => fixed(number, 1),
        _ if size < 1e15 => fixed(number, 0),
        _ => format!("{number:.2e}"),
    }
}

/// Returns a cost in units of the ideal: three decimals where they matter.
pub(super) fn ratio(ratio: f64) -> String {
    fixed(ratio, if ratio < 1000.0 { 3 } else { 0 })
}

/// Returns a number of buckets or keys that need not be whole: one decimal where it is small.
pub(super) fn expected(number: f64) -> String {
    match number {
        _ if number >= 999.5 => fixed(number, 0),
        _ if number >= 0.95 => fixed(number, 1),
        _ if number > 0.0 && number < 0.0005 => "< 0.001".to_string(),
        _ => significant(number),
    }
}

/// Returns a share of 1 in percent.
pub(super) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    // What rounding leaves of nothing is nothing.
    let decimals = if (1e-9..9.995).contains(&percent) { 2 } else { 1 };
    // Which must not stand alone on the next line.
    format!("{}\u{a0}%", fixed(percent, decimals))
}

/// Returns a label of an axis: `250`, `50k`, `1.5M`.
pub(super) fn short(number: f64) -> String {
    let (scaled, unit) = match number.abs() {
        size if size >= 1e9 => (number / 1e9, "G"),
        size if size >= 1e6 => (number / 1e6, "M"),
        size if size >= 1e4 => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let text = format!("{scaled:.3}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns a moment as a date and a time of day in UTC.
///
/// # Source
///
/// Days to civil dates: Hinnant, `chrono`-compatible low-level date algorithms, 2013.
pub(super) fn moment(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second % 3600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        for (number, shown) in [
            (0.0, "0"),
            (0.000_012, "1.2e-5"),
            (0.012_34, "0.0123"),
            (0.9949, "0.995"),
            (1.0, "1.00"),
            (12.34, "12.3"),
            (1234.5, "1,234"),
            (-3.456, "-3.46"),
        ] {
            assert_eq!(significant(number), shown);
        }
        assert_eq!(fixed(-0.001, 2), "0.00");
        assert_eq!(
            [expected(0.004), expected(1e-9), expected(12345.6)],
            ["0.00400", "< 0.001", "12,346"]
        );
        assert_eq!([short(1_500_000.0), short(250.0), short(0.25)], ["1.5M", "250", "0.25"]);
    }

    #[test]
    fn shares_have_the_digits_that_matter() {
        assert_eq!(
            [percent(0.5), percent(0.001_23), percent(9e-15)],
            ["50.0\u{a0}%", "0.12\u{a0}%", "0.0\u{a0}%"]
        );
    }

    #[test]
    fn moments_are_dates() {
        for (unix_s, shown) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_795_287_600, "2026-11-21 19:00 UTC"),
        ] {
            assert_eq!(moment(unix_s), shown);
        }
    }
}
