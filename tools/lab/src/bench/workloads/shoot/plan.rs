//! [`Plan`]: the lines of the tables of `shoot`.

use shootdown_sim::workload::{Callers, MAX_CPUS, Operation, Peer};

use crate::bench::contest::{Asked, Count};
use crate::cli::Calls;
use crate::failure::{Failure, Outcome};

/// Targets of a lone initiator.
const TARGETS: [usize; 7] = [1, 4, 16, 64, 256, 1024, 4095];
const QUICK_TARGETS: [usize; 4] = [1, 4, 16, 256];
/// Machines whose CPUs all call at once.
const CPUS: [usize; 3] = [16, 64, 256];
const QUICK_CPUS: [usize; 2] = [16, 64];
/// Targets of each then.
const TARGETS_OF_ALL: [Count; 3] = [Count::Some(1), Count::Some(8), Count::All];
/// The most calls of an initiator, and for how many executions of the function a row is good.
const CALLS: usize = 50;
const EXECUTIONS: usize = 100_000;
/// Of a lone initiator, whose calls hardly differ.
const LONE_CALLS: usize = 20;
const LONE_EXECUTIONS: usize = 12_000;
/// A look needs less.
const QUICK_SHARE: usize = 5;
/// What the rows of all peers have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Index of the machine.
    pub machine: usize,
    pub callers: Callers,
    pub operation: Operation,
    pub function_ps: u64,
    pub cpus: usize,
    pub targets: usize,
}

impl Line {
    fn of(
        (callers, cpus, targets): Shape,
        machine: usize,
        operation: Operation,
        function_ps: u64,
    ) -> Self {
        Self {
            machine,
            callers,
            operation,
            function_ps,
            cpus,
            targets,
        }
    }
}

/// What is measured.
#[derive(Debug)]
pub struct Plan {
    pub lines: Vec<Line>,
    pub peers: Vec<Peer>,
    pub shapes: Vec<Shape>,
    calls: Option<usize>,
    is_quick: bool,
}

impl Plan {
    /// What the caller asks for, on so many machines.
    ///
    /// # Errors
    /// No machine has room for it, or an option means nothing here.
    pub fn new(calls: &Calls, machines: usize) -> Outcome<Self> {
        if calls.masks.is_some() {
            return Err(Failure::input(
                "each call of shoot draws its targets anew",
                "leave out --masks",
            ));
        }
        let asked = Asked::of(calls)?;
        let shapes = shapes(&asked, calls.quick)?;
        let functions_ps = asked.functions_ps.as_deref().unwrap_or(&[0]);
        let mut lines = Vec::new();
        for machine in 0..machines {
            let calls = functions_ps.iter().flat_map(|ps| {
                let line = move |shape: &Shape| Line::of(*shape, machine, Operation::Call, *ps);
                shapes.iter().map(line)
            });
            lines.extend(calls);
            lines.extend(flushes(&shapes, machine, Callers::All));
        }
        if lines.is_empty() {
            return Err(Failure::input(
                "so many targets do not fit into the machine beside their initiator",
                "ask for fewer --targets, or for more --cpus",
            ));
        }
        Ok(Self {
            lines,
            peers: asked.peers,
            shapes,
            calls: asked.calls,
            is_quick: calls.quick,
        })
    }

    /// Calls of each initiator.
    pub fn calls_of(&self, line: &Line) -> usize {
        let calls = match line.callers {
            Callers::One => (LONE_EXECUTIONS / line.targets).clamp(2, LONE_CALLS),
            Callers::All => (EXECUTIONS / (line.targets * line.cpus)).clamp(1, CALLS),
        };
        let share = if self.is_quick { QUICK_SHARE } else { 1 };
        self.calls.unwrap_or((calls / share).max(1))
    }
}

/// Who calls, on how many CPUs, how many of them.
pub type Shape = (Callers, usize, usize);

/// A flush in each shape with these callers, on one machine.
pub fn flushes(shapes: &[Shape], machine: usize, callers: Callers) -> impl Iterator<Item = Line> {
    let shapes = shapes.iter().filter(move |shape| shape.0 == callers);
    shapes.map(move |shape| Line::of(*shape, machine, Operation::Flush, 0))
}

fn shapes(asked: &Asked, is_quick: bool) -> Outcome<Vec<Shape>> {
    let both = || vec![Count::Some(1), Count::All];
    let mut shapes = Vec::new();
    for count in asked.initiators.clone().unwrap_or_else(both) {
        match count {
            Count::Some(1) => shapes.extend(lone(asked, is_quick)),
            Count::All => shapes.extend(all_at_once(asked, is_quick)),
            Count::Some(other) => {
                return Err(Failure::input(
                    format!("{other} initiators do not shoot"),
                    "--initiators takes 1 and all here",
                ));
            }
        }
    }
    Ok(shapes)
}

/// Without a choice of CPUs, on as many as take part.
fn lone(asked: &Asked, is_quick: bool) -> Vec<Shape> {
    let default = Count::each(if is_quick { &QUICK_TARGETS } else { &TARGETS });
    let on = |cpus: Option<usize>| {
        let targets = targets(asked, &default, cpus.unwrap_or(MAX_CPUS) - 1);
        let shape = move |targets| (Callers::One, cpus.unwrap_or(targets + 1), targets);
        targets.into_iter().map(shape)
    };
    match &asked.cpus {
        Some(machines) => machines.iter().flat_map(|cpus| on(Some(*cpus))).collect(),
        None => on(None).collect(),
    }
}

fn all_at_once(asked: &Asked, is_quick: bool) -> Vec<Shape> {
    let default: &[usize] = if is_quick { &QUICK_CPUS } else { &CPUS };
    let machines = asked.cpus.as_deref().unwrap_or(default);
    let of = |&cpus: &usize| {
        let targets = targets(asked, &TARGETS_OF_ALL, cpus - 1);
        let shape = move |targets| (Callers::All, cpus, targets);
        targets.into_iter().map(shape)
    };
    machines.iter().flat_map(of).collect()
}

/// Those that are there, each number once.
fn targets(asked: &Asked, default: &[Count], most: usize) -> Vec<usize> {
    let counts = asked.targets.as_deref().unwrap_or(default);
    let mut targets: Vec<usize> = counts.iter().map(|count| count.of(most)).collect();
    targets.retain(|targets| *targets <= most);
    targets.dedup();
    targets
}
