//! [`Figure`]: which rows and columns of a bench's result a table shows; how it is written.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::plot::Plot;
use super::record::typed;
use crate::bench::{bytes, short, time};
use crate::failure::{Failure, Outcome};

/// Keys and the values that a row must have.
pub type Axes = BTreeMap<String, Value>;

/// A table, or a sentence, of a document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What is asked of the lab: words behind `./lab`. Or what runs an example that takes `--json FILE`, from `cargo` on.
    pub command: String,
    /// Whether the host's clock timed it, so that another run has other figures; such a figure is made only if it is named.
    #[serde(default)]
    pub is_timed_by_host: bool,
    /// What the name of the processor contains that it is about; another one's host does not make it.
    #[serde(default)]
    processor: Option<String>,
    /// Whether its bench takes minutes, so that `lab test` compares the table with the record only.
    #[serde(default)]
    pub takes_minutes: bool,
    /// The keys that lead to its rows, with dots between; a row has all that those above it have.
    #[serde(default = "in_rows")]
    rows: String,
    /// Only rows with these values are shown.
    #[serde(default)]
    only: Axes,
    /// The keys whose values tell lines apart.
    lines: Vec<String>,
    /// Only lines where the figure of another column with this key is less than that of the last column, as it is written, are shown.
    #[serde(default)]
    behind: Option<String>,
    /// From left to right; without any, the figure is its drawing.
    #[serde(default)]
    columns: Vec<Column>,
    /// A drawing of its rows.
    plot: Option<Plot>,
    /// In place of a table: text with `{HEADING}` where figures of the first line go.
    sentence: Option<String>,
}

fn in_rows() -> String {
    String::from("rows")
}

/// A column of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    heading: String,
    /// The key in the rows.
    key: String,
    /// Which row of a line, where it has several.
    #[serde(default)]
    of: Axes,
    /// Which row to divide by.
    #[serde(default)]
    to: Axes,
    #[serde(default)]
    format: Format,
}

/// How a figure is written.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// Words and whole numbers as they are.
    #[default]
    Plain,
    /// Nanoseconds, rounded.
    Ns,
    /// Nanoseconds, in the unit in which they have three or four digits.
    Time,
    /// Nanoseconds, in microseconds with one decimal.
    Us,
    /// Nanoseconds, in milliseconds with two decimals.
    Ms,
    /// A whole number, with spaces between thousands.
    Count,
    /// A ratio with three decimals.
    Ratio,
    /// A number with as many digits as say something.
    Short,
    /// A change in percent, with its sign.
    Change,
    /// In the unit in which they have few digits.
    Bytes,
}

