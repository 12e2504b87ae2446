//! What is in memory when a CPU has stopped for good, for the simulator: whether others could complete what it has begun.

use crate::call::{CallData, RequestRef, Ring, SLOTS};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::sync::Ordering;

/// What a stopped CPU has left half done, as seen in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unfinished {
    /// An entry of a ring is claimed and not complete.
    Claim,
    /// All of a leaf have acknowledged, and their bits are in the pending set still.
    Leaf,
    /// An initiator is in an inbox, and its target has nothing else to do.
    Inbox,
    /// Posted data were taken off their list.
    TakenData,
    /// Data are marked as posted and on no list yet.
    Posting,
    /// Other CPUs may not go offline.
    Departure,
    /// CPUs wait in a rendezvous.
    Rendezvous,
    /// A call was given up, and the bit of its target is in the pending set still.
    GivenUp,
}

/// Where data that are posted lie, and their mark: who has posted or taken them.
pub fn place_of<F>(data: &CallData<F>) -> (usize, u64) {
    (core::ptr::from_ref(data).addr(), data.mark())
}

impl<P: Platform> Shootdown<P> {
    /// Calls `found` with what `stopped` has left half done, while the others have nothing left to do that does not wait for it.
    ///
    /// # Errors
    /// What is not in memory, so that nobody could complete it.
    pub fn unfinished(
        &self,
        stopped: CpuId,
        data: impl Iterator<Item = (usize, u64)>,
        mut found: impl FnMut(Unfinished),
    ) -> Result<(), &'static str> {
        if self.departure.0.load(Ordering::Relaxed) == stopped.as_mark() {
            found(Unfinished::Departure);
        }
        if self.meeting.0.is_of(stopped) {
            found(Unfinished::Rendezvous);
        }
        for initiator in self.rings().iter().flat_map(Ring::claimants) {
            match initiator == stopped {
                true => found(Unfinished::Claim),
                false => return Err("a claim names a CPU that goes on"),
            }
        }
        for (initiator, state) in self.states().filter(|(cpu, _)| *cpu != stopped) {
            for slot in 0..SLOTS {
                let number = state.slots[slot].number();
                let request = RequestRef {
                    initiator,
                    slot,
                    number,
                };
                self.requests_left(request, stopped, &mut found)?;
            }
        }
        for (address, mark) in data.filter(|(_, mark)| *mark != 0) {
            let is_listed = self.states().any(|(_, state)| state.posted.0.has(address));
            // Others are through with what they have taken, but for what waits behind a function of theirs.
            let is_taken = self.states().any(|(cpu, state)| {
                (cpu == stopped || state.in_function.get())
                    && state.taken_links.have(address, mark, cpu)
            });
            match (is_listed, is_taken) {
                (true, _) => {}
                (_, true) => found(Unfinished::TakenData),
                _ if mark == stopped.as_mark() => found(Unfinished::Posting),
                // Of what another one has marked only that one knows.
                _ if self.dead_cpus().iter().any(|dead| mark == dead.as_mark()) => {}
                _ => return Err("posted data are on no list"),
            }
        }
        Ok(())
    }

    /// The same for a request of a CPU that goes on.
    fn requests_left(
        &self,
        request: RequestRef,
        stopped: CpuId,
        found: &mut impl FnMut(Unfinished),
    ) -> Result<(), &'static str> {
        let slot = &self.state(request.initiator).slots[request.slot];
        for (target, state) in self.states().filter(|(cpu, _)| *cpu != stopped) {
            let group = P::Cpus::group(target);
            if slot.pending(group) & P::Cpus::bit(target) == 0 {
                continue;
            }
            let ring = &self.rings()[group];
            if self.is_given_up(request) {
                // It was about to clear the bit.
                found(Unfinished::GivenUp);
            } else if slot.is_in_ring_of(group) && ring.index_of(request).is_some() {
                // Those of a leaf are cleared together.
                if ring.pending(request) & Ring::<P::Cpus>::mates_of(target) == 0 {
                    found(Unfinished::Leaf);
                }
            } else if state.inbox.has(request.initiator) {
                found(Unfinished::Inbox);
            } else {
                // Its function may be the one that runs.
                let is_kept = state.taken.has(request.initiator) || state.in_function.get();
                if !is_kept {
                    return Err("a request that a CPU has not done is nowhere");
                }
            }
        }
        Ok(())
    }
}
