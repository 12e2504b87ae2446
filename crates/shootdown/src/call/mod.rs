//! Cross-CPU calls: the mechanism that everything else rides on.
//!
//! An initiator fills one of its own request slots, names the targets in the slot's *pending set*, sets its
//! bit in each target's *inbox*, and interrupts those whose inbox was quiet. A responder empties its inbox,
//! looks at the slots of each initiator it found there, serves those that name it, and clears its bit in
//! their pending sets. The request is complete when the pending set is empty. There is no lock and no
//! list; slots are recycled by their own CPU when their pending set is empty.
//!
//! A request for many CPUs is announced in a *ring* that all of them read, instead of in their inboxes.
//!
//! * `payload`, `slot`, `inbox`, `ring`: the shared memory.
//! * `publish`: the initiator. `serve`, `backlog`: the responder. `wait`: what ties them together.
//! * `function`: the public calls. [`ticket`](CallTicket): a call that was submitted and not yet waited for.

mod backlog;
mod function;
mod idle;
mod inbox;
mod payload;
mod publish;
mod ring;
mod serve;
mod slot;
mod ticket;
mod wait;

pub use function::{NotReady, SlotsBusy, Wait};
pub use idle::PollIdle;
pub use payload::PAYLOAD_BYTES;
pub use ticket::CallTicket;

pub(crate) use inbox::{Inbox, Next};
pub(crate) use payload::Payload;
pub(crate) use publish::SlotClass;
pub(crate) use ring::{Ears, Ring};
pub(crate) use serve::Place;
pub(crate) use slot::{Kind, Others, Request, Run, SLOTS, Slot, Stamp};
pub(crate) use wait::RequestRef;
