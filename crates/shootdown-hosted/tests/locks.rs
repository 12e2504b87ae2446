//! Programs of adopters that hung while `poll`, the wait for a flush and the wait for its slot ran functions. Each must end.
//!
//! The CPUs are threads, the locks those of a kernel: interrupts are off while one is held, and a CPU that spins for one polls. In
//! each round a function that takes the lock is on its way to the CPU that holds it, before that CPU waits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use shootdown::calls::Wait;
use shootdown::{
    CpuId, CpuMask, FlushRange, FlushScope, FreedTables, PageSize, Platform, Shootdown,
};
use shootdown_hosted::{Config, Hosted, Machine};

const CPUS: usize = 3;
const ROUNDS: usize = if cfg!(tsan) { 500 } else { 2000 };
/// Longer than all rounds take on any host that can run them.
const PATIENCE: Duration = Duration::from_secs(60);
/// Flushes of one CPU that may be on their way at once.
const SLOTS: usize = 4;

type Engine = Shootdown<Hosted<CPUS>>;

/// A lock as kernels have it.
#[derive(Debug)]
struct IrqLock(AtomicBool);

impl IrqLock {
    /// Does `work` under the lock, interrupts off.
    fn with<R>(&self, engine: &Engine, work: impl FnOnce() -> R) -> R {
        let irq = engine.platform().irq_save();
        while self.0.swap(true, Ordering::Acquire) {
            engine.poll();
            engine.platform().relax();
        }
        let result = work();
        self.0.store(false, Ordering::Release);
        // SAFETY: 1. saved above.
        unsafe { engine.platform().irq_restore(irq) };
        result
    }
}

/// Where the CPUs of a program are: each counts its own steps, and waits for the others'.
#[derive(Debug)]
struct Steps([AtomicUsize; CPUS]);

impl Steps {
    const fn new() -> Self {
        Self([const { AtomicUsize::new(0) }; CPUS])
    }

    fn take(&self, cpu: usize) {
        self.0[cpu].fetch_add(1, Ordering::Release);
    }

    /// Waits until `cpu` has taken so many. With interrupts off it serves nothing.
    fn wait(&self, cpu: usize, steps: usize) {
        while self.0[cpu].load(Ordering::Acquire) < steps {
            std::thread::yield_now();
        }
    }
}

/// Runs `program` on every CPU of a machine, with the CPU's number; fails if it does not end. A machine that hangs is left to the end
/// of the process.
fn ends(program: impl Fn(&'static Engine, usize) + Send + Sync + 'static) {
    let (done, ended) = channel();
    std::thread::spawn(move || {
        let machine: &'static Machine<CPUS> =
            Box::leak(Box::new(Machine::start(&Config::new(CPUS)).unwrap()));
        let engine = machine.engine();
        let program = &program;
        std::thread::scope(|scope| {
            for cpu in 0..CPUS {
                let id = CpuId::new(cpu as u32);
                scope.spawn(move || machine.run_on(id, || program(engine, cpu)).unwrap());
            }
        });
        done.send(()).unwrap();
    });
    match ended.recv_timeout(PATIENCE) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("the CPUs wait for each other for ever"),
        Err(RecvTimeoutError::Disconnected) => panic!("a CPU panicked"),
    }
}

/// Sends CPU `to` a function that takes `lock`.
fn post_taker(engine: &'static Engine, to: usize, lock: &'static IrqLock) {
    let target = CpuMask::only(CpuId::new(to as u32));
    _ = engine.submit(&target, move |_| lock.with(engine, || ()), Wait::None);
}

fn page() -> FlushRange {
    FlushRange::pages(0x7000_0000, 1, PageSize::SIZE_4K)
}

/// CPU 1 holds `INNER` and spins for `OUTER`, which CPU 0 holds; a function on its way to CPU 1 wants `INNER`.
#[test]
fn a_spin_loop_that_polls_runs_no_function() {
    static OUTER: IrqLock = IrqLock(AtomicBool::new(false));
    static INNER: IrqLock = IrqLock(AtomicBool::new(false));
    static STEPS: Steps = Steps::new();
    ends(|engine, cpu| {
        for round in 1..=ROUNDS {
            match cpu {
                0 => {
                    OUTER.with(engine, || {
                        STEPS.take(0);
                        STEPS.wait(2, round);
                    });
                    STEPS.wait(1, 2 * round);
                }
                1 => {
                    INNER.with(engine, || {
                        STEPS.wait(0, round);
                        STEPS.take(1);
                        OUTER.with(engine, || ());
                    });
                    STEPS.take(1);
                }
                _ => {
                    STEPS.wait(1, 2 * round - 1);
                    post_taker(engine, 1, &INNER);
                    STEPS.take(2);
                }
            }
        }
    });
}

/// CPU 0 waits for a flush under `OUTER`; a function on its way to it wants that.
#[test]
fn the_wait_for_a_flush_runs_no_function() {
    static OUTER: IrqLock = IrqLock(AtomicBool::new(false));
    static STEPS: Steps = Steps::new();
    ends(|engine, cpu| {
        for round in 1..=ROUNDS {
            match cpu {
                0 => OUTER.with(engine, || {
                    STEPS.take(0);
                    STEPS.wait(1, round);
                    let ticket = engine.submit_flush(FlushScope::Kernel, page(), FreedTables::No);
                    ticket.wait();
                }),
                1 => {
                    STEPS.wait(0, round);
                    post_taker(engine, 0, &OUTER);
                    STEPS.take(1);
                }
                _ => {}
            }
        }
    });
}

/// CPU 0 submits flushes under `OUTER` until its slots are all busy, and one more; a function on its way to it wants that lock.
#[test]
fn the_wait_for_a_slot_of_a_flush_runs_no_function() {
    static OUTER: IrqLock = IrqLock(AtomicBool::new(false));
    static STEPS: Steps = Steps::new();
    let exhausted = |engine: &Engine| engine.watch().stats(CpuId::new(0)).slots_exhausted as usize;
    ends(move |engine, cpu| {
        for round in 1..=ROUNDS {
            match cpu {
                0 => {
                    // CPU 1 takes no interrupts.
                    STEPS.wait(1, round);
                    OUTER.with(engine, || {
                        STEPS.take(0);
                        STEPS.wait(2, round);
                        let submit =
                            |_| engine.submit_flush(FlushScope::Kernel, page(), FreedTables::No);
                        let tickets: [_; SLOTS] = std::array::from_fn(submit);
                        submit(SLOTS).wait();
                        tickets.into_iter().for_each(|ticket| ticket.wait());
                    });
                    STEPS.take(0);
                }
                1 => {
                    let irq = engine.platform().irq_save();
                    STEPS.take(1);
                    // Until CPU 0 has found no slot.
                    while exhausted(engine) < round {
                        std::thread::yield_now();
                    }
                    // SAFETY: 1. saved above.
                    unsafe { engine.platform().irq_restore(irq) };
                    STEPS.wait(0, 2 * round);
                }
                _ => {
                    STEPS.wait(0, 2 * round - 1);
                    post_taker(engine, 0, &OUTER);
                    STEPS.take(2);
                }
            }
        }
    });
}
