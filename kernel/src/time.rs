//! Clocks: nanoseconds since kernel entry (TSC) and wall-clock time (CMOS clock read once at boot).
//!
//! The rate of the TSC, and that of the local APIC's timer, come from the one clock with a known
//! rate that every PC has: the 8254 timer at 1.193182 MHz (Intel 8254 data sheet).

use core::sync::atomic::{AtomicU64, Ordering};

use shootdown_x86::apic::TimerRate;
use x86_64::instructions::port::PortWriteOnly;

use crate::arch::{apic, tsc};
use crate::boot::fail::boot_fail;
use crate::irq;

mod pit;
mod port;
mod rtc;

pub use crate::arch::tsc::{now_ns, spin_ns};

const NS_PER_S: u64 = 1_000_000_000;
/// How long the clocks are compared.
const CALIBRATION_COUNTS: u16 = pit::counts_for_ms(10);
/// A comparison that the host interrupted for longer than the 8254 can count is repeated: on a busy host often.
const CALIBRATION_TRIES: usize = 500;
/// Wall-clock time at kernel entry.
static ENTRY_REALTIME_NS: AtomicU64 = AtomicU64::new(0);

/// What [`calibrate`] found.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// TSC counts a second.
    pub tsc_hz: u64,
    /// Rate of the local APIC's timer under [`apic::TIMER_DIVIDE`].
    pub apic_timer: TimerRate,
}

/// Nanoseconds since 1970-01-01 UTC. Any context.
pub fn realtime_ns() -> u64 {
    ENTRY_REALTIME_NS.load(Ordering::Relaxed) + now_ns()
}

/// Measures the clocks, sets this module's, and stops the legacy interrupt controllers. Boot CPU,
/// interrupts off, local APIC on.
pub fn calibrate() -> Clocks {
    debug_assert!(!irq::enabled());
    mask_legacy_interrupts();
    for _ in 0..CALIBRATION_TRIES {
        if let Some(clocks) = try_calibrate() {
            tsc::set_rate(clocks.tsc_hz);
            let now = rtc::read_ns();
            ENTRY_REALTIME_NS.store(now.saturating_sub(now_ns()), Ordering::Relaxed);
            return clocks;
        }
    }
    boot_fail!(
        "the host stopped this machine in each of {CALIBRATION_TRIES} comparisons of its clocks; give it more of a processor"
    )
}

/// One comparison; None if the host interrupted it. Ends the boot where the 8254 does not count.
fn try_calibrate() -> Option<Clocks> {
    pit::start();
    apic::local().start_calibration(apic::TIMER_DIVIDE);
    let first = Sample::take();
    let mut polls = 0u32;
    while first.pit.wrapping_sub(pit::read()) < CALIBRATION_COUNTS {
        polls += 1;
        if polls == pit::POLL_LIMIT {
            boot_fail!(
                "the 8254 timer does not count, so no clock can be trusted; use a machine with one (-machine pc or q35)"
            );
        }
    }
    let last = Sample::take();
    apic::local().stop_timer();
    if pit::expired() {
        return None;
    }
    let counts = u64::from(first.pit.wrapping_sub(last.pit));
    let elapsed_ns = counts * NS_PER_S / pit::HZ;
    let tsc_hz = (last.tsc - first.tsc) * pit::HZ / counts;
    let timer = TimerRate::from_sample(last.apic - first.apic, elapsed_ns)?;
    (tsc_hz > 0).then_some(Clocks {
        tsc_hz,
        apic_timer: timer,
    })
}

/// The three clocks at one moment.
struct Sample {
    tsc: u64,
    pit: u16,
    apic: u32,
}

impl Sample {
    /// The host may stop this CPU between two reads, so take the tightest of several.
    fn take() -> Self {
        const TRIES: usize = 8;
        let once = |_| {
            let before = tsc::read();
            let pit = pit::read();
            let apic = apic::local().timer_elapsed();
            let after = tsc::read();
            let sample = Self {
                tsc: before + (after - before) / 2,
                pit,
                apic,
            };
            (after - before, sample)
        };
        let tightest = (0..TRIES).map(once).min_by_key(|&(width, _)| width);
        tightest.expect("TRIES is not 0").1
    }
}

/// Both 8259s: all lines masked. Nothing but the local APIC interrupts this kernel.
fn mask_legacy_interrupts() {
    for port in [0x21u16, 0xa1] {
        // SAFETY: the mask registers; all ones is "no interrupts".
        unsafe { PortWriteOnly::new(port).write(0xffu8) };
    }
}
