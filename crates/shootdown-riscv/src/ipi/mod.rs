//! Interrupting other harts, and having the firmware fence for them.
//!
//! Three ways, of which the host chooses one at boot:
//!
//! | | the interrupt is sent by | one operation for | at the target |
//! |---|---|---|---|
//! | [`Way::Sbi`] | a call of the firmware, extension IPI | up to 64 harts whose ids are within 64 of each other | supervisor software interrupt |
//! | [`Way::Doorbells`], [IMSIC](Doorbell::imsic) | a store of the identity into the page of the hart's interrupt file | one hart | external interrupt of that identity |
//! | [`Way::Doorbells`], [SSWI](Doorbell::sswi) | a store of 1 into the hart's word of an ACLINT | one hart | supervisor software interrupt |
//!
//! Doorbells are faster where they exist: no call of the firmware, which interrupts the target in machine mode first. MSWI, the ACLINT's device for machine mode, is the firmware's.
//!
//! Nothing here waits for a target.
//!
//! # Order
//!
//! What the sender has stored is visible to the handler: a FENCE comes before each way of sending. ("a FENCE is likely needed before a subsequent store sending an MSI", Advanced
//! Interrupt Architecture, "Interprocessor Interrupts (IPIs)"; SBI's chapter "IPI Extension" says nothing of order.) The target has one bit for all who send. So it is cleared *before* the handler looks for work, by
//! [`Ipi::acknowledge`] or [`Ipi::claim`], with a FENCE behind: accesses of `sip` and `stopei` "are not ordered with respect to explicit memory accesses" (Unprivileged, "Zicsr", "CSR Access Ordering").
//! Otherwise the handler may look, somebody store and send, and the bit be cleared last: that interrupt is lost.
//!
//! # Flushes without an interrupt
//!
//! [`RemoteFences`] asks the firmware to fence for other harts. It names no ASID, ever: an ASID means something else on each hart.

mod doorbell;
mod hart;
mod port;
mod remote;
mod sbi;
mod send;

pub use doorbell::{Doorbell, DoorbellMap, ImsicIdentity};
pub use hart::{HartId, HartMap, HartMask, MapError};
pub use port::Port;
pub use remote::RemoteFences;
pub use sbi::{Extension, SbiArguments, SbiError, SbiReturn, probe};
pub use send::{Ipi, SendError, Way};
