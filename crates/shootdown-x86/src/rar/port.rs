//! How requests reach the machine.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::apic::{self, ApicMap, IpiSender, Port, SendError};
use crate::msr::Msr;

/// How [`RarTable`](super::RarTable) reaches the machine. [`RarHardware`] is the real thing. Tests emulate, and have targets act between
/// any two accesses.
pub trait RarPort {
    /// Reads a model-specific register.
    ///
    /// # Safety
    ///
    /// 1. The register exists on this processor (else #GP).
    unsafe fn read_msr(&self, msr: Msr) -> u64;
    /// Writes a model-specific register.
    ///
    /// # Safety
    ///
    /// 1. The register exists on this processor, and `value` sets no reserved bit (else #GP).
    /// 2. The memory that the value names is a [`RarTable`](super::RarTable)'s, for as long as the processor uses it.
    unsafe fn write_msr(&self, msr: Msr, value: u64);
    /// Signals these CPUs (bit `i` of word `w` is CPU `64 * w + i`), which see all earlier stores.
    ///
    /// # Errors
    /// Some may have been signalled, or none.
    fn signal(&self, targets: &[u64]) -> Result<(), SendError>;
    /// Writes a word of a payload.
    #[inline]
    fn store_payload(&self, word: &AtomicU64, value: u64) {
        // ORDERING: Relaxed: the target's byte, which is written later, releases it.
        word.store(value, Ordering::Relaxed);
    }
    /// Writes a byte of an action vector.
    #[inline]
    fn store_action(&self, byte: &AtomicU8, value: u8) {
        // ORDERING: Release: a target that finds the byte finds the payload, and the page tables as they were changed.
        byte.store(value, Ordering::Release);
    }
    /// Reads a byte of an action vector.
    #[inline]
    fn load_action(&self, byte: &AtomicU8) -> u8 {
        // ORDERING: Acquire: what comes after (a freed frame, a new payload) comes after the flush.
        byte.load(Ordering::Acquire)
    }
}

/// The processor itself, as one CPU sees it.
#[derive(Clone, Copy, Debug)]
pub struct RarHardware<'a, const N: usize, P: Port = apic::Hardware> {
    sender: IpiSender<P>,
    map: &'a ApicMap<N>,
    initiator: usize,
}

impl<'a, const N: usize, P: Port> RarHardware<'a, N, P> {
    /// Through the local APIC of the CPU with index `initiator` in `map`.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on the CPU that uses the value.
    /// 2. Whoever is [online](ApicMap::set_online) in `map` has [started](super::RarTable::start), and the
    ///    [shorthand](ApicMap::permit_shorthand) is permitted only if all CPUs have: the delivery mode is reserved elsewhere.
    pub const unsafe fn new(sender: IpiSender<P>, map: &'a ApicMap<N>, initiator: usize) -> Self {
        Self {
            sender,
            map,
            initiator,
        }
    }
}

impl<const N: usize, P: Port> RarPort for RarHardware<'_, N, P> {
    #[inline]
    unsafe fn read_msr(&self, msr: Msr) -> u64 {
        // SAFETY: 1. duty 1. 2. these registers are only read.
        unsafe { self.sender.port().read_msr(msr) }
    }

    #[inline]
    unsafe fn write_msr(&self, msr: Msr, value: u64) {
        // SAFETY: 1. duty 1. 2. duty 2: the processor writes to atomics only.
        unsafe { self.sender.port().write_msr(msr, value) }
    }

    #[inline]
    fn signal(&self, targets: &[u64]) -> Result<(), SendError> {
        // SAFETY: 1. duty 2 of `new`.
        unsafe {
            self.sender
                .send_remote_action(self.map, self.initiator, targets)
        }
    }
}
