//! Cross-CPU calls: the mechanism that everything else rides on.
//!
//! An initiator fills one of its own request slots, names the targets in the slot's *pending set*, sets its
//! bit in each target's *inbox*, and interrupts those whose inbox was quiet. A responder empties its inbox,
//! looks at the slots of each initiator it found there, serves those that name it, and clears its bit in
//! their pending sets. The request is complete when the pending set is empty. There is no lock, and a
//! list of posted call data only; slots are recycled by their own CPU when their pending set is empty.
//!
//! A request for many CPUs is announced in a *ring* that all CPUs of a group read, instead of in their inboxes.
//!
//! * `number`, `request`, `slot`: a request. `inbox`, `ring`: how its targets learn of it.
//! * `free_slot`, `publish`: the initiator. `responder`, `run`: the responder, whose states are listed there. `wait`: how the
//!   initiator waits.
//! * `function`, `collect`, `post`, `data`, `kick`: the public calls. `own_post`: a CPU's posts to itself. `lookout`: what no wait looks after. [`ticket`](CallTicket): a call that was submitted and not yet waited for.

mod collect;
mod data;
mod free_slot;
mod function;
mod idle;
mod inbox;
mod kick;
mod lookout;
mod number;
mod own_post;
mod post;
mod post_data;
mod publish;
mod request;
mod responder;
mod ring;
mod ring_reader;
mod run;
mod slot;
mod targets;
mod ticket;
mod wait;
mod watch;

pub use data::CallData;
pub use function::{NotReady, Wait};
pub use idle::PollIdle;
pub use kick::KickTicket;
pub use post::SlotsBusy;
pub use post_data::PostRefused;
pub use request::PAYLOAD_BYTES;
pub use targets::CallTargets;
pub use ticket::CallTicket;

pub(crate) use data::{PostedList, TakenLinks};
pub(crate) use free_slot::{FreeSlot, SlotClass};
pub(crate) use inbox::Inbox;
pub(crate) use lookout::Lookout;
pub(crate) use number::{Number, Ticket};
pub(crate) use own_post::OwnPosts;
pub(crate) use request::{Found, Kind, Payload, Request, RequestRef, Run, SLOTS};
pub(crate) use ring::Ring;
pub(crate) use ring_reader::RingReader;
pub(crate) use slot::{FIRST_ONLY, Slot};
pub(crate) use wait::WaitsFor;