impl Figure {
    /// What the table needs of a result.
    ///
    /// # Errors
    /// The result has no rows, or none of a line or column, or is another processor's.
    pub fn record(&self, result: &Value) -> Outcome<Value> {
        let processor = result["about"]["processor"].as_str().unwrap_or_default();
        if let Some(wanted) = &self.processor
            && !processor.contains(wanted.as_str())
        {
            return Err(Failure::input(
                format!(
                    "the figure is about a processor with {wanted} in its name, and this one is {processor:?}"
                ),
                "measure it there, or make a figure of its own in docs/figures for this processor",
            ));
        }
        let keys: Vec<&String> = self.keys();
        let is_shown = |row: &Value| {
            let in_table = |it: &Column| has(row, &it.of) || has(row, &it.to);
            let in_plot = |plot: &Plot| plot.shows(row);
            has(row, &self.only)
                && (self.columns.iter().any(in_table) || self.plot.iter().any(in_plot))
        };
        let kept = |row: Value| {
            let pairs = keys
                .iter()
                .filter_map(|key| Some(((*key).clone(), row.get(*key)?.clone())));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        let rows = self.rows.split('.').fold(vec![result.clone()], below);
        let rows: Vec<Value> = rows.into_iter().filter(is_shown).map(kept).collect();
        let mut record = json!({ "command": self.command });
        if self.is_timed_by_host {
            for key in ["date", "commit", "accel"] {
                record[key] = result[key].clone();
            }
        }
        record["rows"] = rows.into();
        self.render(&record).map(|_| record)
    }

    /// The text between the marks.
    ///
    /// # Errors
    /// A figure is not there.
    pub fn render(&self, record: &Value) -> Outcome<String> {
        let empty = Vec::new();
        let rows = record["rows"].as_array().unwrap_or(&empty);
        let mut lines: Vec<Axes> = Vec::new();
        for row in rows.iter().filter(|row| has(row, &self.only)) {
            let axes = self.lines.iter().map(|key| (key.clone(), row[key].clone()));
            let axes: Axes = axes.collect();
            if !lines.contains(&axes) && self.has_line(rows, &axes) {
                lines.push(axes);
            }
        }
        if lines.is_empty() {
            return Err(Failure::work(format!(
                "{}  prints no row of the figure",
                typed(&self.command)
            )));
        }
        let cells = lines.iter().map(|line| self.cells(rows, line));
        let cells = cells.collect::<Outcome<Vec<Vec<String>>>>()?;
        Ok(match &self.sentence {
            None => self.table(&cells, record),
            Some(sentence) => self.say(sentence, &cells[0]),
        })
    }

    /// Its drawing, if it has one.
    ///
    /// # Errors
    /// A figure is not there.
    pub fn svg(&self, record: &Value) -> Outcome<Option<String>> {
        let rows = record["rows"].as_array().into_iter().flatten();
        let rows: Vec<&Value> = rows.filter(|row| has(row, &self.only)).collect();
        self.plot.as_ref().map(|plot| plot.svg(&rows)).transpose()
    }

    fn figure<'a>(
        &self,
        rows: &'a [Value],
        line: &Axes,
        of: &Axes,
        key: &str,
    ) -> Option<&'a Value> {
        let is_wanted = |row: &&Value| has(row, line) && has(row, &self.only) && has(row, of);
        rows.iter().find(is_wanted)?.get(key)
    }

    /// Whether the line is one of those that the figure is about.
    fn has_line(&self, rows: &[Value], line: &Axes) -> bool {
        let Some(key) = &self.behind else {
            return true;
        };
        let columns = self.columns.iter().filter(|column| column.key == *key);
        let figures = columns.map(|column| {
            let figure = self.figure(rows, line, &column.of, key)?;
            Some((figure.as_f64()?, column.format.write(figure)))
        });
        let figures: Vec<(f64, String)> = figures.flatten().collect();
        // What is written alike is level.
        (figures.split_last()).is_some_and(|((last, written), others)| {
            others
                .iter()
                .any(|(other, its)| other < last && its != written)
        })
    }

    fn cells(&self, rows: &[Value], line: &Axes) -> Outcome<Vec<String>> {
        let of = |axes: &Axes, key: &str| self.figure(rows, line, axes, key);
        let cell = |column: &Column| {
            let key = &column.key;
            let Some(figure) = of(&column.of, key) else {
                return Err(Failure::work(format!(
                    "{}  prints no {key} for the column {} of {line:?}",
                    typed(&self.command),
                    column.heading
                )));
            };
            if column.to.is_empty() {
                return Ok(column.format.write(figure));
            }
            let reference = of(&column.to, key).and_then(Value::as_f64);
            let ratio = figure
                .as_f64()
                .zip(reference)
                .map(|(figure, to)| figure / to);
            Ok(column.format.write(&ratio.into()))
        };
        self.columns.iter().map(cell).collect()
    }

    fn table(&self, cells: &[Vec<String>], record: &Value) -> String {
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let cells: Vec<&str> = cells.collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = String::new();
        if !self.columns.is_empty() {
            text += &line(&mut self.columns.iter().map(|it| it.heading.as_str()));
            text += &format!("|{}\n", "---|".repeat(self.columns.len()));
            for cells in cells {
                let cells = self.columns.iter().zip(cells);
                let cells: Vec<String> = cells.map(|(it, cell)| it.format.unbroken(cell)).collect();
                text += &line(&mut cells.iter().map(String::as_str));
            }
            text += "\n";
        }
        let when = match (record["date"].as_str(), record["commit"].as_str()) {
            (Some(date), Some(commit)) => {
                format!(", {}, commit {commit}", date.get(..8).unwrap_or(date))
            }
            _ => String::new(),
        };
        // What is not in the main result is in the tables.
        let all = match self.command.starts_with("bench ") {
            true => " --tables",
            false => "",
        };
        text + &format!("`{}{all}`{when}\n", typed(&self.command))
    }

    fn say(&self, sentence: &str, cells: &[String]) -> String {
        let figures = self.columns.iter().zip(cells);
        let text = figures.fold(sentence.to_owned(), |text, (column, cell)| {
            text.replace(&format!("{{{}}}", column.heading), cell)
        });
        text.trim_end().to_owned() + "\n"
    }

    /// All keys of rows that the table needs, each once.
    fn keys(&self) -> Vec<&String> {
        let of = self.columns.iter();
        let of = of.flat_map(|it| it.of.keys().chain(it.to.keys()).chain([&it.key]));
        let mut keys: Vec<&String> = self.only.keys().chain(&self.lines).collect();
        for key in of.chain(self.plot.iter().flat_map(Plot::keys)) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }
}

