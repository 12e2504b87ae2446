//! What code that runs on a CPU may do: enter a space, load words, let go of the CPU.

use std::time::Duration;

use shootdown::{Capacity, Cpus};

use crate::entry::Entry;
use crate::machine::Machine;
use crate::memory::{PAGES, Part};
use crate::thread;
use crate::tlb::Tlb;

impl<const N: usize> Machine<N>
where
    Cpus<N>: Capacity,
{
    /// Gives the running task another space, or none, on whatever CPU it runs. On a CPU, not in interrupt context.
    ///
    /// # Panics
    /// Elsewhere, and when there is no such space.
    pub fn enter(&self, space: Option<usize>) {
        let inner = &*self.inner;
        assert!(
            space.is_none_or(|space| space < inner.spaces.len()),
            "no such space"
        );
        let me = thread::task().expect("a space is entered on a CPU");
        let were_on = thread::irq_save();
        inner.tasks[me].set_space(space);
        inner.load_space(thread::cpu(), space);
        if were_on {
            thread::irq_enable();
        }
    }

    /// The space of the running task. On a CPU; in interrupt context, that of the interrupted task.
    pub fn entered(&self) -> Option<usize> {
        self.inner.tasks[thread::task()?].space()
    }

    /// Loads the word at an address as this CPU's translations have it, as one instruction; `None` if it has none. Windows are
    /// those of this CPU, whatever the part says. A word of all ones says that a page table was walked that had been given back. On a CPU, any context.
    pub fn load(&self, part: Part, page: usize) -> Option<u64> {
        let platform = self.inner.platform();
        let (is_kernel, page) = match part {
            Part::Kernel => (true, page),
            Part::Space(_) => (false, page),
            Part::Window(_) => (false, PAGES + page),
        };
        let were_on = thread::irq_save();
        let tlb: &Tlb = &platform.tlbs[thread::cpu()];
        let mut entry = tlb.translate(&platform.memory, is_kernel, page);
        if entry == Entry::Unmapped && !is_kernel && self.inner.take_region(page) {
            entry = tlb.translate(&platform.memory, is_kernel, page);
        }
        let word = match entry {
            Entry::Unmapped => None,
            Entry::Frame(frame) => Some(platform.memory.read_frame(frame as usize)),
            Entry::Freed => Some(u64::MAX),
        };
        if were_on {
            thread::irq_enable();
        }
        word
    }

    /// Lets another task have the CPU, if one wants it and preemption is on; the caller may go on elsewhere. In a task, with
    /// interrupts on; elsewhere it does nothing.
    pub fn preempt(&self) {
        if thread::irqs_are_off() || !thread::is_preemptible() {
            return;
        }
        if let Some(me) = thread::task() {
            thread::irq_save();
            self.inner.schedule(me);
            thread::irq_enable();
        }
    }

    /// Lets the CPU go, to the next task or to idle, and wants one again after `time`. In a task, with interrupts and
    /// preemption on; elsewhere it does nothing.
    pub fn rest(&self, time: Duration) {
        if thread::irqs_are_off() || !thread::is_preemptible() {
            return;
        }
        if let Some(me) = thread::task() {
            thread::irq_save();
            self.inner.retire();
            std::thread::sleep(time);
            self.inner.want_cpu(me);
            thread::irq_enable();
        }
    }
}
