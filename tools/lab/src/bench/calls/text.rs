//! How figures are written.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

/// A table whose first `words` columns are words and all others numbers.
pub fn table(heading: Vec<String>, rows: Vec<Vec<String>>, words: usize) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(heading);
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        if index >= words {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Nanoseconds, in the unit in which they have three or four digits.
pub fn time(ns: f64) -> String {
    match ns {
        _ if ns < 9_999.5 => format!("{ns:.0} ns"),
        _ if ns < 999_950.0 => format!("{:.1} us", ns / 1e3),
        _ if ns < 9_999_500.0 => format!("{:.0} us", ns / 1e3),
        _ => format!("{:.1} ms", ns / 1e6),
    }
}

/// Bytes, likewise.
pub fn bytes(bytes: usize) -> String {
    let kib = bytes as f64 / 1024.0;
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=9_999_999 => format!("{kib:.0} KiB"),
        _ => format!("{:.0} MiB", kib / 1024.0),
    }
}

/// A number with as many digits as say something.
pub fn count(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_few_digits_and_a_unit() {
        assert_eq!(time(412.4), "412 ns");
        assert_eq!(time(9_999.0), "9999 ns");
        assert_eq!(time(26_268.0), "26.3 us");
        assert_eq!(time(1_919_110.0), "1919 us");
        assert_eq!(time(40_600_000.0), "40.6 ms");
        assert_eq!(bytes(128), "128 B");
        assert_eq!(bytes(512 << 20), "512 MiB");
        assert_eq!(bytes(64 << 10), "64 KiB");
        assert_eq!(count(0.066), "0.07");
        assert_eq!(count(31.125), "31.1");
    }
}
