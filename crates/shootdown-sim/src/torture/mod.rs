//! The torture of `shootdown-torture` on explored machines: its random mix under random schedules, weak memory, late
//! interrupts and an adversarial TLB. Every run is short, starts afresh, and is the same whenever it is repeated.
//!
//! * [`Case`]: all that one run depends on; prints as the options of `./lab torture --machine sim` that repeat it.
//! * [`run()`]: one run. [`campaign()`]: one after the other, on several threads, until one fails or the caller has enough.
//! * [`Flaw`]: what a platform leaves out, which the torture has to notice.
//! * `rig`: the host, with tasks that any CPU may run, and CPUs that go and come back. `memory`: spaces, page tables and
//!   frames, as the hardware of [`kernel`](crate::kernel) translates them.

mod campaign;
mod case;
mod flaw;
mod memory;
mod rig;
mod run;

pub use campaign::{Campaign, CampaignReport, Progress, Totals, campaign};
pub use case::Case;
pub use flaw::Flaw;
pub use run::{Report, run, run_with_flaw, run_with_story};
pub use shootdown_torture::Operation;
