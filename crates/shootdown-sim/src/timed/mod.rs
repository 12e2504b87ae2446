//! Events that cost time: a discrete-event clock, cache lines, interrupts and TLBs with a price each.
//!
//! Time is in picoseconds, an integer, so that runs agree to the last digit on every machine. Every price is a
//! named [parameter](PARAMETERS); a [`Preset`] gives each one a value and says where it comes from.

mod activity;
mod broadcast;
mod cache;
mod clock;
mod closed_form;
mod core;
mod costs;
mod guests;
mod holders;
mod hosted;
mod hypervisor;
mod lines;
mod model;
mod moves;
mod parameters;
mod preset;
mod program;
mod shape;
mod spin;
mod tlb;
mod topology;
mod turns;

pub use activity::Activity;
pub use broadcast::Fabric;
pub use cache::Replacement;
pub use clock::Clock;
pub use closed_form::ClosedForm;
pub use costs::{Costs, Hosting, PerDistance};
pub use guests::GuestCosts;
pub use hypervisor::HostCounts;
pub(crate) use hypervisor::Hypervisor;
pub use lines::{LINE_BYTES, Lines, Transfers};
pub use model::Timed;
pub use moves::{Motive, Moved, Moves};
pub use parameters::{PARAMETERS, Parameter, ParameterError, Unit};
pub use preset::{Origin, Preset};
pub use shape::{TlbCounts, TlbShape};
pub use tlb::{Tlb, Translation};
pub use topology::{Distance, Topology};
