//! What the rows of a table hang on: each parameter halved and doubled.

use crate::timed::{Costs, PARAMETERS, Parameter};
use crate::workload::{Madvise, Pingpong, Zerocopy};

/// A row that can be measured on other machines.
pub trait Row: Clone {
    /// The machine.
    fn costs(&mut self) -> &mut Costs;

    /// The figure of the table, in nanoseconds.
    fn figure_ns(&self) -> f64;
}

impl Row for Madvise {
    fn costs(&mut self) -> &mut Costs {
        &mut self.costs
    }

    fn figure_ns(&self) -> f64 {
        self.run().median_ns()
    }
}

impl Row for Pingpong {
    fn costs(&mut self) -> &mut Costs {
        &mut self.costs
    }

    fn figure_ns(&self) -> f64 {
        self.run().mean_ns()
    }
}

impl Row for Zerocopy {
    fn costs(&mut self) -> &mut Costs {
        &mut self.costs
    }

    fn figure_ns(&self) -> f64 {
        1e9 / self.run().per_s()
    }
}

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
    /// The figure of each row, in nanoseconds, in the order of the rows.
    pub figures_ns: Vec<f64>,
}

/// Runs all rows once for each parameter halved and doubled. Leaves out changes that rounding undoes.
pub fn sweep<R: Row>(rows: &[R]) -> Vec<Effect> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let costs = first.clone().costs().clone();
    let all = changes(&costs);
    all.map(|(change, changed)| effect(rows, change, &changed))
        .collect()
}

/// Each parameter halved and doubled, with the costs that this makes; without changes that rounding undoes.
pub fn changes(costs: &Costs) -> impl Iterator<Item = (Change, Costs)> {
    let pairs = PARAMETERS.iter();
    let pairs = pairs.flat_map(|parameter| [(parameter, 0.5), (parameter, 2.0)]);
    pairs.filter_map(|(parameter, factor)| {
        let mut changed = costs.clone();
        parameter
            .set(&mut changed, parameter.get(costs) * factor)
            .ok()?;
        let value = parameter.get(&changed);
        let change = Change {
            parameter,
            factor,
            value,
        };
        (changed != *costs).then_some((change, changed))
    })
}

fn effect<R: Row>(rows: &[R], change: Change, changed: &Costs) -> Effect {
    let figures_ns = rows
        .iter()
        .map(|row| {
            let mut row = row.clone();
            row.costs().clone_from(changed);
            row.figure_ns()
        })
        .collect();
    Effect { change, figures_ns }
}
