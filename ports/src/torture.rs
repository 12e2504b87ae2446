//! The torture: one worker a CPU, and the boot CPU leads.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use shootdown::{CpuId, CpuMask, Shootdown};
use shootdown_torture::{Context, Host, Memory, Plan, Torture, WorkerId};

use crate::arch;
use crate::console::say;
use crate::cpus::{self, MAX_CPUS};
use crate::memory::{self, Spaces};
use crate::options::Options;
use crate::platform::{self, Board, Break, Cpus, SHOOTDOWN};

const NS_PER_S: u64 = 1_000_000_000;
/// A worker without a step for so many seconds is stuck.
const STUCK_S: u64 = 30;

static TORTURE: Torture<MAX_CPUS> = Torture::new();
static IS_RUNNING: AtomicBool = AtomicBool::new(false);
/// When the run ends, by the clock of this CPU's kind.
static ENDS_NS: AtomicU64 = AtomicU64::new(0);

/// Where the torture is told that a CPU has one task, which cannot leave it: what the CPU does.
static STATES: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(IN) }; MAX_CPUS];
const IN: usize = 0;
const LEAVE: usize = 1;
const OUT: usize = 2;
const RETURN: usize = 3;
const ENDED: usize = 4;

/// The running machine.
struct Machine;

impl Host<MAX_CPUS> for Machine {
    type Platform = Board;
    type Memory = Spaces;

    fn engine(&self) -> &Shootdown<Board> {
        &SHOOTDOWN
    }

    fn memory(&self) -> &Spaces {
        memory::spaces()
    }

    fn possible_cpus(&self) -> CpuMask<Cpus> {
        CpuMask::first(cpus::count())
    }

    /// The boot CPU stays, and ends the run: nobody leaves from then on.
    fn take_offline(&self, cpu: CpuId) -> bool {
        let word = &STATES[cpu.index()];
        let may = cpu.index() != arch::this_cpu()
            && cpu.index() != 0
            && STATES[0].load(Ordering::Acquire) != ENDED;
        let asked = may
            && word
                .compare_exchange(IN, LEAVE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        wait(|| !asked || word.load(Ordering::Acquire) == OUT);
        asked
    }

    fn bring_online(&self, cpu: CpuId) {
        let word = &STATES[cpu.index()];
        word.store(RETURN, Ordering::Release);
        wait(|| matches!(word.load(Ordering::Acquire), IN | ENDED));
    }
}

fn wait(until: impl Fn() -> bool) {
    while !until() {
        core::hint::spin_loop();
    }
}

/// Where somebody wants this CPU offline: goes, and comes back when it is told to.
fn between_steps(me: usize) {
    let state = &STATES[me];
    if state.load(Ordering::Acquire) != LEAVE {
        return;
    }
    let space = memory::spaces().entered();
    memory::spaces().enter(None);
    let irqs = arch::irq_save();
    memory::spaces().load_space(None);
    SHOOTDOWN.offline();
    state.store(OUT, Ordering::Release);
    wait(|| state.load(Ordering::Acquire) == RETURN);
    SHOOTDOWN.online();
    state.store(IN, Ordering::Release);
    arch::irq_restore(irqs);
    memory::spaces().enter(space);
}

fn end_steps(me: usize) {
    memory::spaces().enter(None);
    let end = || {
        STATES[me]
            .compare_exchange(IN, ENDED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    while !end() {
        between_steps(me);
    }
}

/// Steps until the run is over.
fn steps(me: usize) {
    while IS_RUNNING.load(Ordering::Acquire) {
        TORTURE.step(&Machine, WorkerId::task(me), Context::Task);
        between_steps(me);
        if me == 0 && arch::now_ns() >= ENDS_NS.load(Ordering::Relaxed)
            || TORTURE.first_violation().is_some()
        {
            IS_RUNNING.store(false, Ordering::Release);
        }
    }
    end_steps(me);
}

/// Runs it on the boot CPU; whether all promises were kept.
pub fn lead(options: &Options) -> bool {
    let seconds = options.number("seconds", 5);
    match options.get("break") {
        None => {}
        Some("no-flush") => platform::break_by(Break::NoFlush),
        Some(name) => {
            say!("ports: break={name} is not known: no-flush");
            return false;
        }
    }
    TORTURE.begin(&Machine, &Plan::new(options.number("seed", 1)));
    let begun = arch::now_ns();
    ENDS_NS.store(begun + seconds * NS_PER_S, Ordering::Relaxed);
    IS_RUNNING.store(true, Ordering::Release);
    steps(0);
    let all_are = |states: &[usize]| {
        let count = cpus::count();
        (STATES[..count].iter()).all(|state| states.contains(&state.load(Ordering::Acquire)))
    };
    let given_up = arch::now_ns() + STUCK_S * NS_PER_S;
    wait(|| all_are(&[ENDED, OUT]) || arch::now_ns() > given_up);
    if !all_are(&[ENDED, OUT]) {
        say!("ports: a worker is stuck");
        return false;
    }
    // One that was out ends when it is back.
    TORTURE.bring_all_online(&Machine);
    wait(|| all_are(&[ENDED]));
    TORTURE.finish(&Machine);
    let summary = TORTURE.summary(&Machine, arch::now_ns() - begun);
    say!("{}", summary.protocol());
    if let Some(refills) = arch::refills() {
        say!("ports: refills={refills}");
    }
    summary.violations() == 0
}

/// Every other CPU.
pub fn follow() -> ! {
    let me = arch::this_cpu();
    wait(|| {
        SHOOTDOWN.poll();
        IS_RUNNING.load(Ordering::Acquire)
    });
    steps(me);
    // What is left of the run may still ask this CPU.
    loop {
        arch::wait_for_interrupt();
    }
}
