//! One run to walk through, step by step: who did what, and what every TLB, page table and cache line held then.
//!
//! * [`Steps`] hears a run: what the story tells, interrupts, moves of cache lines, and what the hardware does by itself. Each [`Step`]
//!   has the [`Change`]s that it made to the [`Fact`]s, so the state at any step is rebuilt from the start.
//! * [`Walkthrough`] is the document of a run: the steps, the recorder's spans and interrupts, the violated promise and the steps that led to
//!   it. It serialises to JSON.
//! * [`page()`] makes one HTML file of documents, which needs nothing else; [`columns()`] draws one of them as text.
//!
//! A run that is heard is the same run: nothing here draws an answer, takes time or is an event.

mod causes;
mod columns;
mod document;
mod fact;
mod hear;
mod label;
mod page;
mod step;
mod steps;
mod text;

pub use causes::{Cause, Violation};
pub use columns::{columns, wrapped};
pub use document::{Arrow, Axis, Bar, Recorded, ShownStep, Titles, Walkthrough};
pub use fact::{Change, Fact, Key, Subject, Value};
pub(crate) use label::sort_of;
pub use page::page;
pub use step::{Sort, Step};
pub use steps::Steps;
pub use text::ChangeText;
