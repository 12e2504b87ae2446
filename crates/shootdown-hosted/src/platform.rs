//! [`Hosted`]: the platform that the engine runs on, and the state that its CPUs share.

use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use shootdown::{
    Capacity, CpuId, Cpus, FlushRange, IpiRefused, LocalFlush, Platform,
    tags::{Asid, AsidSlot, TagEntries},
    watch::{Stall, TraceEvent},
};

use crate::config::Config;
use crate::cpu::{Cpu, IPI, RESCHEDULE};
use crate::memory::Memory;
use crate::queue::Queue;
use crate::thread;
use crate::tlb::{TAGS, Tlb};

/// Threads as CPUs. Made by [`Machine`](crate::Machine); its methods are for the engine.
///
/// Calls and flushes of the engine panic on threads that are none of the machine's CPUs.
#[derive(Debug)]
pub struct Hosted<const N: usize> {
    pub(crate) cpus: [Cpu; N],
    pub(crate) tlbs: [Tlb; N],
    pub(crate) slots: [[AsidSlot; TAGS]; N],
    pub(crate) memory: Memory,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) on_stall: OnceLock<fn(&Stall)>,
    hiccup_one_in: Option<u32>,
    started: Instant,
}

impl<const N: usize> Hosted<N> {
    pub(crate) fn new(memory: Memory, queue: Queue, config: &Config) -> Self {
        Self {
            cpus: [const { Cpu::new() }; N],
            tlbs: [const { Tlb::new() }; N],
            slots: [const { [const { AsidSlot::new() }; TAGS] }; N],
            memory,
            queue: Mutex::new(queue),
            on_stall: OnceLock::new(),
            hiccup_one_in: config.hiccup_one_in,
            started: Instant::now(),
        }
    }

    /// Where the engine looks away, time may pass.
    #[inline]
    fn maybe_hiccup(&self) -> bool {
        let comes = self.hiccup_one_in.is_some_and(thread::once_in);
        if comes {
            std::thread::sleep(Config::HICCUP);
        }
        comes
    }

    fn my_tlb(&self) -> &Tlb {
        &self.tlbs[thread::cpu()]
    }
}

// SAFETY: by number:
// 1. A thread's CPU changes only in its own `Machine::schedule`, which runs with interrupts off and is called from
//    `irq_enable` and the handler alone; it is an index of `cpus`.
// 2. The only other code of a thread is its signal handler, which returns at once while the flag is set; a CPU is one thread.
// 3. The software cache drops what the operation names; loads use nothing else.
// 4. Likewise for roots and tags, and only those of windows have entries for these; each engine has its own `Hosted`, each CPU its own slots, one for each tag of the cache.
// 5. `Cpu::interrupt` releases, `Cpu::take` acquires.
// 6. An interrupt is pending until the CPU's holder takes it, before the handler looks: at once by the signal, or as it enables
//    interrupts; a signal that the host's kernel has no room for is sent again.
// 7. Nothing is flushed remotely. 8. Tags are not split, and the slots are a field.
// 9. The only panic is that of a thread that is no CPU: it has lent nothing and owes nothing. 10. A hiccup is a sleep.
unsafe impl<const N: usize> Platform for Hosted<N>
where
    Cpus<N>: Capacity,
{
    type Cpus = Cpus<N>;
    const CONFIG: shootdown::Config = shootdown::Config::FULL;
    type IrqState = bool;

    #[inline]
    fn current_cpu(&self) -> CpuId {
        assert!(
            thread::is_of(core::ptr::from_ref(self).addr()),
            "this thread is no CPU of this machine: use Machine::run_on or run_tasks"
        );
        CpuId::new(thread::cpu() as u32)
    }

    #[inline]
    fn irq_save(&self) -> bool {
        let were_on = thread::irq_save();
        self.maybe_hiccup();
        were_on
    }

    #[inline]
    unsafe fn irq_restore(&self, were_on: bool) {
        if were_on {
            thread::irq_enable();
        }
    }

    fn preempt_disable(&self) {
        thread::preempt_disable();
    }

    unsafe fn preempt_enable(&self) {
        if thread::preempt_enable() {
            let were_on = thread::irq_save();
            self.cpus[thread::cpu()].interrupt_self(RESCHEDULE);
            // SAFETY: 1. saved above.
            unsafe { self.irq_restore(were_on) };
        }
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        self.maybe_hiccup();
        let cpu = &self.cpus[target.index()];
        if target.index() == thread::cpu() {
            cpu.interrupt_self(IPI);
            return Ok(());
        }
        cpu.interrupt(IPI)
    }

    fn local_flush(&self, operation: LocalFlush) {
        if self.maybe_hiccup() {
            // Until the very last moment the processor may follow what is still cached or linked.
            self.my_tlb().guess(&self.memory);
        }
        self.my_tlb().flush(operation);
        self.maybe_hiccup();
    }

    unsafe fn load_root(&self, root: u64) {
        self.my_tlb()
            .load_root(root, Asid::UNTAGGED, TagEntries::Drop);
    }

    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        &self.slots[cpu.index()]
    }

    const HAS_WINDOWS: bool = true;

    unsafe fn copy_shared_top(&self, shared: u64, private: u64, range: FlushRange) {
        if self.maybe_hiccup() {
            self.my_tlb().guess(&self.memory);
        }
        self.memory.copy_top(shared, private, range);
    }

    fn region_of(&self, address: usize) -> usize {
        Memory::slot_at(address)
    }

    unsafe fn clear_top(&self, private: u64, range: FlushRange) {
        self.memory.clear_top(private, range);
        if self.maybe_hiccup() {
            self.my_tlb().guess(&self.memory);
        }
    }

    unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        self.maybe_hiccup();
        self.my_tlb().load_root(root, asid, entries);
    }

    /// The engine is about to write: a good moment to be late.
    fn prefetch_write(&self, _: usize) {
        self.maybe_hiccup();
    }

    fn on_trace(&self, _: TraceEvent) {
        self.maybe_hiccup();
    }

    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// There may be more CPUs than cores: one that waits lets others run.
    fn relax(&self) {
        // Linux takes the rest of its slice from one that yields (commit 79104becf42b, `yield_task_fair`): on a busy host tasks that only yielded stood still for
        // twelve seconds and more. One that sleeps loses nothing.
        match thread::once_in(4) {
            true => std::thread::sleep(Duration::from_nanos(1)),
            false => std::thread::yield_now(),
        }
    }

    fn on_stall(&self, stall: &Stall) {
        if let Some(report) = self.on_stall.get() {
            report(stall);
        }
    }
}
