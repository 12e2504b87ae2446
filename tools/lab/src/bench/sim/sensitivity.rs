//! `--sweep`: what the table hangs on. Every figure is halved and doubled, one at a time.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use shootdown_sim::workload::{Effect, Row, sweep};

use super::setup::number;

/// As many iterations of a row are enough here: nothing but the phase of spin loops differs between them.
pub const ITERATIONS: usize = 50;
/// Effects below this many thousandths of every row are only named.
const VISIBLE_PER_MILLE: f64 = 1.0;

/// One table for rows that differ in their policies, whose names come with them; `title` says what they have in common.
pub fn render<R: Row>(title: &str, named: &[(String, R)]) -> String {
    let rows: Vec<R> = named.iter().map(|(_, row)| row.clone()).collect();
    let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
    let base_ns: Vec<f64> = rows.iter().map(Row::figure_ns).collect();
    let (visible, hidden): (Vec<Effect>, Vec<Effect>) = sweep(&rows)
        .into_iter()
        .partition(|effect| is_visible(effect, &base_ns));
    let mut table = Table::new();
    let headings = ["figure", "x", "value"].map(str::to_owned).into_iter();
    let changes = names.iter().map(|name| (*name).to_owned());
    let ratios = names[1..]
        .iter()
        .map(|name| format!("{name} / {}", names[0]));
    table
        .load_style(UTF8_FULL_CONDENSED)
        .set_header(headings.chain(changes).chain(ratios));
    let as_is = ["as is".to_owned(), "1".into(), "-".into()].into_iter();
    let medians = base_ns.iter().map(|ns| format!("{ns:.0} ns"));
    table.add_row(as_is.chain(medians).chain(ratios_of(&base_ns)));
    for effect in &visible {
        let change = &effect.change;
        let axes = [
            change.parameter.name.to_owned(),
            number(change.factor),
            number(change.value),
        ];
        let percents = effect.figures_ns.iter().zip(&base_ns);
        let percents =
            percents.map(|(ns, base_ns)| format!("{:+.1} %", (ns / base_ns - 1.0) * 100.0));
        let ratios = ratios_of(&effect.figures_ns);
        table.add_row(axes.into_iter().chain(percents).chain(ratios));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = format!("\nsensitivity, {title}: each figure halved and doubled\n{table}\n");
    for index in 1..names.len() {
        text.push_str(&conclusion(&names, index, visible.iter().chain(&hidden)));
    }
    let mut unseen: Vec<&str> = hidden
        .iter()
        .map(|effect| effect.change.parameter.name)
        .collect();
    unseen.dedup();
    unseen.retain(|name| {
        visible
            .iter()
            .all(|effect| effect.change.parameter.name != *name)
    });
    text.push_str(&format!("no effect here: {}\n", unseen.join(", ")));
    text
}

fn is_visible(effect: &Effect, base_ns: &[f64]) -> bool {
    let mut changes = effect.figures_ns.iter().zip(base_ns);
    changes.any(|(ns, base_ns)| (ns / base_ns - 1.0).abs() * 1000.0 >= VISIBLE_PER_MILLE)
}

/// Each row but the first against the first.
fn ratios_of(figures_ns: &[f64]) -> impl Iterator<Item = String> {
    let first_ns = figures_ns[0];
    figures_ns[1..]
        .iter()
        .map(move |ns| format!("{:.3}", ns / first_ns))
}

/// Between what a ratio moves, and what moves it most.
fn conclusion<'a>(
    names: &[&str],
    index: usize,
    effects: impl Iterator<Item = &'a Effect>,
) -> String {
    let ratio = |effect: &Effect| effect.figures_ns[index] / effect.figures_ns[0];
    let mut sorted: Vec<&Effect> = effects.collect();
    sorted.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else {
        return String::new();
    };
    let end = |effect: &Effect| {
        let change = &effect.change;
        format!(
            "{:.3} ({} x {})",
            ratio(effect),
            change.parameter.name,
            number(change.factor)
        )
    };
    format!(
        "{} / {}: {} to {}\n",
        names[index],
        names[0],
        end(least),
        end(most)
    )
}
