//! What a program may ask of the timed machine beyond what both models have.

use std::sync::atomic::AtomicU64;

use shootdown::tags::Asid;

use crate::machine::{Context, State};
use crate::timed::{Timed, Translation};
use crate::walkthrough::Fact;

impl Context<'_> {
    /// Accesses a user page (the number of a 4 KiB page) whose leaf page-table entry is `entry`: zero where
    /// nothing is mapped, else the frame. Interrupts in any state.
    ///
    /// # Panics
    /// On a machine that is not timed.
    pub fn touch(self, page: u64, entry: &AtomicU64) -> Translation {
        let found = self.with(|state| {
            let (cpu, mut processor) = (state.running, state.me().clone());
            let found = timed(state).translate(cpu, &mut processor, page, entry);
            *state.me() = processor;
            found
        });
        self.event();
        self.boundary();
        found
    }

    /// Drops what this CPU has cached under a tag (x86: INVPCID of one context).
    ///
    /// # Panics
    /// On a machine that is not timed.
    pub fn drop_tag(self, tag: Asid) {
        self.with(|state| {
            let cpu = state.running;
            let timed = timed(state);
            timed.tlbs[cpu].drop_tag(tag);
            let price_ps = timed.costs.invpcid_ps;
            state.me().now_ps += price_ps;
        });
        self.event();
        self.boundary();
    }

    /// What the timed machine has counted or costs.
    ///
    /// # Panics
    /// On a machine that is not timed.
    pub fn timed<R>(self, look: impl FnOnce(&mut Timed) -> R) -> R {
        self.with(|state| look(timed(state)))
    }
}

impl Timed {
    /// All that its TLBs hold, for those who look at it.
    pub(crate) fn facts(&self) -> Vec<Fact> {
        let mut facts = Vec::new();
        for (cpu, tlb) in self.tlbs.iter().enumerate() {
            tlb.add_facts(cpu, &mut facts);
        }
        facts
    }
}

fn timed(state: &mut State) -> &mut Timed {
    state.timed().expect("a timed machine")
}
