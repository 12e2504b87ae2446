//! Checks on Bochs, whose processors have PCIDs: that the kernel turns them on by the rules, and that programs keep their
//! tags and see nothing stale.

use std::time::Duration;

use super::churn::ring0_verdict;
use super::coherence::clean;
use super::fleet::{Fleet, Start};
use super::image;
use super::tally::Tally;
use crate::bench::Row;
use crate::cli::Test;
use crate::failure::{Doing, Failure, Outcome};
use crate::iso::{Effort, Survey};
use crate::machine::BochsModel::{self, SandyBridge, Skylake};
use crate::machine::{BOCHS_INSTALL, Bochs, Child, Emulator, End, Finished, Kernel};

/// Ten times what the slowest check takes on an idle host.
const DEADLINE: Duration = Duration::from_secs(300);
const CPUS: usize = 2;

/// A check: its name, what it does, and on which processors.
type Check = (&'static str, fn(&On<'_>) -> Outcome<String>, BochsModel);

const CHECKS: [Check; 9] = [
    ("bochs: self-tests with INVPCID", self_tests, Skylake),
    ("bochs: pingpong keeps its tags", pingpong, Skylake),
    ("bochs: tlbtorture, best, 1 s", torture, Skylake),
    ("bochs: self-tests without INVPCID", self_tests, SandyBridge),
    ("bochs: hello with pcid=off", hello_untagged, Skylake),
    ("bochs: pingpong without INVPCID", pingpong, SandyBridge),
    ("bochs: t_servers under tags", servers, Skylake),
    ("bochs: torture in ring 0, 1 s", torture_ring0, Skylake),
    ("bochs: a disc surveys a PC", survey, Skylake),
];
/// So many of them are run by `--fast`.
const FAST: usize = 1;
/// So many by a run that did not ask for Bochs, nor for a long one.
const USUAL: usize = 3;

/// Runs them all, or skips them where Bochs is missing, unless it was asked for.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    let bochs = Bochs::find();
    for (index, (name, check, model)) in CHECKS.into_iter().enumerate() {
        if test.fast && index >= FAST {
            tally.skip(name, "left out by --fast");
            continue;
        }
        if index >= USUAL && !test.soak && test.machine.is_none() {
            tally.skip(name, "left out without --soak or --machine bochs");
            continue;
        }
        match &bochs {
            Ok(bochs) => {
                let emulator = Emulator::Bochs(bochs, model);
                tally.check(name, || check(&On { fleet, emulator }));
            }
            Err(missing) if test.machine.is_some() => {
                tally.check(name, || Err(Failure::work(missing)));
            }
            Err(_) => {
                let reason =
                    format!("Bochs is not complete here; install it with  {BOCHS_INSTALL}");
                tally.skip(name, &reason);
            }
        }
    }
}

/// Where a check is made.
struct On<'a> {
    fleet: &'a Fleet,
    emulator: Emulator<'a>,
}

impl On<'_> {
    /// Boots the plain kernel, and expects the program to do well.
    fn boot(&self, program: &str, options: &str, arguments: &str) -> Outcome<Finished> {
        self.boot_kernel(&self.fleet.kernel, program, options, arguments)
    }

    fn boot_kernel(
        &self,
        kernel: &Kernel,
        program: &str,
        options: &str,
        arguments: &str,
    ) -> Outcome<Finished> {
        let start = Start {
            options,
            arguments,
            deadline: DEADLINE,
            ..Start::on(CPUS)
        };
        let image = (program, self.fleet.image(program)?);
        let finished = self.fleet.boot_on(self.emulator, kernel, image, start)?;
        finished.expect_success(program)
    }
}

/// What the kernel's first line says of tags.
fn tags_a_cpu(finished: &Finished) -> Outcome<u32> {
    let number = finished.console.lines().find_map(|line| {
        let (before, _) = line.split_once(" tags a CPU")?;
        before.rsplit(' ').next()?.parse().ok()
    });
    number.ok_or_else(|| Failure::work(format!("no number of tags; {}", finished.account())))
}