/// What stands under `key` in these objects, one after the other, each with the fields of the one that it stands in.
fn below(objects: Vec<Value>, key: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for object in objects {
        let Value::Object(mut fields) = object else {
            continue;
        };
        let children = match fields.remove(key) {
            Some(Value::Array(children)) => children,
            child => child.into_iter().collect(),
        };
        fields.retain(|_, field| !field.is_array() && !field.is_object());
        for child in children {
            let mut row = fields.clone();
            if let Value::Object(own) = child {
                row.extend(own);
            }
            all.push(Value::Object(row));
        }
    }
    all
}

/// Whether a row has these values; of a list, one of them.
pub fn has(row: &Value, axes: &Axes) -> bool {
    axes.iter().all(|(key, value)| match value.as_array() {
        Some(several) => row.get(key).is_some_and(|it| several.contains(it)),
        None => row.get(key) == Some(value),
    })
}

impl Format {
    /// A number stays with its unit and in one piece, however narrow its column is.
    fn unbroken(self, cell: &str) -> String {
        match self {
            Self::Plain => cell.to_owned(),
            _ => cell.replace(' ', "\u{a0}"),
        }
    }

    /// A figure in a cell; nothing of null.
    fn write(self, figure: &Value) -> String {
        let Some(number) = figure.as_f64() else {
            return figure.as_str().unwrap_or_default().to_owned();
        };
        match self {
            Self::Plain => figure.to_string(),
            Self::Ns => format!("{number:.0} ns"),
            Self::Time => time(number),
            Self::Us => format!("{:.1}", number / 1e3),
            Self::Ms => format!("{:.2}", number / 1e6),
            Self::Count => thousands(number),
            Self::Ratio => format!("{number:.3}"),
            Self::Short => short(number),
            Self::Change if number.abs() < 0.05 => "0.0".into(),
            Self::Change => format!("{number:+.1}"),
            Self::Bytes => bytes(number as usize),
        }
    }
}

