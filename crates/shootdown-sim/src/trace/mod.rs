//! What happened when, on which virtual CPU: recorded, written for people. In the timed model times are picoseconds; a run
//! that is explored step by step ([`walkthrough`](crate::walkthrough)) has the numbers of steps instead.
//!
//! Recording is off unless [`State::recorder`](crate::machine::State::recorder) is set, and then costs one look
//! at an empty option a hook. A program says what its CPU is doing ([`Context::doing`]); the rest comes from the
//! engine's own [`TraceEvent`](shootdown::watch::TraceEvent)s and from the machine's interrupts.
//!
//! * [`Recorder`] hears events and makes a [`Trace`]: spans that nest, instants, and one [`Flow`] for each interrupt.
//! * [`chrome`] writes it as JSON for Perfetto (`ui.perfetto.dev`) or `chrome://tracing`.
//! * [`picture`] draws it as SVG.
//! * [`scene`] is the shootdown that the README shows.
//!
//! [`Context::doing`]: crate::machine::Context::doing

pub mod chrome;
pub mod picture;
mod program;
mod record;
mod recorder;
#[cfg(test)]
mod recorder_tests;
pub mod scene;

pub use record::{Flow, Instant, InstantKind, Span, SpanKind, Trace};
pub use recorder::Recorder;
