//! The steal-time record of a virtual CPU (Linux, `Documentation/virt/kvm/x86/msr.rst`, "MSR_KVM_STEAL_TIME"): memory of the guest in which it finds
//! for how long it was ready and did not run, and that it does not run now. Who then asks for a flush there interrupts nobody: the virtual CPU
//! drops its translations before it runs again.
//!
//! The byte `preempted` is 0 from before an entry until the thread gives its CPU away or leaves RUN. It changes by exchanges, here and in the guest, so
//! either an initiator sees that the virtual CPU runs, and interrupts it, or who changes the byte next sees the request, and has the translations dropped. A thread that loses its CPU at another place
//! in the kernel has 0 there meanwhile: its guest is interrupted as if it ran.

use super::vcpu::State;
use crate::arch::tsc;
use crate::arch::uaccess::{self, Fault};
use crate::mm::GuestMemory;

/// The register, and what of it is the address.
pub const STEAL_TIME: u32 = 0x4b56_4d03;
const ENABLED: u64 = 1 << 0;
const RESERVED: u64 = 0x3e;
const ADDRESS: u64 = !0x3f;

/// Offsets in the record.
const STEAL: usize = 0;
const VERSION: usize = 8;
const PREEMPTED_AT: usize = 16;

/// Values of `preempted`.
const RUNS: u8 = 0;
const PREEMPTED: u8 = 1 << 0;
const FLUSH: u8 = 1 << 1;

/// The record of one virtual CPU.
#[derive(Debug, Default)]
pub struct StealTime {
    register: u64,
    /// When the thread gave its CPU away.
    since_ns: Option<u64>,
    stolen_ns: u64,
    version: u32,
}

impl StealTime {
    /// The register.
    pub fn register(&self) -> u64 {
        self.register
    }

    /// Writes it; `false` for reserved bits.
    #[must_use]
    pub fn set(&mut self, value: u64) -> bool {
        let is_valid = value & RESERVED == 0;
        if is_valid {
            *self = Self {
                register: value,
                ..Self::default()
            };
        }
        is_valid
    }

    /// The virtual CPU is about to run; whether it has to drop its translations first. May sleep.
    fn enter(&mut self, memory: &GuestMemory) -> bool {
        let Some(record) = self.record() else {
            return false;
        };
        let since_ns = self.since_ns.take();
        if let Some(since_ns) = since_ns {
            self.stolen_ns += tsc::now_ns().saturating_sub(since_ns);
            self.version = self.version.wrapping_add(2);
        }
        let before = memory.write_with(record, |place| self.begin(place, since_ns.is_some()));
        // Where it cannot be written, nobody knows what was asked for.
        before.is_none_or(|before| before & FLUSH != 0)
    }

    /// Writes the time if that is due, and that it runs; what the byte was. Preemption is off.
    fn begin(&self, place: usize, tells: bool) -> Result<u8, Fault> {
        if tells {
            self.tell(place)?;
        }
        #[cfg(feature = "breaks")]
        if crate::mm::invalidate::breaks::keeps_preempted() {
            return Ok(PREEMPTED);
        }
        uaccess::exchange_user_now(place + PREEMPTED_AT, RUNS)
    }

    /// It does not run: its thread goes back to the VMM. Whether somebody had asked for a flush before, which the byte does not say any more. May sleep.
    fn leave(&self, memory: &GuestMemory) -> bool {
        let record = self.record();
        let before = record.and_then(|record| memory.write_with(record, say_preempted));
        before.is_some_and(|before| before & FLUSH != 0)
    }

    /// The same, but its thread is about to give its CPU away. Preemption is off.
    fn give_way(&mut self, memory: &GuestMemory) -> bool {
        let Some(record) = self.record() else {
            return false;
        };
        self.since_ns = Some(tsc::now_ns());
        // Where the page is not there now, the guest is interrupted as if it ran.
        let before = memory.write_now(record, say_preempted);
        before.is_some_and(|before| before & FLUSH != 0)
    }

    /// Where the guest has it.
    fn record(&self) -> Option<usize> {
        (self.register & ENABLED != 0).then_some((self.register & ADDRESS) as usize)
    }

    /// Writes the time, under a version that is odd meanwhile. Preemption is off.
    fn tell(&self, place: usize) -> Result<(), Fault> {
        uaccess::write_user_now(place + VERSION, self.version.wrapping_sub(1))?;
        uaccess::write_user_now(place + STEAL, self.stolen_ns)?;
        uaccess::write_user_now(place + VERSION, self.version)
    }
}

/// Says that it does not run; what the byte was. Preemption is off.
fn say_preempted(place: usize) -> Result<u8, Fault> {
    uaccess::exchange_user_now(place + PREEMPTED_AT, PREEMPTED)
}

impl State {
    /// Before each entry. May sleep.
    pub fn say_it_runs(&mut self, memory: &GuestMemory) {
        if self.steal.enter(memory) {
            self.engine.drop_translations();
        }
    }

    /// When RUN returns. May sleep.
    pub fn say_it_left(&mut self, memory: &GuestMemory) {
        if self.steal.leave(memory) {
            self.engine.drop_translations();
        }
    }

    /// Before another thread gets this CPU. Preemption is off.
    pub fn say_it_gives_way(&mut self, memory: &GuestMemory) {
        if self.steal.give_way(memory) {
            self.engine.drop_translations();
        }
    }
}
