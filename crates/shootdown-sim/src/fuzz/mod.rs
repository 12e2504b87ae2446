//! Many runs of the virtual kernel under exploration.
//!
//! * [`Case`]: all that one run depends on; it prints and parses as the options of `./lab sim replay`.
//! * [`run()`]: one run. [`campaign()`]: many, on all cores. [`shrink()`]: the same failure with a shorter schedule.
//! * [`exhaust()`]: every schedule of a small case with few deviations.

mod campaign;
mod case;
mod conduct;
mod exhaust;
mod run;
mod setting;
mod shrink;

pub use campaign::{Campaign, CampaignReport, Progress, Totals, campaign};
pub use case::Case;
pub use conduct::Conduct;
pub use exhaust::{ExhaustReport, exhaust};
pub use run::{
    Report, is_unwinding, run, run_stopping, run_to_walk, run_unwinding, run_with_story,
};
pub use shrink::shrink;
