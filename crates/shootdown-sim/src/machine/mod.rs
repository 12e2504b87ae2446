//! What both models share: virtual CPUs as coroutines, their interrupt state, and the way from the
//! engine's accesses to the model.

mod current;
mod deeds;
mod engine;
mod events;
mod failure;
mod guest;
mod listeners;
mod platform;
mod processor;
mod quiet;
mod remote;
mod run;
mod second;
mod state;
mod steal_time;
mod task;
mod unwind;

pub use deeds::Deeds;
pub use engine::{Engine, kernel_root_at, root_at};
pub use failure::{Failure, FailureKind};
pub use listeners::Listeners;
pub use platform::{PLATFORM, SimPlatform};
pub use processor::{Pending, Processor, Status};
pub(crate) use remote::new_global_tags;
pub use run::{Machine, Program};
pub use second::{SecondEngine, SecondPlatform};
pub use state::{Model, State};
pub(crate) use steal_time::StealTime;
pub use task::{Host, Note};
pub(crate) use unwind::{UNWINDS, unwind_at};

pub use current::{Context, context, try_context};
