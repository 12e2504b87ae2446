//! What a program may ask of the timed machine beyond what both models have.

use std::sync::atomic::AtomicU64;

use shootdown::tags::{Asid, TagEntries};
use shootdown::{Capacity, Shootdown};

use crate::machine::{Context, SimPlatform, State};
use crate::timed::tlb::{kernel_side, user_side};
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

    /// This CPU loads the user side's root, as the engine says. Nothing where tags are not split.
    ///
    /// # Panics
    /// On a machine that is not timed.
    pub fn enter_user<C: Capacity, const DEATHS: bool>(
        self,
        engine: &Shootdown<SimPlatform<C, DEATHS>>,
    ) {
        if self.timed(|timed| timed.splits_tags()) {
            // SAFETY: 1. it is loaded next.
            let (tag, entries) = unsafe { engine.user_memory().enter_user() };
            self.load_side(user_side(tag), entries);
        }
    }

    /// This CPU comes from user mode: it loads the kernel side's root. Nothing where tags are not split.
    ///
    /// # Panics
    /// On a machine that is not timed.
    pub fn enter_kernel(self) {
        let (splits_tags, cpu) = (self.timed(|timed| timed.splits_tags()), self.cpu());
        if splits_tags {
            let tag = kernel_side(self.timed(|timed| timed.tlbs[cpu].tag()));
            // Without a tag of its own every load drops all.
            let entries = match tag {
                Asid::UNTAGGED => TagEntries::Drop,
                _ => TagEntries::Keep,
            };
            self.load_side(tag, entries);
        }
    }

    fn load_side(self, tag: Asid, entries: TagEntries) {
        self.with(|state| state.begin_load(tag, entries));
        self.event();
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
