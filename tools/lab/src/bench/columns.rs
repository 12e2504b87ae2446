//! [`Column`]: a key of rows, its heading, and how the figure is written. Tables are made here.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::row::Row;

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Of the figure in a row.
    pub key: &'static str,
    /// Above the figures.
    pub heading: &'static str,
    /// How they are written.
    pub format: Format,
}

/// How a figure is written; one that is not there is a dash.
#[derive(Debug, Clone, Copy)]
pub enum Format {
    /// Words, on the left.
    Words,
    /// A number with so many decimals.
    Digits(usize),
    /// A number, with a mark on rows of more busy CPUs than the host has cores.
    Actors,
    /// A counter of the engine with two decimals.
    Counter,
    /// Nanoseconds, in microseconds.
    Micros,
    /// A number with as many digits as say something.
    Short,
    /// In percent, which the heading says.
    Percent,
    /// A change in percent, likewise.
    Change,
    /// By how much the figure of another key deviates from this one, in percent likewise.
    Deviation(&'static str),
    /// Made of several figures.
    Of(fn(&Row) -> Option<String>),
}

impl Column {
    /// A column.
    pub const fn new(key: &'static str, heading: &'static str, format: Format) -> Self {
        Self {
            key,
            heading,
            format,
        }
    }

    /// The figure of a row.
    pub fn cell(&self, row: &Row) -> String {
        or_dash(self.written(row))
    }

    fn written(&self, row: &Row) -> Option<String> {
        let figure = row.number(self.key);
        Some(match self.format {
            Format::Words => row.0.get(self.key)?.as_str()?.to_owned(),
            Format::Digits(digits) => format!("{:.digits$}", figure?),
            Format::Actors => {
                let mark = if row.is_crowded() { " *" } else { "" };
                format!("{}{mark}", row.count(self.key))
            }
            Format::Counter => format!("{:.2}", row.counter(self.key)),
            Format::Micros => micros(figure?),
            Format::Short => short(figure?),
            Format::Percent => format!("{:.1}", figure?),
            Format::Change => format!("{:+.1}", figure?),
            Format::Deviation(of) => {
                let percent = (row.number(of)? / figure? - 1.0) * 100.0;
                format!("{percent:+.1}")
            }
            Format::Of(cell) => cell(row)?,
        })
    }
}

/// A table of rows.
pub fn table<'a>(columns: &[Column], rows: impl IntoIterator<Item = &'a Row>) -> String {
    let heading = columns.iter().map(|column| column.heading);
    let cells = |row: &Row| columns.iter().map(|column| column.cell(row)).collect();
    let rows = rows.into_iter().map(cells).collect();
    grid(heading, rows, |index| {
        matches!(columns[index].format, Format::Words)
    })
}

/// A table of cells; columns of words are on the left, all others on the right. Where it is wider than the terminal it comes in several.
pub fn grid(
    heading: impl IntoIterator<Item = impl ToString>,
    rows: Vec<Vec<String>>,
    has_words: impl Fn(usize) -> bool,
) -> String {
    let mut lines = vec![heading.into_iter().map(|head| head.to_string()).collect()];
    lines.extend(rows);
    let width = |column: usize| {
        let cells = lines
            .iter()
            .map(|line: &Vec<String>| line[column].chars().count());
        cells.max().unwrap_or(0) + FRAME
    };
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let keys = 1
        + (0..MOST_KEYS.min(widths.len()))
            .rposition(&has_words)
            .unwrap_or(0);
    let most = terminal_width();
    let parts = parts(&widths, keys, most.map_or(usize::MAX, usize::from));
    let drawn = parts
        .iter()
        .map(|part| draw(&lines, part, &has_words, most));
    drawn.collect::<Vec<_>>().join("\n")
}

/// What a column takes beside its widest cell, and a table beside its columns.
const FRAME: usize = 3;
const EDGE: usize = 1;
/// The columns that say what a row is end with one of words, if there is one among so many.
const MOST_KEYS: usize = 4;

