//! Events that are choices: nothing takes time, and whatever the architecture allows may happen.
//!
//! A run is a sequence of questions (who goes on? which value does this load see? does the interrupt arrive
//! now?). A [`Chooser`] answers them: at random, by priorities, or as written down. Answer 0 always
//! means that nothing unusual happens, so a run is described by its few other answers.

mod chooser;
mod clock;
mod interrupts;
mod loads;
mod memory;
mod model;
mod plain;
mod remote;
mod schedule;
mod shrink;
mod stalls;
mod view;

pub use chooser::{Chooser, Question, Strategy};
pub use clock::Clock;
pub(crate) use loads::LoadStep;
pub use loads::Loads;
pub use memory::{Walk, Weak};
pub use model::{Explore, Hardware, NoTlb, Tables};
pub use remote::BackEnd;
pub use schedule::{Deviation, Schedule};
pub(crate) use shrink::shrink_schedule;
pub use view::View;
