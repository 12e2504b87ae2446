//! Cross-CPU calls: the mechanism that everything else rides on.
//!
//! An initiator fills one of its own request slots, names the targets in the slot's *pending set*, sets its
//! bit in each target's *inbox*, and interrupts those whose inbox was quiet. A responder empties its inbox,
//! looks at the slots of each initiator it found there, serves those that name it, and clears its bit in
//! their pending sets. The request is complete when the pending set is empty. There is no lock, and the only list is that of posted
//! call data. A CPU uses a slot of its own again when its pending set is empty.
//!
//! A request for many CPUs is announced in a *ring* that all CPUs of a group read, instead of in their inboxes.
//!
//! * `number`, `request`, `slot`: a request. `inbox`, `ring`: how its targets learn of it.
//! * `free_slot`, `publish`: the initiator. `responder`, `run`: the responder, whose states are listed there. `wait`: how the
//!   initiator waits.
//! * `function`, `post`, `give_up`, `data`, `kick`, `ask`, `rendezvous`: the public calls; `data` has a CPU's posts to itself, too. `watch`: looking after waits, and after what nobody
//!   waits for.

mod ask;
mod data;
mod free_slot;
mod function;
mod give_up;
mod idle;
mod inbox;
mod kick;
mod number;
mod post;
mod post_data;
mod publish;
mod rendezvous;
mod request;
mod responder;
mod ring;
mod ring_reader;
mod run;
mod slot;
mod targets;
mod wait;
mod watch;

pub use data::CallData;
pub use function::{NotReady, Wait};
pub use give_up::SubmitRefused;
pub use idle::PollIdle;
pub use kick::KickTicket;
pub use post::{CallTicket, SlotsBusy};
pub use post_data::PostRefused;
pub use rendezvous::{Absent, Rendezvous};
pub use request::PAYLOAD_BYTES;
pub use targets::CallTargets;

pub(crate) use ask::Asked;
pub(crate) use data::{OwnPosts, PostedList, TakenLinks};
pub(crate) use free_slot::FreeSlot;
pub(crate) use give_up::Beside;
pub(crate) use inbox::Inbox;
pub(crate) use number::{Number, Ticket};
pub(crate) use rendezvous::Meeting;
pub(crate) use request::{
    Answer, Found, Kind, LastAnswer, Payload, Request, RequestRef, Run, SLOTS,
};
pub(crate) use ring::Ring;
pub(crate) use ring_reader::RingReader;
pub(crate) use slot::{FIRST_ONLY, Slot};
pub(crate) use wait::WaitsFor;
pub(crate) use watch::Lookout;
