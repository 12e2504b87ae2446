//! [`State`]: everything about a run that changes, apart from the coroutines.

use shootdown::{
    CpuId,
    remote::{GlobalTags, TagSet},
    watch::Stall,
};

use crate::explore::{BackEnd, Explore};
use crate::machine::deeds::{Deed, Deeds};
use crate::machine::{Failure, FailureKind, Processor, Status, new_global_tags};
use crate::timed::Timed;
use crate::trace::Recorder;
use crate::walkthrough::{Steps, sort_of};

/// What an event means.
#[derive(Debug)]
pub enum Model {
    /// It costs time.
    Timed(Box<Timed>),
    /// It is a choice.
    Explore(Box<Explore>),
}

impl Model {
    /// How many hardware tags each CPU has, besides the one of untagged roots.
    pub(crate) fn asid_slots(&self) -> usize {
        match self {
            Self::Timed(timed) => timed.costs.asid_slots + TagSet::TAGS * timed.tag_sets(),
            Self::Explore(explore) => explore.asid_slots(),
        }
    }

    /// How many tags each CPU has for guests.
    pub(crate) fn guest_slots(&self) -> usize {
        match self {
            Self::Timed(timed) => timed.costs.guest.slots,
            Self::Explore(explore) => explore.guest_slots(),
        }
    }

    /// Tags that are the same on all CPUs.
    pub(crate) fn global_tags(&self) -> GlobalTags {
        match self {
            Self::Timed(timed) => match timed.tag_sets() {
                0 => GlobalTags::NONE,
                sets => new_global_tags(timed.costs.asid_slots, sets),
            },
            Self::Explore(explore) => explore.global_tags(),
        }
    }

    /// Whether interrupts are flags, at which CPUs look between instructions of their choice.
    pub(crate) fn has_flags(&self) -> bool {
        matches!(self, Self::Timed(timed) if timed.costs.flags > 0)
    }

    /// Whether a hypervisor takes CPUs off their processors.
    pub(crate) fn has_hypervisor(&self) -> bool {
        match self {
            Self::Timed(_) => false,
            Self::Explore(explore) => explore.back_end() == BackEnd::Hypervisor,
        }
    }
}

/// The changing part of a machine.
#[derive(Debug)]
pub struct State {
    /// The virtual CPUs.
    pub processors: Vec<Processor>,
    /// Their numbers, as the engine knows them.
    pub numbers: Vec<CpuId>,
    /// The one whose coroutine runs.
    pub running: usize,
    /// The task that each virtual CPU runs.
    pub current: Vec<usize>,
    /// What events mean.
    pub model: Model,
    /// Events so far.
    pub events: u64,
    /// What the engine had its platform do.
    pub deeds: Deeds,
    /// How often each CPU has fetched its instructions anew.
    pub synchronised: Vec<u64>,
    /// What the watchdog has reported.
    pub stalls: Vec<Stall>,
    /// Why the run is over before its end.
    pub failure: Option<Failure>,
    /// What happened, in words, if somebody wants to read it.
    pub story: Option<Vec<String>>,
    /// Programs that are not over.
    pub unfinished: usize,
    /// What hears everything that happens, if a trace is wanted.
    pub recorder: Option<Box<Recorder>>,
    /// What hears step by step, if somebody wants to walk through the run.
    pub steps: Option<Box<Steps>>,
}

impl State {
    pub(crate) fn new(cpus: usize, model: Model) -> Self {
        Self {
            processors: vec![Processor::new(); cpus],
            numbers: (0..cpus as u32).map(CpuId::new).collect(),
            running: 0,
            current: (0..cpus).collect(),
            model,
            events: 0,
            deeds: Deeds::default(),
            synchronised: vec![0; cpus],
            stalls: Vec::new(),
            failure: None,
            story: None,
            unfinished: cpus,
            recorder: None,
            steps: None,
        }
    }

    /// The virtual CPU with this number.
    ///
    /// # Panics
    /// When there is none.
    pub fn index_of(&self, number: CpuId) -> usize {
        let has_number = |index: &usize| self.numbers.get(*index) == Some(&number);
        let usual = Some(number.index()).filter(has_number);
        usual
            .or_else(|| (0..self.numbers.len()).find(has_number))
            .unwrap_or_else(|| panic!("{number} does not exist"))
    }

    /// For the beginning of a story: what the engine calls virtual CPUs that have other numbers than their own.
    pub(crate) fn unusual_numbers(&self) -> Vec<String> {
        let all = self.numbers.iter().enumerate();
        let unusual = all.filter(|(index, number)| number.index() != *index);
        unusual
            .map(|(index, number)| format!("{:>6} cpu{index} is the engine's {number}", ""))
            .collect()
    }

    /// The running virtual CPU.
    pub fn me(&mut self) -> &mut Processor {
        &mut self.processors[self.running]
    }

    pub(crate) fn count(&mut self, deed: Deed, about: usize) {
        self.deeds.add(self.running, deed, about);
    }

    /// Adds to the story, if it is wanted.
    pub fn tell(&mut self, what: impl FnOnce() -> String) {
        self.tell_as(|| {
            let text = what();
            (sort_of(&text), text.clone(), text)
        });
    }

    /// Ends the run; the first failure counts.
    pub fn fail(&mut self, kind: FailureKind, message: String) {
        if self.failure.is_none() {
            let failure = Failure {
                kind,
                cpu: self.running,
                event: self.events,
                message,
            };
            self.hear_failure(&failure);
            self.failure = Some(failure);
        }
    }

    /// Whether nothing is left to do: every program over, no interrupt to take or being served.
    pub fn is_over(&self) -> bool {
        let is_quiet = |cpu: &Processor| cpu.pending.is_none() && !cpu.in_handler;
        self.failure.is_some() || (self.unfinished == 0 && self.processors.iter().all(is_quiet))
    }

    pub(crate) fn finish(&mut self) {
        self.me().status = Status::Finished;
        self.unfinished -= 1;
    }

    /// Whether the hypervisor takes the running CPU off its processor now.
    pub(crate) fn is_taken_away(&mut self) -> bool {
        let running = self.running;
        self.explore()
            .is_some_and(|explore| explore.takes_away(running))
    }

    /// The timed model, unless this is an exploration.
    pub fn timed(&mut self) -> Option<&mut Timed> {
        match &mut self.model {
            Model::Timed(timed) => Some(timed),
            Model::Explore(_) => None,
        }
    }

    /// The exploration, unless the model is timed.
    pub fn explore(&mut self) -> Option<&mut Explore> {
        match &mut self.model {
            Model::Explore(explore) => Some(explore),
            Model::Timed(_) => None,
        }
    }
}
