//! Bugs that kernels have: models of public algorithms, each with a story that goes wrong.
//!
//! * [`Story`]: what the algorithm does, what goes wrong, what mends it, and who told of it first.
//! * [`Way`]: a story is played by the algorithm as it was described, by the mended one, or by the engine. The CPUs do the same.
//! * [`STORIES`]: all of them, one file each in `told`, which nothing else knows.
//!
//! A model is an `Algorithm`: how a CPU switches spaces, how a change of the page tables reaches the others, what the interrupt does.
//! `Stage` is the machine that it works on, `Ours` the same interface on the engine. docs/stories.md tells them to readers.

mod algorithm;
mod ours;
mod play;
mod request;
mod stage;
mod story;
mod told;

pub use play::{Answers, Found, Played};
pub use story::{Story, Way};
pub use told::STORIES;
