//! What the rows of a table hang on: each parameter halved and doubled.

use crate::timed::{PARAMETERS, Parameter};
use crate::workload::Madvise;

/// One parameter at another value.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Which.
    pub parameter: &'static Parameter,
    /// What it was multiplied by.
    pub factor: f64,
    /// What came of that, in the parameter's unit.
    pub value: f64,
}

/// What a change does to every row.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The change.
    pub change: Change,
    /// The median of each row, in nanoseconds, in the order of the rows.
    pub medians_ns: Vec<f64>,
}

/// Runs all rows once for each parameter halved and doubled. Leaves out changes that rounding undoes.
pub fn sweep(rows: &[Madvise]) -> Vec<Effect> {
    PARAMETERS
        .iter()
        .flat_map(|parameter| [(parameter, 0.5), (parameter, 2.0)])
        .filter_map(|(parameter, factor)| effect(rows, parameter, factor))
        .collect()
}

fn effect(rows: &[Madvise], parameter: &'static Parameter, factor: f64) -> Option<Effect> {
    let costs = &rows.first()?.costs;
    let mut changed = costs.clone();
    parameter
        .set(&mut changed, parameter.get(costs) * factor)
        .ok()?;
    if changed == *costs {
        return None;
    }
    let change = Change {
        parameter,
        factor,
        value: parameter.get(&changed),
    };
    let medians_ns = rows
        .iter()
        .map(|row| {
            let mut row = row.clone();
            row.costs = changed.clone();
            row.run().median_ns()
        })
        .collect();
    Some(Effect { change, medians_ns })
}
