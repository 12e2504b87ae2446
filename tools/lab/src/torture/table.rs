//! The tables that people read.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::hearing::Hearing;

/// What was done, what was checked, and what the engine counted, side by side.
pub fn render(hearing: &Hearing) -> String {
    let seconds = hearing.verdict().map_or(0.0, |verdict| verdict.seconds());
    let rate = |count: u64| format!("{:.0}", count as f64 / seconds.max(1e-9));
    let mut done = table(&["operation", "done", "per second"]);
    for (name, count) in hearing.operations() {
        done.add_row([name.clone(), count.to_string(), rate(*count)]);
    }
    let mut promises = table(&["promise", "broken"]);
    for (name, count) in hearing.promises() {
        promises.add_row([name.clone(), count.to_string()]);
    }
    let mut engine = table(&["engine", "count", "per second"]);
    for (name, count) in hearing.engine() {
        engine.add_row([name.clone(), count.to_string(), rate(*count)]);
    }
    right(&mut done);
    right(&mut promises);
    right(&mut engine);
    format!("{done}\n{engine}\n{promises}")
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    table
}

fn right(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
