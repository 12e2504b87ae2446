//! Flushes without an interrupt, and CPUs that do not run all the time: what the platform and, in exploration, the hypervisor do.

use std::sync::atomic::AtomicU64;

use shootdown::sim::{Operation, Ordering};
use shootdown::{
    CpuId,
    remote::{FlushRequest, GlobalTags, RemoteFlush, RemoteTargets, TagSet},
    tags::Asid,
};

use crate::explore::{BackEnd, Explore};
use crate::machine::{Context, State};

/// New tags that are the same on all CPUs, in sets of eight behind `own` ones of each CPU, for one machine.
pub(crate) fn new_global_tags(own: usize, sets: usize) -> GlobalTags {
    // They live as long as their spaces might.
    let sets: Vec<_> = (0..sets).map(|_| TagSet::new()).collect();
    GlobalTags::new(Asid::new(own as u16 + 1), sets.leak())
}

impl Context<'_> {
    fn explored<R>(self, ask: impl FnOnce(&mut Explore, usize) -> R) -> Option<R> {
        self.with(|state| {
            let running = state.running;
            state.explore().map(|explore| ask(explore, running))
        })
    }

    fn back_end(self) -> BackEnd {
        self.explored(|explore, _| explore.back_end())
            .unwrap_or_default()
    }

    pub(crate) fn flushes_remotely(self) -> bool {
        self.back_end() != BackEnd::None || self.with(State::has_timed_back_end)
    }

    /// The hypervisor accesses a word, where this CPU is.
    fn exchange(self, word: &AtomicU64, operation: Operation) -> u64 {
        // ORDERING: Acquire: the changes that initiators ask for a flush for; Release: what the CPU did, for those that take it.
        let order = Ordering::AcqRel;
        let access = |explore: &mut Explore, cpu| explore.access(cpu, word, operation, order);
        self.explored(access).unwrap_or(0)
    }

    /// The hypervisor takes this CPU off its processor, for as long as it likes: between two instructions (Linux 6cd88243c7e0).
    pub(crate) fn go_out_and_in(self) {
        self.tell(|| "is taken off its processor".to_owned());
        let record = self.steal_time(self.cpu());
        self.explored(Explore::go_out);
        record.mark(|word, store| {
            self.exchange(word, store);
        });
        while self.explored(Explore::stays_out) == Some(true) {
            self.others_go_on();
        }
        let is_flushed = record.take(|word, swap| self.exchange(word, swap));
        self.explored(Explore::come_in);
        self.tell(|| format!("runs again, flushed: {is_flushed}"));
    }

    /// Asks the hypervisor to flush `target` before it runs again; true if it does not run.
    fn ask(self, target: CpuId, request: &FlushRequest) -> bool {
        let target = self.index_of(target);
        let is_taken = self.steal_time(target).flush_before_entry();
        if is_taken {
            self.tell(|| format!("has cpu{target}, which is out, drop what {request:?} is about"));
            self.explored(|explore, me| explore.flush_for(me, target, request));
        }
        is_taken
    }

    pub(crate) fn flush_remote(
        self,
        targets: &mut RemoteTargets<'_>,
        request: &FlushRequest,
    ) -> RemoteFlush {
        if self.back_end() != BackEnd::ByTag {
            self.see_back_end(request, false);
        }
        match self.back_end() {
            BackEnd::None => self.ask_hypervisor(targets),
            BackEnd::ByTag => {}
            BackEnd::Hypervisor => targets.take_if(|target| self.ask(target, request)),
            BackEnd::Call => self.flush_targets(targets, request),
            BackEnd::Broadcast => {
                self.explored(Explore::issue);
                return RemoteFlush::Unfinished;
            }
        }
        RemoteFlush::Done
    }

    fn see_back_end(self, request: &FlushRequest, everywhere: bool) {
        if let Some(listeners) = self.listeners() {
            listeners.see_back_end(request, everywhere);
        }
    }

    /// The same on the timed machine.
    fn ask_hypervisor(self, targets: &mut RemoteTargets<'_>) {
        let Some(records) = self.with(State::steal_times) else {
            return;
        };
        let mut taken = 0;
        targets.take_if(|cpu| {
            let is_taken = records[self.index_of(cpu)].flush_before_entry();
            taken += u64::from(is_taken);
            is_taken
        });
        self.timed(|timed| timed.note_taken(taken));
    }

    /// Waits for what this CPU has issued, if it has.
    pub(crate) fn finish_remote(self, targets: &mut RemoteTargets<'_>, request: &FlushRequest) {
        match self.explored(Explore::syncs) {
            Some(true) => self.flush_targets(targets, request),
            _ => targets.take_all(),
        }
    }

    /// Has every CPU drop what it holds under a tag: on the timed machine when the broadcast is over, in exploration one after the other,
    /// unless the host refuses.
    pub(crate) fn flush_everywhere(self, asid: Asid, request: &FlushRequest) -> bool {
        if self.with(State::broadcast) {
            self.event();
            self.timed(|timed| timed.drop_everywhere(asid, request));
            return true;
        }
        if self.explored(|explore, _| explore.takes_tag(asid, request)) != Some(true) {
            return false;
        }
        self.see_back_end(request, true);
        self.explored(Explore::issue);
        // Whoever could be moved would be moved here.
        self.event();
        self.boundary();
        let is_own = self.explored(Explore::syncs) == Some(true);
        let cpus = self.with(|state| state.processors.len());
        for cpu in (0..cpus).filter(|_| is_own) {
            self.others_go_on();
            self.explored(|explore, me| explore.flush_tag_for(me, cpu, asid, request));
        }
        self.tell(|| format!("has all CPUs drop under {asid:?} what {request:?} is about"));
        true
    }

    /// Flushes all targets that the back end reaches, and takes them.
    fn flush_targets(self, targets: &mut RemoteTargets<'_>, request: &FlushRequest) {
        let flush = |target: CpuId| {
            self.others_go_on();
            let target = self.index_of(target);
            self.tell(|| {
                format!(
                    "has cpu{target} drop what generation {:?} is about",
                    request
                )
            });
            self.explored(|explore, me| explore.flush_for(me, target, request));
        };
        if self.explored(|explore, _| explore.reaches_all()) == Some(true) {
            targets.as_set().iter().for_each(flush);
            return targets.take_all();
        }
        targets.take_if(|target| {
            let reaches = self.explored(|explore, _| explore.reaches_one()) == Some(true);
            if reaches {
                flush(target);
            }
            reaches
        });
    }
}
