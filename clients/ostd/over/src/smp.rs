//! OSTD's calls of other CPUs, done by the engine. The script puts this file in the place of OSTD's own, and behind it that one's tests.

mod engine;

use alloc::{boxed::Box, collections::VecDeque};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shootdown::calls::{CallData, PostRefused};
use spin::Once;

pub(crate) use self::engine::{MAX_CPUS, Ostd, SHOOTDOWN};
use crate::{
    arch::{irq::HwCpuId, trap::TrapFrame},
    cpu::{CpuId, CpuSet, PinCurrentCpu},
    irq,
    sync::{LocalIrqDisabled, SpinLock},
    util::id_set::Id,
};

/// Has all CPUs of `targets` run `call_fn` in an interrupt, this one at once.
pub fn inter_processor_call(targets: &CpuSet, call_fn: fn()) -> PendingIpis {
    let sender = IPI_SENDER.get().unwrap();
    sender.inter_processor_call(targets, call_fn)
}

/// CPUs that have been called.
pub struct PendingIpis {
    cpus: CpuSet,
}

impl PendingIpis {
    pub(crate) fn new_empty() -> Self {
        Self {
            cpus: CpuSet::new_empty(),
        }
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        for cpu in other.cpus.iter() {
            self.cpus.add(cpu);
        }
    }

    /// Waits until none of them has anything to run any more.
    ///
    /// # Panics
    /// With interrupts off: functions of others for this CPU would not run.
    pub fn wait(&self) {
        assert!(
            crate::arch::irq::is_local_enabled(),
            "the other CPU may be waiting for this one: enable interrupts before `wait`"
        );
        for cpu in self.cpus.iter() {
            // ORDERING: Acquire: sees what the functions did; pairs with `run_queued`.
            while QUEUES[cpu.as_usize()].owed.load(Ordering::Acquire) > 0 {
                core::hint::spin_loop();
            }
        }
    }
}

/// That CPUs can be called.
pub(crate) struct IpiSender(());

/// Once they can.
pub(crate) static IPI_SENDER: Once<IpiSender> = Once::new();
/// Their controllers.
static HW_CPU_IDS: Once<Box<[HwCpuId]>> = Once::new();
/// CPUs that have come online.
static ONLINE: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// The functions for a CPU. OSTD's callers never wait, and there may be any number: the queue stays, the engine is asked to look at it.
struct Queue {
    functions: SpinLock<VecDeque<fn()>, LocalIrqDisabled>,
    /// How many are to be run, or run now.
    owed: AtomicUsize,
    call: CallData<fn(shootdown::CpuId)>,
}

static QUEUES: [Queue; MAX_CPUS] = [const {
    Queue {
        functions: SpinLock::new(VecDeque::new()),
        owed: AtomicUsize::new(0),
        call: CallData::new(run_queued),
    }
}; MAX_CPUS];

fn run_queued(cpu: shootdown::CpuId) {
    let queue = &QUEUES[cpu.index()];
    loop {
        let next = queue.functions.lock().pop_front();
        let Some(function) = next else {
            return;
        };
        function();
        // ORDERING: Release: publishes what it did; pairs with `wait`.
        queue.owed.fetch_sub(1, Ordering::Release);
    }
}

impl IpiSender {
    /// As the function of this name.
    pub(crate) fn inter_processor_call(&self, targets: &CpuSet, call_fn: fn()) -> PendingIpis {
        let irq_guard = irq::disable_local();
        let this_cpu = irq_guard.current_cpu();
        let mut pending = PendingIpis::new_empty();
        for cpu in targets.iter().filter(|cpu| *cpu != this_cpu) {
            let queue = &QUEUES[cpu.as_usize()];
            queue.owed.fetch_add(1, Ordering::Relaxed);
            queue.functions.lock().push_back(call_fn);
            match SHOOTDOWN.post_data(shootdown::CpuId::new(cpu.into()), &queue.call) {
                // Posted and not begun: it will find the function.
                Ok(()) | Err(PostRefused::Busy) => pending.cpus.add(cpu),
                Err(PostRefused::NotReady) => unreachable!("all CPUs are online"),
            }
        }
        if targets.contains(this_cpu) {
            call_fn();
        }
        pending
    }
}

/// The interrupt of calls; the first brings its CPU online.
///
/// # Safety
/// Only the handler of that interrupt calls it.
pub(crate) unsafe fn do_inter_processor_call(_: &TrapFrame) {
    come_online();
    SHOOTDOWN.handle_ipi();
}

/// Interrupts are off.
fn come_online() {
    let online = &ONLINE[CpuId::current_racy().as_usize()];
    if !online.load(Ordering::Relaxed) {
        SHOOTDOWN.online();
        // ORDERING: Release: published to `init`.
        online.store(true, Ordering::Release);
    }
}

/// Brings all CPUs online: the others have booted, and wait with interrupts on.
pub(super) fn init() {
    SHOOTDOWN.attach(shootdown::CpuId::new(0), &engine::MEMORY);
    HW_CPU_IDS.call_once(crate::boot::smp::construct_hw_cpu_id_mapping);
    let guard = irq::disable_local();
    come_online();
    let ids = HW_CPU_IDS.get().unwrap();
    for (cpu, id) in ids.iter().enumerate().skip(1) {
        crate::arch::irq::send_ipi(*id, &guard as _).expect("the controller sends");
        while !ONLINE[cpu].load(Ordering::Acquire) {
            SHOOTDOWN.poll();
        }
    }
    IPI_SENDER.call_once(|| IpiSender(()));
}
