//! The crate's sequences on an emulated machine that keeps what it may keep, walks whenever it may, and delays stores as long as it may.
//!
//! `story` runs random programs of a small kernel and compares all that is cached with the tables after each operation. `known` holds mistakes that the machine must punish: a test that could not fail would prove nothing.

mod known;
mod machine;
mod memory;
mod story;
