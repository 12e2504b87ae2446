//! Workloads of the timed machine: what the published tables measure, on virtual CPUs.

mod engine;
mod eviction;
mod madvise;
mod measured;
mod order;
mod pingpong;
mod shootdown;
mod sweep;

pub use engine::{MAX_CPUS, on_large_stack};
pub use eviction::{Candidates, Eviction, Victim};
pub use madvise::{Madvise, PUBLISHED};
pub use measured::Measured;
pub use order::Order;
pub use pingpong::{Names, PUBLISHED_PINGPONG, Pingpong, Placement};
pub use shootdown::{Shot, shoot};
pub use sweep::{Change, Effect, Row, sweep};
