//! Which task is which CPU: the handing over.
//!
//! All of it runs with interrupts off, much of it in the signal handler: the queue's lock is a futex that no handler can find held by its
//! own thread.

use std::sync::{MutexGuard, PoisonError};

use shootdown::{Capacity, Cpus};

use crate::cpu::{IPI, RESCHEDULE, SECOND, Service, TICK};
use crate::inner::Inner;
use crate::memory::Part;
use crate::queue::Queue;
use crate::root::KERNEL_ROOT;
use crate::thread::{self, Interrupts};

impl<const N: usize> Inner<N>
where
    Cpus<N>: Capacity,
{
    /// Interrupts are off.
    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        let queue = &self.platform().queue;
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives this CPU to somebody else, if somebody wants it, and returns when the caller has one again. Interrupts are
    /// off, and preemption is possible.
    pub(crate) fn schedule(&self, me: usize) {
        let cpu = thread::cpu();
        let is_idle = self.is_idle_thread(me);
        let next = {
            let mut queue = self.queue();
            let leaves = !is_idle && self.wants_idle(cpu);
            let next = match leaves {
                true => Some(self.idle_thread(cpu)),
                false => queue.pop(),
            };
            if next.is_some() && !is_idle {
                queue.push(me);
            }
            next
        };
        if let Some(next) = next {
            if !is_idle {
                self.ring_idle(cpu);
            }
            self.hand_over(cpu, next);
            self.await_cpu(me);
        }
    }

    /// Waits for its turn on some CPU. The caller has none, and interrupts off.
    pub(crate) fn want_cpu(&self, me: usize) {
        self.queue().push(me);
        self.ring_idle(usize::MAX);
        self.await_cpu(me);
    }

    /// The calling task gives its CPU away, and has none then. Interrupts are off.
    pub(crate) fn retire(&self) {
        let cpu = thread::cpu();
        let next = match self.wants_idle(cpu) {
            true => None,
            false => self.queue().pop(),
        };
        self.hand_over(cpu, next.unwrap_or(self.idle_thread(cpu)));
    }

    /// A CPU that has nothing to do should look at the queue.
    pub(crate) fn ring_idle(&self, except: usize) {
        for cpu in self.cpus.iter() {
            let index = cpu.index();
            if index != except && self.idles[index].is_halted() {
                self.platform().cpus[index].bell.ring();
            }
        }
    }

    /// Makes `next` this CPU, with its space loaded.
    pub(crate) fn hand_over(&self, cpu: usize, next: usize) {
        let platform = self.platform();
        if self.is_idle_thread(next) {
            if let Some(loaded) = platform.cpus[cpu].loaded() {
                let space = &self.spaces[loaded];
                self.engine.user_memory().enter_lazy(space, KERNEL_ROOT);
            }
        } else {
            self.load_space(cpu, self.tasks[next].space());
        }
        platform.cpus[cpu].hand_to(self.tasks[next].thread());
        self.tasks[next].grant.put(cpu as u32 + 1);
    }

    /// Waits for a CPU. Interrupts are off.
    pub(crate) fn await_cpu(&self, me: usize) {
        let granted = self.tasks[me].grant.take();
        thread::set_cpu(granted as usize - 1);
    }

    /// Loads a space, or none, on this CPU. Interrupts are off.
    pub(crate) fn load_space(&self, cpu: usize, next: Option<usize>) {
        let state = &self.platform().cpus[cpu];
        let before = state.loaded().map(|index| &self.spaces[index]);
        match (before, next) {
            (_, Some(0)) if thread::once_in(2) => {
                let windows = self.windows[cpu].as_ref().expect("every CPU has some");
                self.engine
                    .windows()
                    .switch_to(before, &self.spaces[0], windows);
            }
            (_, Some(1)) if thread::once_in(2) => {
                let own = self.own_roots[cpu].as_ref().expect("every CPU has one");
                let reach = self.engine.user_memory().reach();
                reach.switch_to(before, &self.spaces[1], own.as_ref());
            }
            (_, Some(next)) => self.engine.switch_to(before, &self.spaces[next]),
            (Some(before), None) => self.engine.switch_away(before, KERNEL_ROOT),
            (None, None) => {}
        }
        state.set_loaded(next);
    }

    /// At a fault in the second space, which is loaded by this CPU's own root: whether that has taken the region of the page now. Interrupts are off.
    pub(crate) fn take_region(&self, page: usize) -> bool {
        let cpu = thread::cpu();
        let own = self.own_roots[cpu].as_ref();
        let own = own.filter(|_| self.platform().cpus[cpu].loaded() == Some(1));
        let reach = self.engine.user_memory().reach();
        let address = self.platform().memory.address(Part::Space(1), page);
        own.is_some_and(|own| reach.take(&self.spaces[1], own.as_ref(), address))
    }

    /// Whether the idle thread of `cpu` has work of its own.
    fn wants_idle(&self, cpu: usize) -> bool {
        !self.platform().cpus[cpu].wants(Service::Online) || self.idles[cpu].has_jobs()
    }
}

impl<const N: usize> Interrupts for Inner<N>
where
    Cpus<N>: Capacity,
{
    fn has_pending(&self, cpu: usize) -> bool {
        self.platform().cpus[cpu].has_pending()
    }

    fn take_pending(&self) {
        let cpu = thread::cpu();
        let pending = self.platform().cpus[cpu].take();
        // First: a CPU that has answered a call of the machine's own engine has taken what the second one sent before it.
        if pending & SECOND != 0
            && let Some(on_second) = self.on_second.get()
        {
            on_second(shootdown::CpuId::new(cpu as u32));
        }
        if pending & IPI != 0 {
            self.engine.handle_ipi();
        }
        if pending & TICK != 0
            && let Some(on_tick) = self.on_tick.get()
        {
            on_tick(shootdown::CpuId::new(cpu as u32));
        }
        if pending & (TICK | RESCHEDULE) != 0
            && thread::may_schedule()
            && let Some(me) = thread::task()
        {
            self.schedule(me);
        }
    }
}
