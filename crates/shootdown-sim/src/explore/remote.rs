//! Back ends that flush CPUs without an interrupt, and a hypervisor that takes CPUs off their processors.

use std::mem;

use rustc_hash::FxHashMap;
use shootdown::{
    FlushRange, LocalFlush, SpaceId, flushes::FLUSH_CEILING_PAGES, remote::FlushRequest, tags::Asid,
};

use crate::explore::{Explore, Question};

/// What is under the machine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum BackEnd {
    /// Nothing.
    #[default]
    None,
    /// A hypervisor that runs a CPU at some times and not at others, and drops what it is asked to before it runs again (KVM, which drops
    /// all).
    Hypervisor,
    /// A call that has flushed when it returns, all targets, some or none (Hyper-V, Xen PV, SBI).
    Call,
    /// An instruction that another one waits for, on the same CPU (INVLPGB); some targets may not answer in time (RAR).
    Broadcast,
    /// An instruction that names a tag and reaches every CPU, and waits for them itself (INVLPGB with PCIDs); a host may refuse to use it.
    ByTag,
}

impl BackEnd {
    /// In every other machine none. From a source of its own, so that seeds mean what they meant before.
    pub(crate) fn of_seed(seed: u64) -> Self {
        match fastrand::Rng::with_seed(seed ^ 0x00ba_cced).u8(..16) {
            0 | 1 => Self::Hypervisor,
            2 => Self::Call,
            3 => Self::Broadcast,
            4..8 => Self::ByTag,
            _ => Self::None,
        }
    }
}

/// A CPU does not run for so many events in a row, not more.
const MOST_OUT: u32 = 100;

/// The back end of one machine.
#[derive(Debug)]
pub(super) struct Remote {
    back_end: BackEnd,
    /// For how many events each CPU has not been running.
    out: Vec<Option<u32>>,
    /// Whether each CPU has issued what it has not waited for.
    issued: Vec<bool>,
    /// Whose translations were flushed last under each tag that is the same everywhere.
    owners: FxHashMap<Asid, Option<SpaceId>>,
    /// How often that was another space than before.
    given_again: u64,
}

impl Remote {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            back_end: BackEnd::None,
            out: vec![None; cpus],
            issued: vec![false; cpus],
            owners: FxHashMap::default(),
            given_again: 0,
        }
    }
}

impl Explore {
    /// The same with this under the machine.
    #[must_use]
    pub fn with_back_end(mut self, back_end: BackEnd) -> Self {
        self.remote.back_end = back_end;
        self
    }

    pub(crate) fn back_end(&self) -> BackEnd {
        self.remote.back_end
    }

    /// Whether the hypervisor takes `cpu` off its processor now.
    pub(crate) fn takes_away(&mut self, cpu: usize) -> bool {
        self.remote.back_end == BackEnd::Hypervisor
            && self.remote.out[cpu].is_none()
            && self.chooser.choose(Question::Vcpu, 2) == 1
    }

    /// `cpu` runs nothing from here on, nor does its TLB anything.
    pub(crate) fn go_out(&mut self, cpu: usize) {
        self.remote.out[cpu] = Some(0);
        self.hardware.set_runs(cpu, false);
    }

    /// Whether `cpu`, which does not run, goes on not to run for another event.
    pub(crate) fn stays_out(&mut self, cpu: usize) -> bool {
        let turns = self.remote.out[cpu].unwrap_or(MOST_OUT);
        self.remote.out[cpu] = Some(turns + 1);
        turns < MOST_OUT && (turns == 0 || self.chooser.choose(Question::Vcpu, 2) == 1)
    }

    /// `cpu` runs again.
    pub(crate) fn come_in(&mut self, cpu: usize) {
        self.remote.out[cpu] = None;
        self.hardware.set_runs(cpu, true);
    }

    /// `cpu` issues what takes effect when it waits for it, not before.
    pub(crate) fn issue(&mut self, cpu: usize) {
        self.remote.issued[cpu] = true;
    }

    /// `cpu` waits for what it has issued; false if that is nothing.
    pub(crate) fn syncs(&mut self, cpu: usize) -> bool {
        mem::take(&mut self.remote.issued[cpu])
    }

    /// Whether the host flushes all CPUs by a tag; it may refuse.
    pub(crate) fn takes_tag(&mut self, asid: Asid, request: &FlushRequest) -> bool {
        if self.chooser.choose(Question::Workload, 4) == 3 {
            return false;
        }
        let remote = &mut self.remote;
        let before = remote.owners.insert(asid, request.space());
        remote.given_again += u64::from(before.is_some_and(|before| before != request.space()));
        true
    }

    /// How often another space was flushed under a tag that is the same everywhere than the one before.
    pub(crate) fn tags_given_again(&self) -> u64 {
        self.remote.given_again
    }

    /// `target` drops what `request` of `initiator` names and what it holds under `asid`.
    pub(crate) fn flush_tag_for(
        &mut self,
        initiator: usize,
        target: usize,
        asid: Asid,
        request: &FlushRequest,
    ) {
        self.meet(initiator, target);
        let now = self.memory.walk(target);
        for range in request.ranges() {
            let operation = operation_for(range, request);
            self.hardware.flush_tag(target, asid, operation, &now);
        }
    }

    /// What `target` has accessed so far is over, as `initiator` sees it; its walks from here on see the change.
    fn meet(&mut self, initiator: usize, target: usize) {
        let (before, change) = (self.memory.tell(target), self.memory.tell(initiator));
        self.memory.hear(initiator, &before);
        self.memory.hear(target, &change);
    }

    /// How many of `targets` the back end reaches: all, or each or none as it is asked for each.
    pub(crate) fn reaches_all(&mut self) -> bool {
        self.chooser.choose(Question::Workload, 2) == 0
    }

    pub(crate) fn reaches_one(&mut self) -> bool {
        self.chooser.choose(Question::Workload, 2) == 1
    }

    /// `target` drops what `request` of `initiator` names, and nothing else, whatever it executes: of a space under the tag that it has loaded. One that
    /// does not run drops it before it runs again: nobody can tell that from now.
    pub(crate) fn flush_for(&mut self, initiator: usize, target: usize, request: &FlushRequest) {
        self.meet(initiator, target);
        let now = self.memory.walk(target);
        for range in request.ranges() {
            let operation = operation_for(range, request);
            if request.space().is_some() {
                self.hardware.flush(target, operation, &now);
                continue;
            }
            for tag in 0..=self.asid_slots() as u16 {
                self.hardware
                    .flush_tag(target, Asid::new(tag), operation, &now);
            }
        }
    }
}

fn operation_for(range: FlushRange, request: &FlushRequest) -> LocalFlush {
    match (range.page_count() > FLUSH_CEILING_PAGES, request.space()) {
        (false, _) => LocalFlush::Pages(range, request.freed_tables()),
        (true, Some(_)) => LocalFlush::Space,
        (true, None) => LocalFlush::All,
    }
}
