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
    PARAMETERS
        .iter()
        .flat_map(|parameter| [(parameter, 0.5), (parameter, 2.0)])
        .filter_map(|(parameter, factor)| effect(rows, parameter, factor))
        .collect()
}

fn effect<R: Row>(rows: &[R], parameter: &'static Parameter, factor: f64) -> Option<Effect> {
    let costs = &rows.first()?.clone().costs().clone();
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
    let figures_ns = rows
        .iter()
        .map(|row| {
            let mut row = row.clone();
            row.costs().clone_from(&changed);
            row.figure_ns()
        })
        .collect();
    Some(Effect { change, figures_ns })
}
