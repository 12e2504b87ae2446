//! The torture: one worker a CPU, and the boot CPU leads.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use shootdown::{CpuId, CpuMask, Shootdown};
use shootdown_torture::{Context, Host, Memory, Plan, Torture, WorkerId};

use crate::arch;
use crate::console::say;
use crate::cpus::{self, MAX_CPUS};
use crate::memory::{self, NOWHERE, Spaces};
use crate::options::Options;
use crate::platform::{self, BREAKS, Board, Cpus, SHOOTDOWN};

const NS_PER_S: u64 = 1_000_000_000;
/// A worker without a step for so many seconds is stuck.
const STUCK_S: u64 = 30;

/// A timer interrupts each CPU so long after its last step.
const TICK_NS: u64 = 1_000_000;

static TORTURE: Torture<MAX_CPUS> = Torture::new();
/// How far the run is.
static PHASE: AtomicUsize = AtomicUsize::new(BEFORE);
const BEFORE: usize = 0;
const RUNNING: usize = 1;
const OVER: usize = 2;
/// When it ends.
static ENDS_NS: AtomicU64 = AtomicU64::new(0);
/// Handlers of timers that are in a step, or may begin one.
static TICKS: AtomicUsize = AtomicUsize::new(0);

/// What each CPU does. Its one task cannot leave it, so the CPU goes offline between two steps of that.
static STATES: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(IN) }; MAX_CPUS];
const IN: usize = 0;
const LEAVE: usize = 1;
const OUT: usize = 2;
const ENDED: usize = 3;
/// The space that each has left to go offline, [`NOWHERE`] for none.
static SPACES: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(NOWHERE) }; MAX_CPUS];

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

    /// It begins anew, in [`follow`].
    fn bring_online(&self, cpu: CpuId) {
        assert!(cpus::start(cpu.index()), "{cpu} does not come back");
    }
}

fn wait(until: impl Fn() -> bool) {
    while !until() {
        core::hint::spin_loop();
    }
}

/// Where somebody wants this CPU offline: goes, and does not return.
fn between_steps(me: usize) {
    if STATES[me].load(Ordering::Acquire) != LEAVE {
        return;
    }
    let space = memory::spaces().entered().unwrap_or(NOWHERE);
    SPACES[me].store(space, Ordering::Relaxed);
    memory::spaces().enter(None);
    // They stay off.
    let _ = arch::irq_save();
    memory::spaces().load_space(None);
    cpus::stop(|| STATES[me].store(OUT, Ordering::Release));
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

fn is_running() -> bool {
    PHASE.load(Ordering::Acquire) == RUNNING
}

/// Steps until the run is over.
fn steps(me: usize) {
    arch::set_timer(TICK_NS);
    while is_running() {
        TORTURE.step(&Machine, WorkerId::task(me), Context::Task);
        between_steps(me);
        if me == 0 && arch::now_ns() >= ENDS_NS.load(Ordering::Relaxed)
            || TORTURE.first_violation().is_some()
        {
            PHASE.store(OVER, Ordering::SeqCst);
        }
    }
    end_steps(me);
}

/// In the timer's handler: a step of the interrupt's own. Who spins with interrupts off holds no lock that this one takes: all are taken with interrupts off.
pub fn tick() {
    // ORDERING: counted / look whether it runs, against over / count in `lead`: either this sees that it is over, or that waits for this step.
    TICKS.fetch_add(1, Ordering::SeqCst);
    if PHASE.load(Ordering::SeqCst) == RUNNING {
        let me = CpuId::new(arch::this_cpu() as u32);
        TORTURE.step(&Machine, WorkerId::interrupts_of(me), Context::Interrupt);
        arch::set_timer(TICK_NS);
    }
    // ORDERING: publishes what the step did; pairs with the load in `lead`.
    TICKS.fetch_sub(1, Ordering::Release);
}

/// Runs it on the boot CPU; whether all promises were kept.
pub fn lead(options: &Options) -> bool {
    let seconds = options.number("seconds", 5);
    if let Some(name) = options.get("break") {
        let Some((_, mistake)) = BREAKS.iter().find(|(known, _)| *known == name) else {
            say!("ports: break={name} is not known");
            return false;
        };
        platform::break_by(*mistake);
    }
    TORTURE.begin(&Machine, &Plan::new(options.number("seed", 1)));
    let begun = arch::now_ns();
    ENDS_NS.store(begun + seconds * NS_PER_S, Ordering::Relaxed);
    PHASE.store(RUNNING, Ordering::Release);
    steps(0);
    let all_are = |states: &[usize]| {
        let count = cpus::count();
        (STATES[..count].iter()).all(|state| states.contains(&state.load(Ordering::Acquire)))
    };
    let given_up = arch::now_ns() + STUCK_S * NS_PER_S;
    let is_over = || all_are(&[ENDED, OUT]) && TICKS.load(Ordering::SeqCst) == 0;
    wait(|| is_over() || arch::now_ns() > given_up);
    if !is_over() {
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

/// Every other CPU, whenever it has come online.
pub fn follow() -> ! {
    let me = arch::this_cpu();
    if STATES[me]
        .compare_exchange(OUT, IN, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
    {
        let space = SPACES[me].load(Ordering::Relaxed);
        memory::spaces().enter((space != NOWHERE).then_some(space));
    }
    wait(|| {
        SHOOTDOWN.poll();
        PHASE.load(Ordering::Acquire) != BEFORE
    });
    steps(me);
    // What is left of the run may still ask this CPU.
    crate::wait_for_ever()
}
