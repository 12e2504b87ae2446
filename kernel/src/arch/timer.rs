//! The timer interrupt of each CPU: the regular tick, and alarms between ticks.
//!
//! The local APIC's timer counts down once to whatever comes first and is then set anew, so a sleeper is woken when its time
//! has come, not at the tick after. Ticks stay on their grid whatever alarms there are.

use core::sync::atomic::{AtomicU64, Ordering};

use shootdown::CpuId;
use shootdown_x86::apic::{TimerMode, TimerRate};
use shootdown_x86::irq;
use spin::Once;

use super::trap::vectors;
use super::{apic, percpu, tsc};
use crate::cpus::MAX_CPUS;

/// When the timer of a CPU is to fire, on the monotonic clock. Written by that CPU alone, interrupts off.
#[repr(align(128))]
struct Schedule {
    /// The next tick.
    tick_ns: AtomicU64,
    /// What the timer is set to; 0 while it does not run.
    set_ns: AtomicU64,
}

impl Schedule {
    fn is_overdue(&self) -> bool {
        let set_ns = self.set_ns.load(Ordering::Relaxed);
        set_ns != 0 && tsc::now_ns() > set_ns + LATE_TICKS * pace().1
    }
}

/// Ticks that have to be missed. A busy host may delay an interrupt by as much; then one more comes, which does no harm.
const LATE_TICKS: u64 = 3;

static SCHEDULES: [Schedule; MAX_CPUS] = [const {
    Schedule {
        tick_ns: AtomicU64::new(0),
        set_ns: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// Rate of the timers and time between ticks, the same on all CPUs.
static PACE: Once<(TimerRate, u64)> = Once::new();

/// Has the timers, which run at this rate, tick so many times a second. Boot CPU, once, before the first [`start`].
pub fn set_pace(rate: TimerRate, hz: u32) {
    PACE.call_once(|| (rate, 1_000_000_000 / u64::from(hz)));
}

/// Starts the ticks of this CPU. Interrupts off.
pub fn start() {
    let &(rate, period_ns) = pace();
    let schedule = own();
    let tick_ns = tsc::now_ns() + period_ns;
    schedule.tick_ns.store(tick_ns, Ordering::Relaxed);
    schedule.set_ns.store(tick_ns, Ordering::Relaxed);
    apic::local().start_timer(
        TimerMode::OneShot,
        apic::TIMER_DIVIDE,
        vectors::TIMER,
        rate.counts_for_ns(period_ns),
    );
}

/// Stops the timer of this CPU. Interrupts off.
pub fn stop() {
    apic::local().stop_timer();
    own().set_ns.store(0, Ordering::Relaxed);
}

/// Whether this CPU's timer should have fired several ticks ago, so that its interrupt got lost. Interrupts off.
pub fn is_overdue() -> bool {
    own().is_overdue()
}

/// The next CPU whose timer runs, if it is overdue. Interrupts off.
pub fn overdue_neighbour() -> Option<CpuId> {
    let (own, cpus) = (percpu::cpu_id().index(), apic::MAP.mapped());
    let mut others = (1..cpus).map(|step| (own + step) % cpus);
    let next = others.find(|&cpu| SCHEDULES[cpu].set_ns.load(Ordering::Relaxed) != 0)?;
    SCHEDULES[next]
        .is_overdue()
        .then(|| CpuId::new(next as u32))
}

/// Whether the interrupt that has just come is a tick, or stands for several. Interrupts off; [`set`] comes next.
pub fn take_tick() -> bool {
    let &(_, period_ns) = pace();
    let (schedule, now_ns) = (own(), tsc::now_ns());
    let due_ns = schedule.tick_ns.load(Ordering::Relaxed);
    if now_ns < due_ns {
        return false;
    }
    // Ticks that an emulator on a busy host has missed are not made up for.
    let missed = (now_ns - due_ns) / period_ns;
    let next_ns = due_ns + (missed + 1) * period_ns;
    schedule.tick_ns.store(next_ns, Ordering::Relaxed);
    true
}

/// Sets the timer, which has fired, to the alarm or the next tick, whichever is first. Interrupts off.
pub fn set(alarm_ns: u64) {
    let schedule = own();
    count_down_to(
        schedule,
        alarm_ns.min(schedule.tick_ns.load(Ordering::Relaxed)),
    );
}

/// Has the timer fire at the alarm if that comes before what it is set to. Interrupts off.
pub fn set_earlier(alarm_ns: u64) {
    let schedule = own();
    if alarm_ns < schedule.set_ns.load(Ordering::Relaxed) {
        count_down_to(schedule, alarm_ns);
    }
}

fn count_down_to(schedule: &Schedule, at_ns: u64) {
    let &(rate, _) = pace();
    schedule.set_ns.store(at_ns, Ordering::Relaxed);
    let span_ns = at_ns.saturating_sub(tsc::now_ns());
    // One count more, or it would fire too early by a fraction of one, find nothing due, and have to fire again.
    let counts = rate.counts_for_ns(span_ns).saturating_add(1);
    apic::local().restart_timer(counts);
}

fn own() -> &'static Schedule {
    debug_assert!(!irq::state().is_enabled());
    &SCHEDULES[percpu::cpu_id().index()]
}

fn pace() -> &'static (TimerRate, u64) {
    PACE.get().expect("set before any timer starts")
}
