//! NMIs that the VMM sends (`KVM_NMI`). One is delivered at the next entry, whatever the guest's flag, unless it is in the handler of another: then
//! behind that one's IRET (APM vol. 2, "Event Injection"; Linux keeps a second one likewise).
//!
//! The IRET is intercepted before it is carried out, so the next exit at another place is the first moment behind it: at most a tick of the host later. A guest that halts
//! takes one that waits instead.

use super::event;
use super::vcpu::State;
use super::vmcb::Field;

const VECTOR: u64 = 2;
/// The intercept of IRET, in the upper half of its word.
const IRET: u64 = 1 << 20 << 32;

/// Whether the guest takes one.
#[derive(Debug, Default, PartialEq, Eq)]
enum Blocked {
    #[default]
    No,
    /// The handler of one runs.
    InHandler,
    /// It is at its IRET, there.
    AtIret(u64),
}

/// What waits.
#[derive(Debug, Default)]
pub struct Nmi {
    waits: bool,
    blocked: Blocked,
}

impl State {
    /// `KVM_NMI`.
    pub fn queue_nmi(&mut self) {
        self.nmi.waits = true;
    }

    /// Before each entry: injects the one that waits if the guest takes it now.
    pub(super) fn place_nmi(&mut self) {
        let rip = self.vmcb.get(Field::RIP);
        if matches!(self.nmi.blocked, Blocked::AtIret(place) if place != rip) {
            self.nmi.blocked = Blocked::No;
        }
        let is_blocked = self.nmi.blocked != Blocked::No || self.has_shadow();
        if !self.nmi.waits || is_blocked || self.has_event() {
            return;
        }
        self.nmi = Nmi {
            waits: false,
            blocked: Blocked::InHandler,
        };
        self.set_event(event::NMI, VECTOR, 0);
        self.intercept_iret(true);
    }

    /// Whether one waits that the guest, which halts, takes instead.
    pub(super) fn is_nmi_next(&self) -> bool {
        self.nmi.waits && self.nmi.blocked != Blocked::InHandler
    }

    /// The guest is before an IRET.
    pub fn leave_nmi_handler(&mut self) {
        self.nmi.blocked = Blocked::AtIret(self.vmcb.get(Field::RIP));
        self.intercept_iret(false);
    }

    /// One that was injected has not arrived, and waits again.
    pub(super) fn take_nmi_back(&mut self) {
        self.nmi = Nmi {
            waits: true,
            blocked: Blocked::No,
        };
        self.intercept_iret(false);
    }

    /// An event that is delivered at the IRET comes before it: the next one, of the event's handler, ends what keeps NMIs off.
    pub(super) fn put_iret_off(&mut self) {
        if self.has_event() && matches!(self.nmi.blocked, Blocked::AtIret(_)) {
            self.nmi.blocked = Blocked::InHandler;
            self.intercept_iret(true);
        }
    }

    pub(super) fn intercept_iret(&mut self, wanted: bool) {
        let others = self.vmcb.get(Field::INTERCEPT_EVENTS) & !IRET;
        let iret = if wanted { IRET } else { 0 };
        self.vmcb.set(Field::INTERCEPT_EVENTS, others | iret);
    }
}
