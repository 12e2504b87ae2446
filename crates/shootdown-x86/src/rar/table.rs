//! The table of payloads, whose slots are given out without a lock, and the CPUs' action vectors.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::payload::Payload;
use super::port::RarPort;
use super::slots::Slots;
use crate::apic::SendError;
use crate::msr::Msr;

/// Payloads in a table.
const SLOTS: usize = 64;
const WORD_BITS: usize = u64::BITS as usize;

const SUCCESS: u8 = 0x00;
const PENDING: u8 = 0x01;
const FAILURE: u8 = 0x80;

/// IA32_CORE_CAPABILITIES: the processor has remote actions.
const HAS_RAR: u64 = 1 << 1;
/// RAR_CTRL.
const ENABLE: u64 = 1 << 31;
/// RAR_CTRL: also with interrupts off.
const IGNORE_IF: u64 = 1 << 30;
/// RAR_INFO: the number of the last payload, from this bit on.
const LAST_SHIFT: u32 = 32;
const LAST_MASK: u64 = 0x3f;
/// Where action vectors are in the table.
const VECTORS: u64 = 4096;
const VECTOR_BYTES: u64 = 64;

/// A CPU's bytes, one a payload.
#[derive(Debug)]
#[repr(C, align(64))]
struct ActionVector([AtomicU8; SLOTS]);

impl ActionVector {
    const fn new() -> Self {
        Self([const { AtomicU8::new(SUCCESS) }; SLOTS])
    }
}

/// Payloads for all CPUs, and the action vectors of up to `64 * WORDS`.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct RarTable<const WORDS: usize> {
    payloads: [[AtomicU64; Payload::WORDS]; SLOTS],
    vectors: [[ActionVector; WORD_BITS]; WORDS],
    /// Whom the request in a slot is for. Written by its owner.
    targets: [[AtomicU64; WORDS]; SLOTS],
    slots: Slots,
}

const _: () = assert!(core::mem::offset_of!(RarTable<1>, vectors) as u64 == VECTORS);
const _: () = assert!(size_of::<ActionVector>() as u64 == VECTOR_BYTES);

/// What a target has done of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// All of it.
    Done,
    /// Not yet all of it.
    Pending,
    /// It will not, or was never asked: an interrupt must.
    Failed,
}

/// Nobody may rely on the request; an interrupt must.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BeginError {
    /// All slots are in use.
    NoSlot,
    /// The table has no vector for one of the targets.
    TooMany,
    /// Some targets may not have been signalled.
    Send(SendError),
}

impl<const WORDS: usize> RarTable<WORDS> {
    /// An empty table, in a `static`.
    pub const fn new() -> Self {
        Self {
            payloads: [const { [const { AtomicU64::new(0) }; Payload::WORDS] }; SLOTS],
            vectors: [const { [const { ActionVector::new() }; WORD_BITS] }; WORDS],
            targets: [const { [const { AtomicU64::new(0) }; WORDS] }; SLOTS],
            slots: Slots::new(),
        }
    }

    /// Whether this CPU has remote actions.
    ///
    /// # Safety
    ///
    /// 1. It has IA32_CORE_CAPABILITIES: CPUID leaf 7, EDX bit 30 (else #GP).
    pub unsafe fn is_supported(port: &impl RarPort) -> bool {
        // SAFETY: 1. duty 1.
        unsafe { port.read_msr(Msr::CORE_CAPABILITIES) & HAS_RAR != 0 }
    }

    /// Has this CPU, `cpu`, carry out what it finds in the table from now on, with interrupts off too.
    ///
    /// # Safety
    ///
    /// 1. This CPU has remote actions ([`is_supported`](Self::is_supported)).
    /// 2. The table is at the physical address `physical`, in one piece.
    /// 3. No flight names `cpu` as a target until this has returned: what is pending for it is forgotten.
    ///
    /// # Panics
    ///
    /// If there is no vector for `cpu`.
    pub unsafe fn start(&'static self, port: &impl RarPort, cpu: usize, physical: u64) {
        let vector = self.vector(cpu);
        for byte in &vector.0 {
            port.store_action(byte, SUCCESS);
        }
        // SAFETY: 1. duty 1.
        let last = unsafe { port.read_msr(Msr::RAR_INFO) } >> LAST_SHIFT & LAST_MASK;
        // Requests that name this CPU come after this (duty 3).
        self.slots.end_at(last as u32);
        let at = physical + VECTORS + VECTOR_BYTES * cpu as u64;
        for (msr, value) in [
            (Msr::RAR_ACTION_VECTOR, at),
            (Msr::RAR_PAYLOAD_BASE, physical),
            (Msr::RAR_CONTROL, ENABLE | IGNORE_IF),
        ] {
            // SAFETY: 1. duty 1. 2. duty 2: of a table that is there for ever.
            unsafe { port.write_msr(msr, value) };
        }
    }

