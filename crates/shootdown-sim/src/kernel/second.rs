//! A second engine for the same CPUs, as a kernel has that measures one engine beside another.
//!
//! Waits of one engine serve requests of that engine only. So tasks use the second one with interrupts on and without locks: whoever waits for them in the
//! first one interrupts them.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use shootdown::{Capacity, CpuId, FlushScope, FreedTables};

use crate::kernel::calls::{Unshared, insist_here};
use crate::kernel::kernel_pages::kernel_range;
use crate::kernel::theme::Draw;
use crate::kernel::{PAGES_PER_TABLE, Sight, World};
use crate::machine::{FailureKind, SecondEngine, context};

impl<C: Capacity> World<C> {
    /// The engine's interrupt, which both engines have.
    pub fn handle_interrupt(&self) {
        let was_quiet = self.leave_quiet();
        self.engine.handle_ipi();
        if let Some(second) = &self.second {
            second.handle_ipi();
        }
        if was_quiet {
            self.enter_quiet();
        }
    }

    /// Something with the second engine, if there is one. Interrupts are on, no lock is held.
    pub(super) fn use_second_engine(&self, draw: &mut Draw) {
        let Some(second) = &self.second else {
            return;
        };
        self.hardware.saw(Sight::SecondEngine);
        match draw.below(4) {
            0 => second.flush(
                FlushScope::Kernel,
                kernel_range(draw.below(PAGES_PER_TABLE)),
                FreedTables::No,
            ),
            1 => second.control().kick(&self.some_cpus(draw)).wait(),
            2 => self.call_by_second(second, draw),
            _ => self.try_foreign_space(second, draw),
        }
    }

    fn call_by_second(&self, second: &SecondEngine<C>, draw: &mut Draw) {
        let wanted = self.some_cpus(draw);
        let runs = Unshared(vec![Cell::new(0); self.online.len()]);
        let ran = second.call_many(&wanted, &|cpu: CpuId| {
            let runs = &runs;
            let run: &Cell<u32> = &runs.0[insist_here(cpu)];
            run.set(run.get() + 1);
        });
        for (cpu, run) in runs.0.iter().enumerate() {
            let expected = u32::from(ran.contains(self.numbers[cpu]));
            if run.get() != expected {
                let message = format!("a call ran {} times on cpu{cpu}, not {expected}", run.get());
                context().fail(FailureKind::WrongCall, message);
            }
        }
    }

    /// Spaces and windows of one engine are refused by the other, before it changes anything.
    fn try_foreign_space(&self, second: &SecondEngine<C>, draw: &mut Draw) {
        let Some(space) = self.get_space(draw.place()) else {
            return;
        };
        let range = kernel_range(0);
        let view = space.context();
        let windows = space.windows.borrow().first().cloned();
        let refuses = |what: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(what)).is_err();
        let refuses_space = refuses(&mut || second.flush(&*view, range, FreedTables::No))
            && refuses(&mut || second.switch_to(None, &view));
        let refuses_windows = windows.is_none_or(|windows| {
            let root = windows.engine.borrow();
            root.as_ref()
                .is_none_or(|root| refuses(&mut || drop(second.windows().pin(root))))
        });
        drop(view);
        if !(refuses_space && refuses_windows) {
            let story = "the second engine takes what is the first one's".to_owned();
            context().fail(FailureKind::Other, story);
        }
        self.put_space(space);
    }
}