/// Which columns stand in which table: all in one, or in each the first `keys`, and of the others as many as have room, at least one.
fn parts(widths: &[usize], keys: usize, most: usize) -> Vec<Vec<usize>> {
    let first: Vec<usize> = (0..keys).collect();
    let width = |part: &[usize]| part.iter().map(|&at| widths[at]).sum::<usize>() + EDGE;
    let mut parts = vec![first.clone()];
    for (column, wanted) in widths.iter().enumerate().skip(keys) {
        let part = parts.last_mut().expect("one was there to begin with");
        if part.len() > keys && width(part) + wanted > most {
            parts.push([&first[..], &[column]].concat());
        } else {
            part.push(column);
        }
    }
    parts
}

/// One table of those columns; cells that do not fit even so are broken into lines.
fn draw(
    lines: &[Vec<String>],
    columns: &[usize],
    has_words: &impl Fn(usize) -> bool,
    most: Option<u16>,
) -> String {
    let mut rows = lines.iter().map(|line| columns.iter().map(|&at| &line[at]));
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    if let Some(most) = most {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(most);
    }
    if let Some(heading) = rows.next() {
        table.set_header(heading);
    }
    table.add_rows(rows);
    for (column, &at) in table.column_iter_mut().zip(columns) {
        if !has_words(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// How many characters a line has, if people read what is printed as it comes.
fn terminal_width() -> Option<u16> {
    let output = rustix::stdio::stdout();
    let size = rustix::termios::tcgetwinsize(output).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}

/// What is shown of something that may be missing.
pub fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

/// `1 page`, `2 pages`: the number with the word, which is given in the plural.
pub fn counted(count: usize, words: &str) -> String {
    match count {
        1 => format!("1 {}", words.trim_end_matches('s')),
        _ => format!("{count} {words}"),
    }
}

/// As short as it is exact.
pub fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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

/// Nanoseconds in microseconds, to the nanosecond below one.
pub fn micros(ns: f64) -> String {
    match ns / 1000.0 {
        us if us < 0.0005 => "0".to_owned(),
        us if us < 0.9995 => format!("{us:.3}"),
        us => short(us),
    }
}

/// A number with as many digits as say something.
pub fn short(value: f64) -> String {
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
        assert_eq!(micros(0.0), "0");
        assert_eq!(micros(412.4), "0.412");
        assert_eq!(micros(1_000.0), "1.00");
        assert_eq!(micros(26_268.0), "26.3");
        assert_eq!(micros(1_919_110.0), "1919");
        assert_eq!(bytes(128), "128 B");
        assert_eq!(bytes(512 << 20), "512 MiB");
        assert_eq!(bytes(64 << 10), "64 KiB");
        assert_eq!(short(0.066), "0.07");
        assert_eq!(short(31.125), "31.1");
        assert_eq!(number(42.1), "42.1");
        assert_eq!(number(100.0), "100");
        assert_eq!(number(0.125), "0.125");
    }

    #[test]
    fn a_table_that_is_too_wide_comes_in_several() {
        let widths = [10, 10, 10, 10, 10];
        let whole = [vec![0, 1, 2, 3, 4]];
        assert_eq!(parts(&widths, 2, 51), whole);
        assert_eq!(parts(&widths, 2, 50), [vec![0, 1, 2, 3], vec![0, 1, 4]]);
        let narrow = [vec![0, 1, 2], vec![0, 1, 3], vec![0, 1, 4]];
        assert_eq!(parts(&widths, 2, 40), narrow);
        assert_eq!(parts(&widths, 2, 1), narrow);
        assert_eq!(parts(&widths[..1], 1, 1), [vec![0]]);
    }

    #[test]
    fn one_of_a_thing_is_singular() {
        assert_eq!(counted(1, "pages"), "1 page");
        assert_eq!(counted(0, "pages"), "0 pages");
    }

    #[test]
    fn what_is_missing_is_a_dash_and_deviations_are_in_percent() {
        let json = r#"{"policy":"best","ns":90,"published_ns":100,"none":null,"crowded":true}"#;
        let row: Row = serde_json::from_str(json).unwrap();
        let cell = |key, format| Column::new(key, "", format).cell(&row);
        assert_eq!(cell("policy", Format::Words), "best");
        assert_eq!(cell("none", Format::Digits(2)), "-");
        assert_eq!(cell("ns", Format::Actors), "90 *");
        assert_eq!(cell("moved", Format::Counter), "0.00");
        assert_eq!(cell("published_ns", Format::Deviation("ns")), "-10.0");
        assert_eq!(cell("none", Format::Deviation("ns")), "-");
    }
}
