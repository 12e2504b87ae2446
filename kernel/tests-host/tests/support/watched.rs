//! Spaces that other CPUs have loaded while the test changes them.

use shootdown::CpuId;
use shootdown_kernel_tests::arch::percpu::as_cpu;
use shootdown_kernel_tests::mm::MemorySpace;
use shootdown_kernel_tests::witness::{Seen, Watch, watch};
use std::sync::Arc;

/// CPUs that have spaces loaded. The test is CPU 0, which has none.
const CPUS: [CpuId; 2] = [CpuId::new(1), CpuId::new(2)];

/// Interrupts that are taken only when nobody holds the lock of a space.
pub fn unlocked(interrupts: usize) -> Seen {
    Seen {
        interrupts,
        taken_unlocked: interrupts,
        taken_locked: 0,
    }
}

/// Those that are taken before it is released.
pub fn locked(interrupts: usize) -> Seen {
    Seen {
        interrupts,
        taken_locked: interrupts,
        taken_unlocked: 0,
    }
}

/// As many spaces as there are CPUs, one on each. Ends before their pages do.
pub struct Watched {
    pub watch: Watch,
    loaded: Vec<Option<Arc<MemorySpace>>>,
}

impl Watched {
    /// Loads the spaces, on the first CPUs.
    pub fn new(spaces: &[&Arc<MemorySpace>]) -> Self {
        let watch = watch();
        let mut watched = Self {
            watch,
            loaded: vec![None; CPUS.len()],
        };
        for (cpu, space) in spaces.iter().enumerate() {
            watched.load(cpu, Some(space));
        }
        watched
    }

    /// Loads a space on that CPU instead of what it has loaded, or none.
    pub fn load(&mut self, cpu: usize, space: Option<&Arc<MemorySpace>>) {
        let before = self.loaded[cpu].take();
        as_cpu(CPUS[cpu], || match (space, &before) {
            (Some(space), before) => space.activate(before.as_deref()),
            (None, Some(before)) => before.deactivate(),
            (None, None) => {}
        });
        self.loaded[cpu] = space.cloned();
    }

    /// That CPU has nothing to do, and keeps its space.
    pub fn rest(&self, cpu: usize) {
        let loaded = self.loaded[cpu].iter();
        loaded.for_each(|space| as_cpu(CPUS[cpu], || space.rest()));
    }

    /// Does `work`, which must cost that.
    #[track_caller]
    pub fn costs<R>(&self, wanted: Seen, work: impl FnOnce() -> R) -> R {
        self.watch.settle();
        self.watch.seen();
        let done = work();
        self.watch.settle();
        assert_eq!(self.watch.seen(), wanted);
        done
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        (0..CPUS.len()).for_each(|cpu| self.load(cpu, None));
    }
}
