//! What may happen to an interrupt: it is refused, it is late, it tells its target what its initiator knows.

use std::rc::Rc;

use crate::explore::{Explore, Question, View};
use crate::machine::Pending;

/// An interrupt may be late by so many of its target's events, not more.
const MOST_DELAYS: u32 = 200;
/// A controller refuses so often in a row, not more.
const MOST_REFUSALS: u32 = 5;

/// The interrupts of one machine.
#[derive(Debug)]
pub(super) struct Interrupts {
    /// What those on their way tell their targets.
    told: Vec<View>,
    /// Whether controllers refuse some.
    pub(super) are_refused: bool,
    /// How often each CPU's controller has refused in a row.
    refusals: Vec<u32>,
}

impl Interrupts {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            told: vec![View::default(); cpus],
            are_refused: false,
            refusals: vec![0; cpus],
        }
    }
}

impl Explore {
    /// The same with controllers that refuse interrupts now and then.
    #[must_use]
    pub fn with_refusals(mut self) -> Self {
        self.interrupts.are_refused = true;
        self
    }

    /// How many of the first interrupts to `targets` CPUs the controller of `cpu` takes, if it does not take all.
    pub(crate) fn refuses(&mut self, cpu: usize, targets: usize) -> Option<usize> {
        if !self.interrupts.are_refused {
            return None;
        }
        let refusals = &mut self.interrupts.refusals[cpu];
        let taken = match *refusals < MOST_REFUSALS {
            true => self
                .chooser
                .choose(Question::Refusal, 1 + targets)
                .checked_sub(1),
            false => None,
        };
        *refusals = taken.map_or(0, |_| *refusals + 1);
        taken
    }

    pub(crate) fn send(&mut self, initiator: usize, target: usize) {
        let told: Rc<View> = self.memory.tell(initiator);
        self.interrupts.told[target].join(&told);
    }

    pub(crate) fn interrupt_arrives(&mut self, pending: &mut Pending) -> bool {
        if pending.delays >= MOST_DELAYS {
            return true;
        }
        let late = self.chooser.choose(Question::Interrupt, 2) == 1;
        if late {
            pending.delays += 1;
        }
        !late
    }

    pub(crate) fn enter_handler(&mut self, cpu: usize) {
        let told = std::mem::take(&mut self.interrupts.told[cpu]);
        self.memory.hear(cpu, &told);
    }
}
