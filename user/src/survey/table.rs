//! Text in columns that fits the screen.

use std::fmt;

/// Columns of the screen.
pub const COLUMNS: usize = 80;
const GAP: &str = "  ";

/// A table below its title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    title: &'static str,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads and nothing below.
    pub fn new(title: &'static str, heads: &[&str]) -> Self {
        let heads = heads.iter().map(|&head| head.to_owned()).collect();
        Self {
            title,
            rows: vec![heads],
        }
    }

    /// Adds a row, with as many cells as there are heads.
    pub fn add(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(String::len).max().unwrap_or(0)
    }
}

/// Columns are as wide as they must be, and end below one another.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", cut(self.title))?;
        for row in &self.rows {
            let cells = row.iter().enumerate();
            let cells: Vec<String> = cells
                .map(|(column, cell)| format!("{cell:>0$}", self.width(column)))
                .collect();
            writeln!(f, "{}", cut(&format!("{GAP}{}", cells.join(GAP))))?;
        }
        Ok(())
    }
}

/// As much of a line as fits.
pub fn cut(line: &str) -> String {
    line.chars().take(COLUMNS).collect()
}

/// A time with three digits, in at most six characters.
pub fn time(ns: f64) -> String {
    let mut value = ns;
    for unit in ["ns", "us", "ms"] {
        match value {
            0.0..9.995 if unit != "ns" => return format!("{value:.2}{unit}"),
            0.0..99.95 if unit != "ns" => return format!("{value:.1}{unit}"),
            0.0..999.5 => return format!("{value:.0}{unit}"),
            _ => value /= 1000.0,
        }
    }
    format!("{value:.1}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_end_below_their_heads() {
        let mut table = Table::new("title", &["a", "wide"]);
        table.add(vec!["100".into(), "2".into()]);
        assert_eq!(table.to_string(), "title\n    a  wide\n  100     2\n");
    }

    #[test]
    fn times_have_three_digits() {
        let times = [0.0, 812.4, 3367.0, 99_960.0, 123_456.0, 32_736_252.0, 2.5e9];
        let shown = times.map(time);
        assert_eq!(
            shown,
            ["0ns", "812ns", "3.37us", "100us", "123us", "32.7ms", "2.5s"]
        );
    }
}
