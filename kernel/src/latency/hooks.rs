//! What the switches of preemption and interrupts call, and the engine's waits.
//!
//! All run on the CPU that they are about. While tracing is off each is one load and one branch.

use core::panic::Location;

use super::control::Epoch;
use super::record::{self, Kind};
use crate::arch::percpu;

/// Interrupts have just gone off on this CPU.
#[inline]
#[track_caller]
pub fn irqs_off() {
    if let Some(epoch) = Epoch::now() {
        record::begin(Kind::IrqOff, epoch, Location::caller());
    }
}

/// Interrupts are about to go on.
#[inline]
pub fn irqs_on() {
    if let Some(epoch) = Epoch::now() {
        record::end(Kind::IrqOff, epoch);
    }
}

/// Preemption has just been disabled on this CPU, perhaps not for the first time.
#[inline]
#[track_caller]
pub fn preempt_off() {
    if let Some(epoch) = Epoch::now()
        && percpu::preempt_count() == 1
    {
        record::begin(Kind::PreemptOff, epoch, Location::caller());
    }
}

/// Preemption is about to be enabled once, perhaps not for the last time.
#[inline]
pub fn preempt_on() {
    if let Some(epoch) = Epoch::now()
        && percpu::preempt_count() == 1
    {
        record::end(Kind::PreemptOff, epoch);
    }
}

/// The engine begins to wait for other CPUs, perhaps with preemption on: then it is no wait that anybody suffers from.
#[inline]
#[track_caller]
pub fn wait_started() {
    if let Some(epoch) = Epoch::now() {
        record::begin_wait(epoch, Location::caller());
    }
}

/// It has what it waited for.
#[inline]
pub fn wait_finished() {
    if let Some(epoch) = Epoch::now() {
        record::end(Kind::Wait, epoch);
    }
}