/// Passes if there are some.
fn some_tags(finished: &Finished) -> Outcome<String> {
    match tags_a_cpu(finished)? {
        0 => Err(Failure::work(format!("no tags; {}", finished.account()))),
        tags => Ok(format!("{tags} tags a CPU")),
    }
}

/// Every way to load and to flush a tag: the processor faults where one breaks a rule.
fn self_tests(on: &On<'_>) -> Outcome<String> {
    let finished = on.boot_kernel(&on.fleet.breakable, "hello", "selftest=all", "")?;
    match finished.console.contains("selftest: tags passed") {
        true => some_tags(&finished),
        false => Err(Failure::work(format!(
            "no word of tags; {}",
            finished.account()
        ))),
    }
}

fn hello_untagged(on: &On<'_>) -> Outcome<String> {
    let finished = on.boot("hello", "pcid=off", "")?;
    match tags_a_cpu(&finished)? {
        0 => Ok(String::new()),
        tags => Err(Failure::work(format!(
            "{tags} tags in spite of pcid=off; {}",
            finished.account()
        ))),
    }
}

/// Kernel threads that change page tables and enter spaces on processors with tags, which come and go.
fn torture_ring0(on: &On<'_>) -> Outcome<String> {
    ring0_verdict(&on.boot("hello", "torture=1 seed=1", "")?)
}

/// Twelve spaces take turns: under `best` all keep their tags, `before` has none.
fn pingpong(on: &On<'_>) -> Outcome<String> {
    let arguments = "--spaces=12 --pages=8 --policies=before,best --slice-ms=40 --rounds=1 --warmup-ms=20 --samples=4";
    let finished = on.boot("pingpong", "", arguments)?;
    clean(&finished)?;
    let rows = Row::all_of(&finished.console)?;
    // A turn.
    let kept = |policy| {
        let row = rows.iter().find(|row| row.text("policy") == policy);
        row.map(|row| row.counter("tags_kept"))
    };
    match (kept("before"), kept("best")) {
        (Some(0.0), Some(best)) if best > 0.5 => Ok(format!("{best:.2} tags kept a turn")),
        (before, best) => Err(Failure::work(format!(
            "tags kept a turn: {before:?} under before, {best:?} under best; {}",
            finished.account()
        ))),
    }
}

/// The disc that `lab iso` makes, on a machine that is no different from a PC until it is switched off.
fn survey(on: &On<'_>) -> Outcome<String> {
    let Emulator::Bochs(bochs, model) = on.emulator else {
        unreachable!("all checks here are on Bochs")
    };
    let directory = tempfile::tempdir().doing("make a temporary directory")?;
    on.fleet.pc_image(directory.path(), Effort::Least)?;
    let mut command = bochs.command(directory.path(), (model, CPUS))?;
    let child = Child::run(&mut command, DEADLINE, &mut |_| ()).doing("start Bochs")?;
    let end = End::of_bochs(&child, DEADLINE);
    if end != End::Exited(0) {
        let last = child.output.lines().next_back();
        return Err(Failure::work(format!(
            "{end}; the console ends with {last:?}"
        )));
    }
    let rows = image::whole(&child.output, Effort::Least)?;
    let tags = Survey::read(&child.output)?.map_or(0, |survey| survey.tags());
    match tags {
        0 => Err(Failure::work("the survey found no tags")),
        tags => Ok(format!("{rows} rows, {tags} tags a CPU")),
    }
}

/// Private roots under tags of their own, beside the shared roots of the same spaces.
fn servers(on: &On<'_>) -> Outcome<String> {
    some_tags(&on.boot("t_servers", "", "")?)
}

fn torture(on: &On<'_>) -> Outcome<String> {
    clean(&on.boot("tlbtorture", "", "--seconds=1 --threads=2 --policies=best")?)
}
