//! Checks of cross-CPU calls in ring 0: the engine and every peer carry out every call, and a plan that makes no sense is told.

use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::bench::Row;
use crate::failure::{Failure, Outcome};
use crate::machine::{End, Finished};

/// No program runs.
const PROGRAM: &str = "hello";
const CPUS: usize = 4;
const CONTENDERS: [&str; 7] = [
    "mailbox",
    "xen-before",
    "xen",
    "linux",
    "freebsd",
    "best",
    "plain",
];
/// One, some and all CPUs call; one and all others are called.
const PLAN: &str = "calls=selected,initiators=1:2:all,targets=1:all,ns=0,calls=10,rounds=1";

/// Runs them all.
pub fn check(fleet: &Fleet, tally: &mut Tally) {
    tally.check("kernel: calls of every peer on 4 CPUs", || {
        let finished = boot(fleet, PLAN)?;
        if finished.end != End::Exited(0) {
            return Err(finished.unexpected("every call carried out"));
        }
        all_ran(&finished.console)
    });
    tally.check("kernel: a plan of calls that makes no sense", || {
        let finished = boot(fleet, "calls=selected,targets=many")?;
        let told =
            "shootdown: cannot boot: calls=selected,targets=many: targets=many: use a number";
        match finished.end == End::BootFailed && finished.console.contains(told) {
            true => Ok(String::new()),
            false => Err(finished.unexpected(told)),
        }
    });
}

fn boot(fleet: &Fleet, options: &str) -> Outcome<Finished> {
    let start = Start {
        options,
        ..Start::on(CPUS)
    };
    fleet.boot(&fleet.kernel, PROGRAM, start)
}

/// Each contender has the same shapes, and every function ran once for each target of each call.
fn all_ran(console: &str) -> Outcome<String> {
    let rows = Row::all_of(console)?;
    for row in &rows {
        let [calls, targets, runs] = ["calls", "targets", "runs"].map(|key| row.count(key));
        let due = calls * targets;
        let [wrong, entries, ipis] = ["wrong", "entries", "ipis"].map(|key| row.number(key));
        if runs != due || wrong != Some(0.0) || entries.is_none() || entries > ipis {
            return Err(Failure::work(format!("{due} runs were due in {row:?}")));
        }
    }
    let of = |peer: &str| rows.iter().filter(|row| row.text("peer") == peer).count();
    let shapes = of(CONTENDERS[0]);
    let is_whole = |peer: &&str| shapes > 0 && of(peer) == shapes;
    match CONTENDERS.iter().find(|peer| !is_whole(peer)) {
        Some(peer) => Err(Failure::work(format!("rows of {peer} are missing"))),
        None => Ok(format!("{shapes} shapes")),
    }
}
