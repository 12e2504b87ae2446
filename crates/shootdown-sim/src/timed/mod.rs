//! Events that cost time: a discrete-event clock, cache lines, interrupts and TLBs with a price each.
//!
//! Time is in picoseconds, an integer, so that runs agree to the last digit on every machine.

mod clock;
mod costs;
mod lines;
mod model;
mod topology;

pub use clock::Clock;
pub use costs::{Costs, Distance, PerDistance};
pub use lines::Lines;
pub use model::Timed;
pub use topology::Topology;
