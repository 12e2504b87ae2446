//! The steal-time record of a virtual CPU (Linux, `Documentation/virt/kvm/x86/msr.rst`, "MSR_KVM_STEAL_TIME"): memory of the guest in which it finds
//! for how long it was ready and did not run, and that it does not run now. Who then asks for a flush there interrupts nobody: the virtual CPU
//! drops its translations before it runs again.
//!
//! The byte `preempted` is 0 from before an entry until the thread gives its CPU away or leaves RUN. It changes by exchanges, here and in the guest, so
//! either an initiator sees that the virtual CPU runs, and interrupts it, or the entry sees the request. A thread that loses its CPU at another place
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
    /// Where the VMM has it, as of the last look.
    place: Option<usize>,
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
        let Some(place) = self.look(memory) else {
            return false;
        };
        if let Some(since_ns) = self.since_ns.take() {
            self.stolen_ns += tsc::now_ns().saturating_sub(since_ns);
            // A record that cannot be written is the guest's mistake.
            let _ignored = self.tell(place);
        }
        #[cfg(feature = "breaks")]
        if crate::mm::invalidate::breaks::keeps_preempted() {
            return false;
        }
        let before = uaccess::exchange_user(place + PREEMPTED_AT, RUNS);
        before.is_ok_and(|before| before & FLUSH != 0)
    }

    /// It does not run: its thread goes back to the VMM. May sleep.
    fn leave(&mut self, memory: &GuestMemory) {
        if let Some(place) = self.look(memory) {
            let _ignored = uaccess::exchange_user(place + PREEMPTED_AT, PREEMPTED);
        }
    }

    /// It does not run: its thread is about to give its CPU away. Preemption is off.
    fn give_way(&mut self) {
        if let Some(place) = self.place {
            self.since_ns = Some(tsc::now_ns());
            // Where the page is not there now, the guest is interrupted as if it ran.
            let _ignored = uaccess::exchange_user_now(place + PREEMPTED_AT, PREEMPTED);
        }
    }

    fn look(&mut self, memory: &GuestMemory) -> Option<usize> {
        self.place = match self.register & ENABLED {
            0 => None,
            _ => memory.user_address_to_write((self.register & ADDRESS) as usize),
        };
        self.place
    }

    /// Writes the time, under a version that is odd meanwhile.
    fn tell(&mut self, place: usize) -> Result<(), Fault> {
        let odd = self.version.wrapping_add(1);
        self.version = odd.wrapping_add(1);
        uaccess::write_user(place + VERSION, odd)?;
        uaccess::write_user(place + STEAL, self.stolen_ns)?;
        uaccess::write_user(place + VERSION, self.version)
    }
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
        self.steal.leave(memory);
    }

    /// Before another thread gets this CPU. Preemption is off.
    pub fn say_it_gives_way(&mut self) {
        self.steal.give_way();
    }
}
