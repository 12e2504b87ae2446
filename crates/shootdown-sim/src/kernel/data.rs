//! Call data that all tasks share: posted to any CPU, also while they still wait for one.

use std::cell::RefCell;
use std::fmt;

use shootdown::{
    Capacity, CpuId,
    calls::{CallData, PostRefused},
    sim::place_of,
};

use crate::kernel::calls::{Ledger, note_posted_data, runs_of};
use crate::kernel::theme::Draw;
use crate::kernel::{Sight, World};

/// So few that most are posted again before they have run.
const DATA: usize = 2;

type Function = Box<dyn Fn(CpuId) + Sync>;

/// The call data of a run, and where each was posted to.
pub(super) struct SharedData {
    // Boxed: lists and the simulated memory know them by their addresses.
    all: Box<[(CallData<Function>, u64)]>,
    posted: [RefCell<Vec<usize>>; DATA],
}

impl fmt::Debug for SharedData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedData")
            .field("posted", &self.posted)
            .finish_non_exhaustive()
    }
}

impl SharedData {
    pub(super) fn new(ledger: &Ledger) -> Self {
        let one = |serial| {
            let function: Function = Box::new(move |cpu| note_posted_data(serial, cpu));
            (CallData::new(function), serial)
        };
        Self {
            all: (0..DATA).map(|_| one(ledger.serial())).collect(),
            posted: Default::default(),
        }
    }

    /// Each ran as often as it was posted, and there.
    pub(super) fn check(&self) -> Result<(), String> {
        for ((_, serial), posted) in self.all.iter().zip(&self.posted) {
            let (mut runs, mut posted) = (runs_of(*serial), posted.borrow().clone());
            runs.sort_unstable();
            posted.sort_unstable();
            if runs != posted {
                return Err(format!(
                    "call data {serial} were posted to {posted:?} and ran on {runs:?}"
                ));
            }
        }
        Ok(())
    }
}

impl<C: Capacity> World<C> {
    /// Where the call data lie, and who has posted each.
    pub(crate) fn posted_data(&self) -> impl Iterator<Item = (usize, u64)> {
        self.data.all.iter().map(|(data, _)| place_of(data))
    }

    /// Posts one of them to some CPU, online or not.
    pub(super) fn post_data(&self, draw: &mut Draw) {
        let (at, cpu) = (draw.below(DATA), draw.below(self.numbers.len()));
        let data: *const CallData<Function> = &raw const self.data.all[at].0;
        // SAFETY: boxed, and alive as long as the engine is used: a world whose run failed is never dropped, and after another run
        // no list has anything.
        let data: &'static _ = unsafe { &*data };
        let target = self.numbers[cpu];
        let defers = self.quiet.is_on() && draw.random.bool();
        let posted = match defers {
            true => self.engine.control().post_deferrable(target, data),
            false => self.engine.post_data(target, data),
        };
        match posted {
            Ok(()) => {
                if defers && self.quiet.is_quiet(cpu) {
                    self.hardware.saw(Sight::QuietPosted);
                }
                self.data.posted[at].borrow_mut().push(cpu);
                self.hardware.saw(Sight::DataPosted);
            }
            Err(PostRefused::Busy) => self.hardware.saw(Sight::DataBusy),
            Err(PostRefused::NotReady) => {}
        }
    }
}