    /// Has this CPU leave the table alone, before it goes offline.
    ///
    /// # Safety
    ///
    /// 1. As for [`start`](Self::start).
    pub unsafe fn stop(port: &impl RarPort) {
        // SAFETY: 1. duty 1. 2. it names none.
        unsafe { port.write_msr(Msr::RAR_CONTROL, 0) };
    }

    /// Asks the targets (bit `i` of word `w` is CPU `64 * w + i`), and does not wait. The page tables were changed before. Any context.
    ///
    /// # Errors
    /// [`BeginError`]; where it was not the signal that failed, nobody was asked.
    pub fn begin(
        &self,
        port: &impl RarPort,
        targets: &[u64],
        payload: Payload,
    ) -> Result<Flight<'_, WORDS>, BeginError> {
        if cpus(targets.iter().copied()).any(|cpu| cpu >= WORDS * WORD_BITS) {
            return Err(BeginError::TooMany);
        }
        let flight = self.take(port).ok_or(BeginError::NoSlot)?;
        let slot = flight.slot;
        for (index, word) in self.targets[slot].iter().enumerate() {
            // ORDERING: Relaxed: the slot's next owner sees it by `Slots`.
            word.store(targets.get(index).copied().unwrap_or(0), Ordering::Relaxed);
        }
        for (word, value) in self.payloads[slot].iter().zip(payload.words()) {
            port.store_payload(word, value);
        }
        // A target that is signalled by somebody else meanwhile begins at once: so the payload is there already.
        for cpu in cpus(targets.iter().copied()) {
            port.store_action(&self.vector(cpu).0[slot], PENDING);
        }
        match port.signal(targets) {
            Ok(()) => Ok(flight),
            // The flight is dropped, and leaves the slot: each target may be about to read it, now or at another's signal.
            Err(error) => Err(BeginError::Send(error)),
        }
    }

    /// A slot that its last request's targets are through with.
    fn take(&self, port: &impl RarPort) -> Option<Flight<'_, WORDS>> {
        let slot = self.slots.take(|slot| self.is_settled(port, slot))?;
        Some(Flight { table: self, slot })
    }

    /// How far `cpu` is with the request in `slot`.
    fn state(&self, port: &impl RarPort, slot: usize, cpu: usize) -> State {
        // ORDERING: Relaxed: written by the slot's owner, or its last one (`Slots`).
        let word = self.targets[slot].get(cpu / WORD_BITS);
        let word = word.map_or(0, |word| word.load(Ordering::Relaxed));
        if word >> (cpu % WORD_BITS) & 1 == 0 {
            return State::Failed;
        }
        match port.load_action(&self.vector(cpu).0[slot]) {
            SUCCESS => State::Done,
            FAILURE => State::Failed,
            // Also what the sources do not list: a processor that says more may be on its way.
            _ => State::Pending,
        }
    }

    /// Whether all targets of the request in `slot` are through, with success or without.
    fn is_settled(&self, port: &impl RarPort, slot: usize) -> bool {
        // ORDERING: Relaxed: as above.
        let words = self.targets[slot]
            .iter()
            .map(|word| word.load(Ordering::Relaxed));
        cpus(words).all(|cpu| self.state(port, slot, cpu) != State::Pending)
    }

    fn vector(&self, cpu: usize) -> &ActionVector {
        &self.vectors[cpu / WORD_BITS][cpu % WORD_BITS]
    }
}

impl<const WORDS: usize> Default for RarTable<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

/// A request under way. Who drops it no longer wants to know; its targets may carry it out later.
#[derive(Debug)]
#[must_use = "a request is not done before all its targets say so"]
pub struct Flight<'a, const WORDS: usize> {
    table: &'a RarTable<WORDS>,
    slot: usize,
}

impl<const WORDS: usize> Flight<'_, WORDS> {
    /// How far `cpu` is. What is `Done` stays so, and what has `Failed`.
    pub fn poll(&self, port: &impl RarPort, cpu: usize) -> State {
        self.table.state(port, self.slot, cpu)
    }

    /// Whether all targets are through, with success or without.
    pub fn is_settled(&self, port: &impl RarPort) -> bool {
        self.table.is_settled(port, self.slot)
    }
}

impl<const WORDS: usize> Drop for Flight<'_, WORDS> {
    fn drop(&mut self) {
        self.table.slots.give_back(self.slot);
    }
}

fn cpus(words: impl IntoIterator<Item = u64>) -> impl Iterator<Item = usize> {
    words.into_iter().enumerate().flat_map(|(index, word)| {
        let bits = (0..WORD_BITS).filter(move |bit| word >> bit & 1 != 0);
        bits.map(move |bit| index * WORD_BITS + bit)
    })
}
