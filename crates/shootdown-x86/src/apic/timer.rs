//! The timer of the local APIC.
//!
//! SDM vol. 3A, "APIC Timer": a counter that runs at the bus or crystal clock over a divisor, once
//! or again and again, or a deadline in time-stamp counts.

use super::icr::Vector;
use super::local::{LVT_MASKED, LocalApic};
use super::mode::ApicMode;
use super::port::Port;
use super::register::Register;
use crate::msr::Msr;

const NS_PER_S: u128 = 1_000_000_000;
const LVT_PERIODIC: u32 = 0b01 << 17;
const LVT_TSC_DEADLINE: u32 = 0b10 << 17;

/// What the timer does when it has counted down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerMode {
    /// Fires once.
    OneShot,
    /// Fires, reloads, and counts again.
    Periodic,
}

/// By how much the timer's clock is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the number is the divisor")]
pub enum TimerDivide {
    By1,
    By2,
    By4,
    By8,
    By16,
    By32,
    By64,
    By128,
}

impl TimerDivide {
    /// Bits 0, 1 and 3 of the divide configuration register.
    const fn bits(self) -> u32 {
        match self {
            Self::By2 => 0b0000,
            Self::By4 => 0b0001,
            Self::By8 => 0b0010,
            Self::By16 => 0b0011,
            Self::By32 => 0b1000,
            Self::By64 => 0b1001,
            Self::By128 => 0b1010,
            Self::By1 => 0b1011,
        }
    }
}

/// Timer counts per second, found by calibration against another clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerRate {
    counts_per_s: u64,
}

impl TimerRate {
    /// The rate, when the timer counted `counts` in `elapsed_ns`. None when either is 0.
    pub const fn from_sample(counts: u32, elapsed_ns: u64) -> Option<Self> {
        if counts == 0 || elapsed_ns == 0 {
            return None;
        }
        let rate = counts as u128 * NS_PER_S / elapsed_ns as u128;
        if rate == 0 {
            None
        } else {
            Some(Self {
                counts_per_s: rate as u64,
            })
        }
    }

    /// Counts per second.
    pub const fn counts_per_s(self) -> u64 {
        self.counts_per_s
    }

    /// The initial count for a time span: at least 1, because 0 stops the timer, and at most what
    /// the register holds.
    pub const fn counts_for_ns(self, span_ns: u64) -> u32 {
        let counts = self.counts_per_s as u128 * span_ns as u128 / NS_PER_S;
        if counts == 0 {
            1
        } else if counts > u32::MAX as u128 {
            u32::MAX
        } else {
            counts as u32
        }
    }
}

impl<P: Port> LocalApic<P> {
    /// Starts the counter of this CPU; `vector` is raised each time it reaches 0.
    ///
    /// Writing the initial count starts it, so that comes last. A count of 0 stops it.
    pub fn start_timer(&self, mode: TimerMode, divide: TimerDivide, vector: Vector, count: u32) {
        let mode = match mode {
            TimerMode::OneShot => 0,
            TimerMode::Periodic => LVT_PERIODIC,
        };
        self.write(Register::TimerDivide, divide.bits());
        self.write(Register::LvtTimer, mode | u32::from(vector.as_u8()));
        self.write(Register::TimerInitialCount, count);
    }

    /// Counts down from `count` again, in the mode and with the vector that [`LocalApic::start_timer`] has set: one
    /// register write. Where it was before does not matter.
    pub fn restart_timer(&self, count: u32) {
        self.write(Register::TimerInitialCount, count);
    }

    /// Starts the counter at its highest value with its interrupt masked, for calibration: read
    /// [`LocalApic::timer_elapsed`] some known time later.
    pub fn start_calibration(&self, divide: TimerDivide) {
        self.write(Register::TimerDivide, divide.bits());
        self.write(Register::LvtTimer, LVT_MASKED);
        self.write(Register::TimerInitialCount, u32::MAX);
    }

    /// Counts since [`LocalApic::start_calibration`].
    pub fn timer_elapsed(&self) -> u32 {
        u32::MAX - self.timer_remaining()
    }

    /// The current count.
    pub fn timer_remaining(&self) -> u32 {
        self.read(Register::TimerCurrentCount)
    }

    /// Masks and stops the timer, in any mode. An interrupt that it raised before may still arrive.
    pub fn stop_timer(&self) {
        self.write(Register::LvtTimer, LVT_MASKED);
        self.write(Register::TimerInitialCount, 0);
    }

    /// Prepares deadline mode on this CPU: then each [`LocalApic::set_deadline`] fires once.
    ///
    /// The fence keeps a following WRMSR of the deadline behind the memory-mapped write of the
    /// mode, without which the deadline would be ignored (SDM vol. 3A, "TSC-Deadline Mode").
    ///
    /// # Safety
    ///
    /// 1. This CPU [has deadlines](crate::Features::has_tsc_deadline) (else #GP in x2APIC mode).
    pub unsafe fn enable_deadline(&self, vector: Vector) {
        self.write(
            Register::LvtTimer,
            LVT_TSC_DEADLINE | u32::from(vector.as_u8()),
        );
        if self.mode == ApicMode::XApic {
            self.port.fence();
        }
    }

    /// Fires when the time-stamp counter reaches `tsc`, at once when it has; 0 disarms.
    /// Ignored unless [`LocalApic::enable_deadline`] came before.
    ///
    /// # Safety
    ///
    /// 1. This CPU [has deadlines](crate::Features::has_tsc_deadline) (else #GP).
    pub unsafe fn set_deadline(&self, tsc: u64) {
        // SAFETY: 1. the caller's; it has no reserved bits. 2. all it does is raise the timer's vector.
        unsafe { self.port.write_msr(Msr::TSC_DEADLINE, tsc) };
    }
}
