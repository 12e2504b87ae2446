//! Checks of the image that `lab iso` makes: firmware, GRUB and the kernel as on a PC, all benches, and their tables on the screen.

use std::path::Path;
use std::time::Duration;

use super::fleet::Fleet;
use super::tally::Tally;
use crate::bench::Row;
use crate::cli::Test;
use crate::failure::{Doing, Failure, Outcome};
use crate::iso::{Effort, Survey};
use crate::machine::{End, disc};

/// Ten times what it takes on an idle host.
const DEADLINE: Duration = Duration::from_secs(300);
const CPUS: usize = 2;
/// The benches, and how many rows of each a quick survey and the least one have on two CPUs.
const BENCHES: [(&str, usize, usize); 4] = [
    ("madvise", 12, 6),
    ("pingpong", 9, 3),
    ("preemptoff", 3, 3),
    ("shoot", 14, 14),
];

/// Runs them all, or skips them where something is missing.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    type Check = fn(&Fleet) -> Outcome<String>;
    let checks: [(&str, Option<&str>, Check); 3] = [
        (
            "image: a stick surveys a PC and shows its tables",
            None,
            |fleet| boot_stick(fleet, None, Effort::Quick),
        ),
        (
            "image: a stick surveys a PC with UEFI",
            Some(disc::UEFI),
            |fleet| boot_stick(fleet, Some(Path::new(disc::UEFI)), Effort::Least),
        ),
        (
            "image: a disc surveys an emulator and ends it",
            None,
            boot_disc,
        ),
    ];
    for (name, needs, check) in checks {
        let missing = needs.filter(|path| !Path::new(path).exists());
        match (disc::can_make(), missing) {
            (Err(missing), _) => tally.skip(name, &missing.to_string()),
            _ if test.fast => tally.skip(name, "left out by --fast"),
            (_, Some(path)) => {
                let remedy = disc::UEFI_INSTALL;
                tally.skip(name, &format!("no {path}; install it with  {remedy}"));
            }
            _ => tally.check(name, || check(fleet)),
        }
    }
}

/// On a machine that cannot be ended from inside.
fn boot_stick(fleet: &Fleet, uefi: Option<&Path>, effort: Effort) -> Outcome<String> {
    let directory = tempfile::tempdir().doing("make a temporary directory")?;
    let image = fleet.pc_image(directory.path(), effort)?;
    let halted = fleet
        .image_boot(&image, uefi, CPUS, DEADLINE)?
        .run_to_halt(directory.path())?;
    let rows = whole(&halted.console, effort)?;
    let titles = BENCHES.iter().map(|(name, ..)| format!("\n{name}: "));
    let due = ["shootdown ".to_owned(), "\ndone: ".to_owned()];
    for words in titles.chain(due) {
        if !halted.screen.contains(&words) {
            return Err(Failure::work(format!(
                "no {words:?} on the screen:\n{}",
                halted.screen
            )));
        }
    }
    Ok(format!("{rows} rows"))
}

fn boot_disc(fleet: &Fleet) -> Outcome<String> {
    let directory = tempfile::tempdir().doing("make a temporary directory")?;
    let image = fleet.pc_image(directory.path(), Effort::Least)?;
    let (end, console) = fleet.image_boot(&image, None, CPUS, DEADLINE)?.run()?;
    if end != End::Exited(0) {
        let last = console.lines().next_back();
        return Err(Failure::work(format!(
            "{end}; the console ends with {last:?}"
        )));
    }
    whole(&console, Effort::Least).map(|rows| format!("{rows} rows"))
}

/// Passes if all benches have printed all of their rows on two CPUs, and none was wrong; how many rows there are.
pub fn whole(console: &str, effort: Effort) -> Outcome<usize> {
    let survey = Survey::read(console)?.ok_or_else(|| Failure::work("no survey began"))?;
    survey.judge()?;
    for (name, quick, least) in BENCHES {
        let due = if effort == Effort::Least {
            least
        } else {
            quick
        };
        let mut benches = survey.benches.iter();
        let found = benches.find(|bench| bench.name() == name);
        let rows = found.map_or(0, |bench| bench.rows.len());
        if rows != due {
            return Err(Failure::work(format!(
                "{rows} rows of {name} where {due} were due"
            )));
        }
    }
    let rows = Row::all_of(console)?;
    let is_empty = |row: &&Row| row.number("median_ns").is_none_or(|ns| ns <= 0.0);
    match rows.iter().find(is_empty) {
        None => Ok(rows.len()),
        Some(row) => Err(Failure::work(format!("nothing was measured in {row:?}"))),
    }
}
