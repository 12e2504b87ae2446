//! What a CPU does when no task wants it: jobs, coming and going, halting.

use std::sync::atomic::Ordering;
use std::time::Duration;

use shootdown::{Capacity, Cpus};

use crate::cpu::Service;
use crate::idle::Job;
use crate::inner::Inner;
use crate::thread;

/// How long a halted CPU sleeps at most. ThreadSanitizer holds a signal back until the next atomic access, which a sleeper does
/// not make.
const NAP: Option<Duration> = if cfg!(tsan) {
    Some(Duration::from_millis(1))
} else {
    None
};

impl<const N: usize> Inner<N>
where
    Cpus<N>: Capacity,
{
    /// The whole life of a CPU's idle thread.
    pub(crate) fn idle(&self, cpu: usize) {
        let me = self.idle_thread(cpu);
        self.enroll(me);
        thread::set_cpu(cpu);
        let state = &self.platform().cpus[cpu];
        state.hand_to(self.tasks[me].thread());
        self.come_online(cpu);
        // Interrupts are off at the head of the loop, and the CPU is ours.
        loop {
            let rung = state.bell.count();
            if state.wants(Service::Stopped) {
                break;
            }
            if state.wants(Service::Offline) && self.idles[cpu].close() {
                self.be_offline(cpu);
            } else if let Some(job) = self.idles[cpu].pop() {
                self.run_job(cpu, me, job);
            } else if !self.run_a_task(cpu, me) {
                self.halt(cpu, rung);
            }
        }
        if state.is(Service::Online) {
            self.load_space(cpu, None);
            self.engine.offline();
        }
        state.set(Service::Stopped);
        thread::leave();
    }

    /// Out of service until somebody wants the CPU back.
    fn be_offline(&self, cpu: usize) {
        let state = &self.platform().cpus[cpu];
        self.load_space(cpu, None);
        self.engine.offline();
        state.set(Service::Offline);
        loop {
            let rung = state.bell.count();
            if !state.wants(Service::Offline) {
                break;
            }
            state.bell.sleep(rung, None);
        }
        // Late interrupts are harmless, late requests are not (I8).
        if self.engine.poll() {
            self.late_requests.fetch_add(1, Ordering::Relaxed);
        }
        if state.wants(Service::Online) {
            self.come_online(cpu);
        }
    }

    fn come_online(&self, cpu: usize) {
        // A CPU that starts has forgotten what was pending before.
        self.platform().cpus[cpu].take();
        self.engine.online();
        self.idles[cpu].open();
        self.platform().cpus[cpu].set(Service::Online);
    }

    fn run_job(&self, cpu: usize, me: usize, job: Job) {
        self.load_space(cpu, None);
        thread::preempt_disable();
        thread::irq_enable();
        job();
        thread::irq_save();
        // What it put off comes with the next look at the queue.
        thread::preempt_enable();
        self.tasks[me].set_space(None);
        self.load_space(cpu, None);
    }

    /// Gives the CPU to a task that is ready, and returns with it when none is; true if there was one.
    fn run_a_task(&self, cpu: usize, me: usize) -> bool {
        // Before the look at the queue: a thread that adds a task after it sees this, and rings.
        self.idles[cpu].set_halted(true);
        let Some(next) = self.queue().pop() else {
            return false;
        };
        self.idles[cpu].set_halted(false);
        self.hand_over(cpu, next);
        self.await_cpu(me);
        true
    }

    fn halt(&self, cpu: usize, rung: u32) {
        let platform = self.platform();
        // A lazy CPU's processor still follows its root, whenever it likes.
        platform.tlbs[cpu].guess(&platform.memory);
        thread::irq_enable();
        platform.cpus[cpu].bell.sleep(rung, NAP);
        thread::irq_save();
        self.idles[cpu].set_halted(false);
    }
}
