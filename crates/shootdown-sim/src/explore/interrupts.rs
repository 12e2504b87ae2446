//! What may happen to an interrupt: it is refused, it is late, it tells its target what its initiator knows.

use std::mem;
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
    /// Whether no CPU can interrupt itself.
    refuse_self: bool,
    /// Whether some may get lost.
    pub(super) may_get_lost: bool,
    /// How many more may get lost.
    losses_left: u32,
    /// Whether each CPU was sent one that got lost.
    lost: Vec<bool>,
}

impl Interrupts {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            told: vec![View::default(); cpus],
            are_refused: false,
            refusals: vec![0; cpus],
            refuse_self: false,
            may_get_lost: false,
            losses_left: 0,
            lost: vec![false; cpus],
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

    /// The same with controllers that never let a CPU interrupt itself, if that is so.
    #[must_use]
    pub fn with_refused_self(mut self, refuse_self: bool) -> Self {
        self.interrupts.refuse_self = refuse_self;
        self
    }

    /// The same with controllers that lose so many interrupts. The watchdog must be on: it sends them again.
    #[must_use]
    pub fn with_losses(mut self, losses: u32) -> Self {
        self.interrupts.may_get_lost = losses > 0;
        self.interrupts.losses_left = losses;
        self
    }

    /// Whether controllers do not let a CPU interrupt itself.
    pub(crate) fn refuses_self(&self) -> bool {
        self.interrupts.refuse_self
    }

    /// Whether an interrupt for `target` gets lost.
    pub(crate) fn loses(&mut self, target: usize) -> bool {
        let interrupts = &mut self.interrupts;
        if interrupts.losses_left == 0 || self.chooser.choose(Question::Loss, 2) == 0 {
            return false;
        }
        interrupts.losses_left -= 1;
        interrupts.lost[target] = true;
        true
    }

    /// The CPUs whose interrupts got lost, each once. Nobody waits for what these told: it may come at any time, but it must come.
    pub(crate) fn find_lost(&mut self) -> impl Iterator<Item = usize> + use<> {
        let cpus = self.interrupts.lost.len();
        let lost = mem::replace(&mut self.interrupts.lost, vec![false; cpus]);
        (0..cpus).filter(move |cpu| lost[*cpu])
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
        let told = mem::take(&mut self.interrupts.told[cpu]);
        self.memory.hear(cpu, &told);
    }
}
