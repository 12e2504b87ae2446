//! What running guests costs on the timed machine.

use shootdown::{
    FlushRange, PageSize,
    guest::GuestEntry,
    tags::{Asid, TagEntries},
};

use crate::machine::{Context, State};
use crate::timed::{Costs, Timed};

/// What a hypervisor of the machine costs, and what its guests do. Only some machines have one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct GuestCosts {
    /// Tags that virtual CPUs run under.
    pub slots: usize,
    /// From the host to the guest's first instruction.
    pub entry_ps: u64,
    /// From the guest's last instruction to the host.
    pub exit_ps: u64,
    /// Dropping one tag at an entry.
    pub drop_ps: u64,
    /// What the host does about a write to a page that is write-protected, besides its flush.
    pub first_write_ps: u64,
    /// What a guest does between two writes to pages.
    pub write_ps: u64,
    /// For how long a virtual CPU runs until it is another one's turn.
    pub turn_ps: u64,
    /// From one reading of a log to the next.
    pub round_ps: u64,
}

impl Costs {
    /// Whether the machine is one for guests.
    pub fn has_guests(&self) -> bool {
        self.guest.turn_ps > 0
    }
}

/// The tags of guests are not those of the host: they stand behind all that a CPU has.
const FIRST_TAG: u16 = 1 << 12;

impl Context<'_> {
    /// Enters guest mode as the engine says. The CPU has no tagged root loaded; interrupts are off until it [leaves](Self::leave_guest).
    ///
    /// # Panics
    /// On a machine that is not timed.
    pub fn enter_guest(self, entry: GuestEntry) {
        self.spend(|timed, cpu| timed.enter_guest(cpu, entry));
    }

    /// Leaves guest mode.
    ///
    /// # Panics
    /// On a machine that is not timed.
    pub fn leave_guest(self) {
        self.spend(|timed, cpu| {
            let shape = timed.costs.tlb;
            timed.tlbs[cpu].load(&shape, Asid::UNTAGGED, TagEntries::Keep);
            timed.costs.guest.exit_ps
        });
    }

    /// Drops what this CPU has cached of a page whose entry refused an access: the processor does so itself, at no price of its own.
    ///
    /// # Panics
    /// On a machine that is not timed.
    pub fn forget_refused(self, page: u64) {
        self.spend(|timed, cpu| {
            let (costs, tlb) = (&timed.costs, &mut timed.tlbs[cpu]);
            let range = FlushRange::pages((page as usize) << 12, 1, PageSize::SIZE_4K);
            tlb.drop_pages(costs, tlb.tag(), range);
            0
        });
    }

    /// The running CPU does something that takes so long.
    fn spend(self, what: impl FnOnce(&mut Timed, usize) -> u64) {
        self.with(|state: &mut State| {
            let cpu = state.running;
            let timed = state.timed().expect("a timed machine");
            let price_ps = what(timed, cpu);
            state.me().now_ps += price_ps;
        });
        self.event();
        self.boundary();
    }
}

impl Timed {
    fn enter_guest(&mut self, cpu: usize, entry: GuestEntry) -> u64 {
        let costs = self.costs.guest;
        let tag = Asid::new(FIRST_TAG + entry.asid.as_u16());
        self.tlbs[cpu].load(&self.costs.tlb, tag, entry.entries);
        match entry.entries {
            TagEntries::Keep => costs.entry_ps,
            TagEntries::Drop => costs.entry_ps + costs.drop_ps,
        }
    }
}
