//! CPUs that stop for good: for one that panics, and for one that goes on, declares them dead and has them come back.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use shootdown::calls::{NotReady, Wait};
use shootdown::{CallTargets, CpuId, CpuMask, FlushRange, FlushScope, FreedTables, PageSize};

use super::GAINING;
use crate::arch::{apic, percpu, svm};
use crate::boot::BootInfo;
use crate::cpus::Cpus;
use crate::panic;
use crate::platform::SHOOTDOWN;
use crate::start;

fn others() -> CpuMask<Cpus> {
    let mut others = SHOOTDOWN.ready_cpus();
    others.remove(percpu::cpu_id());
    others
}

/// The last CPU that is not this one.
fn another() -> Option<CpuId> {
    others().iter().last()
}

/// Calls, posts and flushes end, and have reached so many CPUs.
fn all_answer(cpus: usize) {
    static POSTED: AtomicU32 = AtomicU32::new(0);
    let called = AtomicU32::new(0);
    let count = |_: CpuId| _ = called.fetch_add(1, Ordering::Relaxed);
    let reached = SHOOTDOWN.call_many(CallTargets::Online, &count);
    assert_eq!((reached.len(), called.into_inner()), (cpus, cpus as u32));
    POSTED.store(0, Ordering::Relaxed);
    let count = |_: CpuId| _ = POSTED.fetch_add(1, Ordering::Relaxed);
    SHOOTDOWN
        .submit(CallTargets::Online, count, Wait::Done)
        .wait();
    assert_eq!(POSTED.load(Ordering::Relaxed), cpus as u32);
    let page = FlushRange::pages((&raw const GAINING).addr(), 1, PageSize::SIZE_4K);
    SHOOTDOWN.flush(FlushScope::Kernel, page, FreedTables::No);
    SHOOTDOWN.control().kick(&others()).wait();
}

/// One CPU stops in the middle of a function, while a call and a flush wait for it. It is declared dead, done without, and comes back.
pub fn a_stopped_cpu_is_done_without(boot: &BootInfo) {
    static IS_INSIDE: AtomicBool = AtomicBool::new(false);
    let Some(victim) = another() else {
        return;
    };
    let stay = |_: CpuId| {
        IS_INSIDE.store(true, Ordering::Relaxed);
        loop {
            core::hint::spin_loop();
        }
    };
    let victims: CpuMask<Cpus> = [victim].into_iter().collect();
    let first = SHOOTDOWN.submit(&victims, stay, Wait::Done);
    while !IS_INSIDE.load(Ordering::Relaxed) {
        core::hint::spin_loop();
    }
    let second = SHOOTDOWN.submit(CallTargets::Online, |_| (), Wait::Done);
    let page = FlushRange::pages((&raw const GAINING).addr(), 1, PageSize::SIZE_4K);
    let flush = SHOOTDOWN.submit_flush(FlushScope::Kernel, page, FreedTables::No);
    let panic::Stopped { halted, missing } = panic::stop(|cpu| cpu == victim);
    assert_eq!((halted, missing), (victims, CpuMask::EMPTY));
    apic::MAP.set_offline(victim.index());
    // SAFETY: 1. it has said so, and only a reset makes it go on. 2. it has loaded the kernel's root first. 3. stacks of CPUs stay, and its threads have none.
    let unserved = unsafe { SHOOTDOWN.control().declare_dead(&victims) };
    assert_eq!((unserved.calls, unserved.data), (2, 0));
    first.wait();
    second.wait();
    flush.wait();
    assert!(!SHOOTDOWN.ready_cpus().contains(victim));
    assert_eq!(
        SHOOTDOWN.call_one(victim, &|_| ()),
        Err(NotReady { cpu: victim })
    );
    all_answer(boot.cpus - 1);
    assert!(SHOOTDOWN.control().is_settled(victim));
    let index = victim.index();
    // SAFETY: 1. it is another CPU than the boot CPU, which runs this, and has stopped.
    unsafe { start::start(index..index + 1) };
    all_answer(boot.cpus);
}

/// All CPUs panic at once.
pub fn panic_everywhere() {
    static ARRIVED: AtomicU32 = AtomicU32::new(0);
    let all = SHOOTDOWN.ready_cpus().len() as u32;
    let panic = move |cpu: CpuId| {
        ARRIVED.fetch_add(1, Ordering::Relaxed);
        while ARRIVED.load(Ordering::Relaxed) < all {
            core::hint::spin_loop();
        }
        panic!("asked for on {cpu}");
    };
    _ = SHOOTDOWN.submit(&others(), panic, Wait::None);
    panic(percpu::cpu_id());
}

/// The next NMI panics.
static PANICS: AtomicBool = AtomicBool::new(false);

/// NMI handler.
pub fn on_nmi() {
    if PANICS.swap(false, Ordering::Relaxed) {
        panic!("asked for in an NMI on {}", percpu::cpu_id());
    }
}

/// Another CPU panics in its NMI handler.
pub fn panic_in_an_nmi() {
    let another = another().expect("two CPUs");
    PANICS.store(true, Ordering::Relaxed);
    assert!(apic::send_nmi(another).is_ok());
    loop {
        core::hint::spin_loop();
    }
}

/// This CPU panics while another one hears no NMI.
pub fn panic_beside_the_deaf() {
    static IS_DEAF: AtomicBool = AtomicBool::new(false);
    let deafen = |cpu: CpuId| {
        assert!(svm::turn_on(cpu).is_some(), "there is no SVM");
        // SAFETY: SVM is on; interrupts are off, and only the end of the machine ends this.
        unsafe { asm!("clgi", options(nostack)) };
        IS_DEAF.store(true, Ordering::Relaxed);
        loop {
            core::hint::spin_loop();
        }
    };
    let another: CpuMask<Cpus> = another().into_iter().collect();
    _ = SHOOTDOWN.submit(&another, deafen, Wait::None);
    while !IS_DEAF.load(Ordering::Relaxed) {
        core::hint::spin_loop();
    }
    panic!("asked for");
}
