//! Back ends that flush CPUs without an interrupt, and a hypervisor that takes CPUs off their processors.

use shootdown::{Asid, FLUSH_CEILING_PAGES, FlushRange, FlushRequest, LocalFlush};

use crate::explore::{Explore, Question};

/// What is under the machine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum BackEnd {
    /// Nothing.
    #[default]
    None,
    /// A hypervisor that runs a CPU at some times and not at others, and drops what it has before it runs again if it was asked to (KVM).
    Hypervisor,
    /// A call that has flushed when it returns, all targets, some or none (Hyper-V, Xen PV, SBI).
    Call,
    /// An instruction that another one waits for, on the same CPU (INVLPGB); some targets may not answer in time (RAR).
    Broadcast,
    /// An instruction that names a tag and reaches every CPU, and waits for them itself (INVLPGB with PCIDs); a host may refuse to use it.
    ByTag,
}

/// Whether a CPU runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vcpu {
    /// It does.
    Runs,
    /// The hypervisor has taken it off its processor: it executes nothing, and its TLB does nothing by itself.
    IsOut,
    /// The same, and it is flushed before it runs again: nothing that it has cached will be used.
    IsFlushed,
}

/// A CPU does not run for so many events in a row, not more.
const MOST_OUT: u32 = 100;

/// The back end of one machine.
#[derive(Debug)]
pub(super) struct Remote {
    back_end: BackEnd,
    /// For how many events each CPU has not been running.
    out: Vec<Option<u32>>,
}

impl Remote {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            back_end: BackEnd::None,
            out: vec![None; cpus],
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
        self.hardware.set_vcpu(cpu, Vcpu::IsOut);
    }

    /// Whether `cpu`, which does not run, goes on not to run for another event.
    pub(crate) fn stays_out(&mut self, cpu: usize) -> bool {
        let turns = self.remote.out[cpu].unwrap_or(MOST_OUT);
        self.remote.out[cpu] = Some(turns + 1);
        turns < MOST_OUT && (turns == 0 || self.chooser.choose(Question::Vcpu, 2) == 1)
    }

    /// `cpu` runs again.
    pub(crate) fn come_in(&mut self, cpu: usize, is_flushed: bool) {
        if is_flushed {
            self.flush(cpu, LocalFlush::All);
        }
        self.remote.out[cpu] = None;
        self.hardware.set_vcpu(cpu, Vcpu::Runs);
    }

    /// `cpu`, which does not run, is flushed before it does.
    pub(crate) fn is_to_be_flushed(&mut self, cpu: usize) {
        self.hardware.set_vcpu(cpu, Vcpu::IsFlushed);
    }

    /// Whether the host refuses to flush all CPUs by a tag.
    pub(crate) fn refuses_tag(&mut self) -> bool {
        self.chooser.choose(Question::Workload, 4) == 3
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

    /// `target` drops what `request` of `initiator` names, whatever it executes.
    pub(crate) fn flush_for(&mut self, initiator: usize, target: usize, request: &FlushRequest) {
        self.meet(initiator, target);
        if request.space().is_none() {
            return self.flush(target, LocalFlush::All);
        }
        for range in request.ranges() {
            self.flush(target, operation_for(range, request));
        }
    }
}

fn operation_for(range: FlushRange, request: &FlushRequest) -> LocalFlush {
    match range.page_count() > FLUSH_CEILING_PAGES {
        true => LocalFlush::Space,
        false => LocalFlush::Pages(range, request.freed_tables()),
    }
}
