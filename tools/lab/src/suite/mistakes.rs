//! Checks of the checks: mistakes that this field really made are noticed.

use super::tally::Tally;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::mutants::{self, Check, Effort, Mutant, Options, Verdict};

/// Tries the mutants that bear the name of their row in the list of the field's bugs, one a row, by the check that is built
/// soonest; `./lab mutants` tries all, most by the fuzzer first, which takes longer than a test may.
pub fn check(test: &Test, tally: &mut Tally) {
    let name = |mutant: &Mutant| format!("mutants: {}", mutant.id);
    let mut chosen = match mutants::read_all() {
        Ok(mutants) => mutants,
        Err(failure) => return tally.check("mutants: descriptions", || Err(failure)),
    };
    chosen
        .retain(|mutant| mutant.row.as_ref() == Some(&mutant.id) && tally.is_wanted(&name(mutant)));
    if chosen.is_empty() {
        return;
    }
    for mutant in &mut chosen {
        mutant.killers.sort_by_key(Check::build_effort);
        mutant.killers.truncate(1);
    }
    if test.fast {
        tally.skip("mutants: bugs that the field had", "left out by --fast");
        return;
    }
    let options = Options {
        effort: Effort::default(),
        jobs: 1,
        keep: false,
    };
    let tried = mutants::run(&chosen, options, &mut |mutant, verdict, _| {
        tally.check(&name(mutant), || outcome(mutant, verdict));
    });
    if let Err(failure) = tried {
        tally.check("mutants: can be tried", || Err(failure));
    }
}

fn outcome(mutant: &Mutant, verdict: &Verdict) -> Outcome<String> {
    match verdict {
        Verdict::Killed { by, evidence } => Ok(format!("{by}: {evidence}")),
        _ => Err(Failure::work(verdict.line(mutant))),
    }
}
