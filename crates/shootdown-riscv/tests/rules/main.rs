//! The crate's sequences against the architecture's rules: they run on an emulated hart that walks tables before every instruction, keeps every entry that it may keep, invalid ones and those that lead to
//! tables too, and reads from tables what a fence has not yet ordered.
//!
//! `other` is another hart, which acts between any two instructions. `known` holds cases by hand, and sequences that must fail. `story` is a kernel in small that takes random steps: no translation contradicts the page tables, no freed table is walked.

mod hart;
mod known;
mod memory;
mod other;
mod story;
