//! `--sweep`: what the table hangs on. Every figure is halved and doubled, one at a time.

use shootdown_sim::workload::{Effect, Row, sweep};

use crate::bench::columns::{grid, number};

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
    let first = names[0];
    let mut heading = ["figure", "x", "value"].map(str::to_owned).to_vec();
    heading.extend(names.iter().map(|name| format!("{name} %")));
    heading.extend(names[1..].iter().map(|name| format!("{name} / {first}")));
    let mut as_is = ["as is", "1", "-"].map(str::to_owned).to_vec();
    as_is.extend(base_ns.iter().map(|_| "0.0".to_owned()));
    as_is.extend(ratios_of(&base_ns));
    let mut cells = vec![as_is];
    for effect in &visible {
        let change = &effect.change;
        let mut row = vec![
            change.parameter.name.to_owned(),
            number(change.factor),
            number(change.value),
        ];
        let pairs = effect.figures_ns.iter().zip(&base_ns);
        row.extend(pairs.map(|(ns, base_ns)| format!("{:+.1}", (ns / base_ns - 1.0) * 100.0)));
        row.extend(ratios_of(&effect.figures_ns));
        cells.push(row);
    }
    let table = grid(heading, cells, |index| index == 0);
    let whole = names.iter().zip(&base_ns);
    let whole: Vec<String> = whole
        .map(|(name, ns)| format!("{name} {ns:.0} ns"))
        .collect();
    let mut text = format!(
        "\nsensitivity, {title}: each figure halved and doubled, and by how much that changes {}\n{table}\n",
        whole.join(", ")
    );
    for index in 1..names.len() {
        text.push_str(&conclusion(&names, index, visible.iter().chain(&hidden)));
    }
    let name = |effect: &Effect| effect.change.parameter.name;
    let mut unseen: Vec<&str> = hidden.iter().map(name).collect();
    unseen.dedup();
    unseen.retain(|unseen| visible.iter().all(|effect| name(effect) != *unseen));
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
    let others = figures_ns[1..].iter();
    others.map(move |ns| format!("{:.3}", ns / first_ns))
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
        let (change, factor) = (&effect.change, number(effect.change.factor));
        let name = change.parameter.name;
        format!("{:.3} ({name} x {factor})", ratio(effect))
    };
    let (name, first) = (names[index], names[0]);
    format!("{name} / {first}: {} to {}\n", end(least), end(most))
}
