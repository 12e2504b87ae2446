//! Events that a guest finds when it goes on, one at a time (APM vol. 2, "Event Injection").
//!
//! EVENTINJ has the event, which the processor takes at the entry. Where an exit cuts the delivery short EXITINTINFO has it, and it is delivered again. An
//! exception goes first: an interrupt or an NMI in its place waits until the guest takes it. An interrupt or an NMI goes behind whatever is there.
//!
//! This file, `interrupt` and `nmi` are tested on the host (`kernel/tests-host/tests/interrupt.rs`).

use super::interrupt::V_INTR_MASKING;
use super::nmi::Nmi;
use super::vcpu::State;
use super::vmcb::Field;

/// Kinds of events. That of an external interrupt is 0.
pub(super) const INTERRUPT: u64 = 0;
pub(super) const NMI: u64 = 2;
const EXCEPTION: u64 = 3;
const SOFTWARE: u64 = 4;

/// Bits of EVENTINJ and EXITINTINFO.
pub(super) const VALID: u64 = 1 << 31;
const HAS_CODE: u64 = 1 << 11;
const CODE_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = 8;
const KIND_MASK: u64 = 7;

/// Exceptions that instructions raise on purpose.
const BREAKPOINT: u64 = 3;
const OVERFLOW: u64 = 4;
/// Exceptions that are injected.
const INVALID_OPCODE: u64 = 6;
const PROTECTION: u64 = 13;

impl State {
    /// Before each entry, the last thing: what the guest finds.
    pub fn place_events(&mut self, vmm_wants_window: bool) {
        self.place_nmi();
        self.place_interrupt(vmm_wants_window);
        self.put_iret_off();
    }

    /// After each exit, the first thing. An event whose delivery was cut short by it is delivered again, but for those that their instruction makes again.
    pub fn keep_event(&mut self) {
        let found = self.vmcb.get(Field::EXIT_INT_INFO);
        let (kind, vector) = (kind_of(found), found & 0xff);
        let is_repeated =
            kind == SOFTWARE || kind == EXCEPTION && matches!(vector, BREAKPOINT | OVERFLOW);
        let kept = if found & VALID == 0 || is_repeated {
            0
        } else {
            found
        };
        self.vmcb.set(Field::EVENT_INJ, kept);
    }

    /// The guest, which goes on at an exception's handler, finds that first: in place of another exception, and before an interrupt or an NMI.
    pub fn inject(&mut self, vector: u64, error: Option<u32>) {
        match self.undelivered() {
            Some((INTERRUPT, vector)) => self.interrupt = Some(vector),
            Some((NMI, _)) => self.take_nmi_back(),
            _ => {}
        }
        let code = error.map_or(0, |error| HAS_CODE | u64::from(error) << CODE_SHIFT);
        self.set_event(EXCEPTION, vector, code);
    }

    /// #UD.
    pub fn undefined(&mut self) {
        self.inject(INVALID_OPCODE, None);
    }

    /// #GP.
    pub fn refuse(&mut self) {
        self.inject(PROTECTION, Some(0));
    }

    /// An exception that was to be delivered is not; an interrupt or an NMI stays.
    pub fn forget_exception(&mut self) {
        if matches!(self.undelivered(), Some((EXCEPTION, _))) {
            self.vmcb.set(Field::EVENT_INJ, 0);
        }
    }

    /// As after a reset: nothing waits, and nothing keeps events off.
    pub fn forget_events(&mut self) {
        self.vmcb.set(Field::EVENT_INJ, 0);
        self.vmcb.set(Field::INTERRUPT_SHADOW, 0);
        self.vmcb.set(Field::V_INTR, V_INTR_MASKING);
        self.interrupt = None;
        self.nmi = Nmi::default();
        self.intercept_iret(false);
    }

    /// Whether a guest that halts has something to take instead. It is behind its HLT.
    pub fn is_woken(&self) -> bool {
        self.is_nmi_next() || self.is_interrupt_next()
    }

    /// Whether something is to be delivered at the next entry.
    pub(super) fn has_event(&self) -> bool {
        self.undelivered().is_some()
    }

    /// The kind and the vector of what is to be delivered at the next entry.
    pub(super) fn undelivered(&self) -> Option<(u64, u8)> {
        let event = self.vmcb.get(Field::EVENT_INJ);
        (event & VALID != 0).then_some((kind_of(event), event as u8))
    }

    /// Has it delivered at the next entry, in place of whatever was to be.
    pub(super) fn set_event(&mut self, kind: u64, vector: u64, code: u64) {
        let event = vector | kind << KIND_SHIFT | code | VALID;
        self.vmcb.set(Field::EVENT_INJ, event);
    }
}

const fn kind_of(event: u64) -> u64 {
    event >> KIND_SHIFT & KIND_MASK
}
