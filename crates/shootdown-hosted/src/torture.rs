//! The torture's view of a machine.

use std::time::Duration;

use shootdown::{AddressSpace, Capacity, CpuId, CpuMask, Cpus, Shootdown, windows::WindowRoot};
use shootdown_torture::{Host, Promise, Region, Torture, WINDOW_PAGES};

use crate::machine::Machine;
use crate::memory::{PAGES_PER_TABLE, Part};
use crate::platform::Hosted;

/// All CPUs' windows together may show so many frames: the rest is enough for all other pages, and for those on their way.
const WINDOW_FRAMES: usize = 64;

/// Closes the books of a run on `machine`, all of whose tasks have ended: brings all CPUs back, and enters what the machine
/// itself has seen.
///
/// # Panics
/// On a CPU of the machine, or if it was built without room for a task.
pub fn finish<const N: usize>(machine: &Machine<N>, torture: &Torture<N>)
where
    Cpus<N>: Capacity,
{
    torture.bring_all_online(machine);
    let finished = machine.run_tasks(1, |_| torture.finish(machine));
    finished.expect("a tortured machine has room for a task");
    for (promise, count) in [
        (Promise::OfflineQuiet, machine.late_requests()),
        (Promise::NotReused, machine.memory().freed_walks()),
    ] {
        if count > 0 {
            torture.host_found(promise, CpuId::new(0), count);
        }
    }
}

fn part(region: Region) -> Part {
    match region {
        Region::Space(index) => Part::Space(index),
        Region::Kernel => Part::Kernel,
        Region::Window(cpu) => Part::Window(cpu),
    }
}

impl<const N: usize> shootdown_torture::Memory<N> for Machine<N>
where
    Cpus<N>: Capacity,
{
    fn spaces(&self) -> usize {
        self.memory().spaces()
    }

    fn space(&self, index: usize) -> &AddressSpace<Cpus<N>> {
        Machine::space(self, index)
    }

    fn pages(&self, region: Region) -> usize {
        match region {
            Region::Window(_) => (WINDOW_FRAMES / self.cpus()).clamp(1, WINDOW_PAGES),
            _ => self.memory().pages(),
        }
    }

    fn address(&self, region: Region, page: usize) -> usize {
        self.memory().address(part(region), page)
    }

    fn frames(&self) -> usize {
        self.memory().frames()
    }

    fn write_frame(&self, frame: usize, word: u64) {
        self.memory().write_frame(frame, word);
    }

    fn map(&self, region: Region, page: usize, frame: Option<usize>) {
        self.memory().map(part(region), page, frame);
    }

    fn load(&self, region: Region, page: usize) -> Option<u64> {
        Machine::load(self, part(region), page)
    }

    fn entered(&self) -> Option<usize> {
        Machine::entered(self)
    }

    fn enter(&self, space: Option<usize>) {
        Machine::enter(self, space);
    }

    fn move_table(&self, space: usize, page: usize) -> Option<usize> {
        let old = self.memory().move_table(space, page)?;
        Machine::space(self, space).top_changed();
        Some(old)
    }

    fn table_of(&self, space: usize, page: usize) -> Option<usize> {
        Some((self.memory()).table_of(Part::Space(space), page / PAGES_PER_TABLE))
    }

    fn has_windows(&self, cpu: usize) -> bool {
        self.windows(cpu).is_some()
    }

    fn with_windows(&self, cpu: usize, work: &mut dyn FnMut(&WindowRoot)) {
        self.windows(cpu).into_iter().for_each(work);
    }

    fn table_pages(&self, page: usize) -> (usize, usize) {
        (page / PAGES_PER_TABLE * PAGES_PER_TABLE, PAGES_PER_TABLE)
    }

    fn free_table(&self, table: usize) {
        self.memory().free_table(table);
    }
}

impl<const N: usize> Host<N> for Machine<N>
where
    Cpus<N>: Capacity,
{
    type Platform = Hosted<N>;
    type Memory = Self;

    fn engine(&self) -> &Shootdown<Hosted<N>> {
        Machine::engine(self)
    }

    fn memory(&self) -> &Self {
        self
    }

    fn possible_cpus(&self) -> CpuMask<Cpus<N>> {
        Machine::possible_cpus(self)
    }

    fn busy(&self, ns: u64) {
        use shootdown::Platform;
        let platform = Machine::engine(self).platform();
        let start_ns = platform.now_ns();
        while platform.now_ns() - start_ns < ns {
            core::hint::spin_loop();
        }
    }

    fn preempt(&self) {
        Machine::preempt(self);
    }

    fn rest(&self, ns: u64) {
        Machine::rest(self, Duration::from_nanos(ns));
    }

    fn take_offline(&self, cpu: CpuId) -> bool {
        Machine::take_offline(self, cpu).is_ok()
    }

    fn bring_online(&self, cpu: CpuId) {
        // The torture brings back what it took, and nobody else does.
        let _ = Machine::bring_online(self, cpu);
    }
}