/// `1 053 200`.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups = groups.map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two policies, two numbers of threads, and a row that is not shown.
    fn result() -> Value {
        json!({ "workload": "w", "date": "20260131T120000Z", "rows": [
            { "policy": "before", "threads": 1, "pages": 1, "ns": 660.2, "other": 1 },
            { "policy": "best", "threads": 1, "pages": 1, "ns": 330.1 },
            { "policy": "before", "threads": 2, "pages": 1, "ns": 1_423_000.0 },
            { "policy": "best", "threads": 2, "pages": 1, "ns": null },
            { "policy": "best", "threads": 2, "pages": 8, "ns": 1 },
        ] })
    }

    const TABLE: &str = r#"
        command = "bench w"
        lines = ["threads"]
        only = { pages = 1 }
        columns = [
            { heading = "threads", key = "threads" },
            { heading = "before", key = "ns", of = { policy = "before" }, format = "time" },
            { heading = "best", key = "ns", of = { policy = "best" }, to = { policy = "before" }, format = "ratio" },
        ]"#;

    fn figure(text: &str) -> Figure {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_figure_about_a_processor_is_not_made_on_another() {
        let figure = figure(&format!("processor = \"EPYC\"\n{TABLE}"));
        let mut result = result();
        result["about"] = json!({ "processor": "AMD EPYC" });
        figure.record(&result).unwrap();
        for about in [json!({ "processor": "Intel Xeon" }), Value::Null] {
            result["about"] = about;
            let error = figure.record(&result).unwrap_err().to_string();
            assert!(
                error.contains("a processor with EPYC in its name"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_value_and_names_its_command() {
        let figure = figure(TABLE);
        let record = figure.record(&result()).unwrap();
        let expected = "| threads | before | best |\n|---|---|---|\n| 1 | 660\u{a0}ns | 0.500 |\n| 2 | 1423\u{a0}us |  |\n\n`./lab bench w --tables`\n";
        assert_eq!(figure.render(&record).unwrap(), expected);
    }

    #[test]
    fn one_of_several_values_is_enough_for_a_row_to_be_shown() {
        let figure = figure(&TABLE.replace("pages = 1", "pages = 1, threads = [2, 4]"));
        let record = figure.record(&result()).unwrap();
        assert_eq!(record["rows"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn lines_in_which_the_last_column_is_not_behind_may_be_left_out() {
        let text = r#"
            command = "bench w"
            lines = ["cpus"]
            behind = "ns"
            columns = [
                { heading = "CPUs", key = "cpus" },
                { heading = "linux", key = "ns", of = { peer = "linux" }, format = "us" },
                { heading = "best", key = "ns", of = { peer = "best" }, format = "us" },
            ]"#;
        let rows = [
            (1, 5.0, 6.0),
            (2, 5.0, 5.0),
            (4, 9.0, 5.0),
            (8, 5.001, 5.002),
        ];
        let rows = rows.iter().flat_map(|(cpus, linux, best)| {
            [("linux", linux), ("best", best)]
                .map(|(peer, ns)| json!({ "cpus": cpus, "peer": peer, "ns": ns * 1000.0 }))
        });
        let figure = figure(text);
        let result = json!({ "rows": rows.collect::<Vec<_>>() });
        let table = figure.render(&figure.record(&result).unwrap()).unwrap();
        assert!(table.contains("| 1 | 5.0 | 6.0 |\n\n"), "{table}");
    }

    #[test]
    fn a_record_has_what_the_table_needs_and_no_more() {
        let record = figure(TABLE).record(&result()).unwrap();
        let rows = record["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 4);
        assert!(rows[0].get("other").is_none() && rows[0].get("ns").is_some());
        assert!(record.get("date").is_none(), "another day is no difference");
        let timed = figure(&format!("is_timed_by_host = true\n{TABLE}"));
        assert_eq!(timed.record(&result()).unwrap()["date"], "20260131T120000Z");
    }

    #[test]
    fn rows_may_stand_anywhere_and_have_what_stands_above_them() {
        let result = json!({ "params": { "memory": [
            { "policy": "before", "sizes": [{ "threads": 1, "b": 128 }, { "threads": 2, "b": 1 << 20 }] },
            { "policy": "best", "sizes": [{ "threads": 1, "b": 256 }, { "threads": 2, "b": 0 }] },
        ] } });
        let figure = figure(
            r#"
            command = "bench w"
            rows = "params.memory.sizes"
            lines = ["threads"]
            columns = [
                { heading = "before", key = "b", of = { policy = "before" }, format = "bytes" },
                { heading = "best", key = "b", of = { policy = "best" }, format = "bytes" },
            ]"#,
        );
        let table = figure.render(&figure.record(&result).unwrap()).unwrap();
        assert!(
            table.contains("| 128\u{a0}B | 256\u{a0}B |\n| 1024\u{a0}KiB | 0\u{a0}B |\n"),
            "{table}"
        );
    }

    #[test]
    fn a_sentence_takes_the_figures_of_the_first_line() {
        let text = format!("sentence = \"{{before}}, {{best}} of it\"\n{TABLE}");
        let figure = figure(&text);
        let record = figure.record(&result()).unwrap();
        assert_eq!(figure.render(&record).unwrap(), "660 ns, 0.500 of it\n");
    }

    #[test]
    fn what_a_bench_no_longer_prints_is_an_error() {
        let figure = figure(&TABLE.replace("key = \"ns\"", "key = \"us\""));
        let error = figure.record(&result()).unwrap_err().to_string();
        assert!(error.contains("no us for the column before"), "{error}");
        let none = json!({ "rows": [] });
        assert!(figure.record(&none).is_err());
    }

    #[test]
    fn numbers_are_written_as_people_read_them() {
        assert_eq!(thousands(9_472_891.4), "9 472 891");
        assert_eq!(thousands(12.0), "12");
        assert_eq!(Format::Change.write(&json!(-75.04)), "-75.0");
        assert_eq!(Format::Change.write(&json!(-0.04)), "0.0");
        assert_eq!(Format::Plain.write(&json!(16)), "16");
        assert_eq!(Format::Ms.write(&json!(1_250_000.0)), "1.25");
    }
}
