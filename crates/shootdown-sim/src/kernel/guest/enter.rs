//! How a virtual CPU runs: in and out of guest mode, and what the host does about what made it leave.

use shootdown::{
    Capacity,
    guest::{GuestEntry, GuestExit},
    tags::TagEntries,
};

use crate::kernel::World;
use crate::kernel::guest::tlb::Running;
use crate::kernel::guest::vm::{VirtualCpu, Vm};
use crate::kernel::sightings::Sight;
use crate::kernel::theme::Draw;
use crate::machine::context;
use crate::oracle::Mark;

/// A host enters so often in a row, at most.
const MOST_ENTRIES: usize = 5;
/// An entry fails once in so many times.
const FAILURES: usize = 8;

/// Why the guest was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Exit {
    /// It was not entered.
    Failed,
    /// An interrupt.
    Interrupted,
    /// It waits for something, or its time is over.
    Idle,
    /// A guest-physical page is not there, or not for what the guest would like to do.
    Violation { page: usize, writes: bool },
    /// It asks the host to drop its translations: it has changed where this page leads.
    AsksForFlush { virtual_page: usize, mark: Mark },
}

impl<C: Capacity> World<C> {
    /// Runs a virtual CPU for a while on the CPUs that the calling task is given, unless somebody else does.
    pub(super) fn run_vcpu(&self, vm: &Vm<C>, vcpu: &VirtualCpu, draw: &mut Draw) {
        if !vcpu.hold() {
            return;
        }
        for _ in 0..=draw.below(MOST_ENTRIES) {
            let exit = self.enter(vm, vcpu, draw);
            context().tell(|| format!("has left guest {}: {exit:?}", vm.number));
            match exit {
                Exit::Violation { page, writes } => self.serve_violation(vm, page, writes, draw),
                Exit::AsksForFlush { virtual_page, mark } => {
                    vcpu.engine.borrow_mut().drop_translations();
                    self.withdraw_virtual(vcpu, virtual_page, mark);
                }
                Exit::Failed | Exit::Interrupted | Exit::Idle => {}
            }
            for _ in 0..draw.below(3) {
                context().work(1);
            }
        }
        vcpu.put();
    }

    fn enter(&self, vm: &Vm<C>, vcpu: &VirtualCpu, draw: &mut Draw) -> Exit {
        let space = vm.space();
        let mut engine = vcpu.engine.borrow_mut();
        let inside = |entry| {
            // The hardware obeys later than the engine has decided.
            context().work(1);
            if draw.once_in(FAILURES) {
                self.hardware.saw(Sight::GuestNotEntered);
                return GuestExit::NotEntered(Exit::Failed);
            }
            GuestExit::Ran(self.be_in_guest(vm, vcpu, entry, draw))
        };
        // SAFETY: 1. `be_in_guest` enters by what it is given; in guest mode the CPU calls no engine. 2. It looks at each step whether one has
        // come, and takes none. 3. A CPU uses what it has cached of guests while one is loaded.
        unsafe { space.run(&self.engine, &mut engine, inside) }
    }

    fn be_in_guest(
        &self,
        vm: &Vm<C>,
        vcpu: &VirtualCpu,
        entry: GuestEntry,
        draw: &mut Draw,
    ) -> Exit {
        let me = context().cpu();
        context().tell(|| format!("enters guest {}: {entry:?}", vm.number));
        self.note_entry(vcpu, me, entry);
        let running = Running {
            root: entry.root as u16,
            life: vm.life,
            asid: entry.asid,
            tables: vcpu.tables.clone(),
        };
        self.hardware.guests.borrow_mut()[me].enter(running, entry.entries);
        let exit = self.live_in_guest(vm, vcpu, draw);
        self.hardware.guests.borrow_mut()[me].leave();
        if exit == Exit::Interrupted {
            self.hardware.saw(Sight::GuestInterrupted);
        }
        exit
    }

    fn note_entry(&self, vcpu: &VirtualCpu, me: usize, entry: GuestEntry) {
        let sight = match entry.entries {
            TagEntries::Keep => Sight::GuestKept,
            TagEntries::Drop => Sight::GuestDropped,
        };
        self.hardware.saw(sight);
        let last = vcpu.last.replace(Some(me));
        if last.is_some_and(|last| last != me) {
            self.hardware.saw(Sight::VcpuMoved);
        }
    }
}
