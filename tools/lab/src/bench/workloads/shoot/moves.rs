//! `--lines`: which cache lines moved, by what they hold.

use serde_json::{Value, json};
use shootdown_sim::timed::{Motive, Moves};
use shootdown_sim::workload::VolleyResult;

use super::{LINE, shape};
use crate::bench::columns::{Column, Format, table};
use crate::bench::row::Row;

/// In rows; only where it is asked for.
pub const KEY: &str = "moves";
const COLUMNS: [Column; 8] = [
    Column::new("peer", "peer", Format::Words),
    Column::new("line", "line", Format::Words),
    Column::new("per_call", "transfers/op", Format::Short),
    Column::new("read", "to read", Format::Short),
    Column::new("written", "to write", Format::Short),
    Column::new("upgraded", "upgraded", Format::Short),
    Column::new("ns_per_call", "us/op", Format::Micros),
    Column::new("ns_each", "us each", Format::Micros),
];

/// A row for what each line holds; those that took longest first.
pub fn of(result: &VolleyResult) -> Value {
    let mut moves: Vec<_> = result.moves.iter().collect();
    moves.sort_by_key(|(_, moves)| std::cmp::Reverse(moves.sum().time_ps));
    let row = |(line, moves): (&&str, &Moves)| {
        let sum = moves.sum();
        let a_call = |motive| result.per_call(moves.of(motive).count);
        json!({
            "line": line,
            "per_call": result.per_call(sum.count),
            "read": a_call(Motive::Read),
            "written": a_call(Motive::Write),
            "upgraded": a_call(Motive::Upgrade),
            "ns_per_call": result.per_call(sum.time_ps) / 1000.0,
            "ns_each": sum.time_ps as f64 / sum.count as f64 / 1000.0,
        })
    };
    moves.into_iter().map(row).collect()
}

/// A table for each shape, with all contenders.
pub fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    for rows in rows.chunk_by(|one, other| one.agrees(other, &LINE)) {
        let moves: Vec<Row> = rows.iter().flat_map(moves).collect();
        if !moves.is_empty() {
            let (shape, preset) = (shape(&rows[0]), rows[0].text("preset"));
            let table = table(&COLUMNS, &moves);
            text.push_str(&format!(
                "\ncache lines that move, {shape} of {preset}\n{table}\n"
            ));
        }
    }
    if !text.is_empty() {
        text.push_str(
            "to write: also by a prefetch; upgraded: there to be read, and written; time: from request to arrival, behind those that asked\n\
             before, on all CPUs together\n",
        );
    }
    text
}

fn moves(row: &Row) -> Vec<Row> {
    let moves = row.0.get(KEY).and_then(Value::as_array);
    let named = |line: &Value| {
        let mut named = Row::of(line.clone());
        named.set("peer", row.text("peer"));
        named
    };
    moves.into_iter().flatten().map(named).collect()
}
