//! `lab test`: every check of the project, counted, with the totals on the last line.

mod bochs;
mod calls;
mod churn;
mod clients;
mod coherence;
mod debian;
mod differential;
mod evacuation;
mod fleet;
mod guests;
mod image;
mod isolation;
mod itself;
mod machines;
mod packages;
mod preemption;
mod ring0;
mod source;
mod tally;

use std::process::ExitCode;

use crate::cli::Test;
use crate::failure::Outcome;
use fleet::Fleet;
use tally::Tally;

/// How the names of checks begin that boot nothing which the fleet builds.
const WITHOUT_FLEET: [&str; 3] = ["source: ", "simulator: ", "clients: "];

/// Runs every check. Exit code 1 if one failed.
///
/// # Errors
/// The emulator or the compiler cannot be used at all (exit code 2 or 1).
pub fn command(test: &Test) -> Outcome<ExitCode> {
    let mut tally = Tally::new(test.only.clone());
    if test.machine.is_some() {
        let fleet = Fleet::open(test)?;
        bochs::check(test, &fleet, &mut tally);
        return Ok(tally.close());
    }
    let miri = source::start_miri(test, &mut tally);
    source::check(test, &mut tally);
    source::finish_miri(miri, &mut tally);
    match needs_fleet(test).then(|| Fleet::open(test)) {
        None => {}
        Some(Ok(fleet)) => {
            // Bochs uses one processor, and so do most machines of both sides; what is tortured takes its time anyway.
            let others = |aside: &mut Tally| {
                bochs::check(test, &fleet, aside);
                machines::control(test, &fleet, aside);
                differential::control(test, &fleet, aside);
                coherence::check(test, &fleet, aside);
                evacuation::check(test, &fleet, aside);
                guests::check(test, &fleet, aside);
            };
            tally.run_beside("bochs, linux and coherence", others, |tally| {
                machines::check(test, &fleet, tally);
                differential::check(test, &fleet, tally);
                ring0::check(test, &fleet, tally);
                calls::check(&fleet, tally);
                image::check(test, &fleet, tally);
                isolation::check(test, &fleet, tally);
                debian::check(test, &fleet, tally);
                itself::check(test, &fleet, tally);
            });
            preemption::check(test, &fleet, &mut tally);
            churn::check(test, &fleet, &mut tally);
        }
        Some(Err(failure)) => tally.refuse("kernel and programs can be built", &failure),
    }
    clients::check(test, &mut tally);
    Ok(tally.close())
}

/// Whether a check is wanted that boots what the fleet builds.
fn needs_fleet(test: &Test) -> bool {
    let only = test.only.as_deref().unwrap_or_default();
    !WITHOUT_FLEET.iter().any(|kind| only.starts_with(kind))
}
