//! Programs of Debian packages, unchanged, from images that `lab image` makes.
//!
//! Each must end with status 0 on the reference kernel; with `--soak` on 4 CPUs, too, and many more of them.

use std::time::Duration;

use super::fleet::{Fleet, Start};
use super::tally::Tally;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::machine::Finished;

/// What runs programs of an image.
const START: &str = "start";
/// Memory beyond what an image needs.
const MORE_MIB: u32 = 1024;
/// Ten times what the longest takes on an idle host.
const DEADLINE: Duration = Duration::from_secs(600);

/// A program, what it is to do, and what it then says.
struct Program {
    image: &'static str,
    words: &'static str,
    says: &'static str,
    /// What it reads, by path.
    file: Option<(&'static str, &'static str)>,
    is_long: bool,
}

const TABLES: &str = "\
pragma journal_mode=wal;
create table t(a integer primary key, b text);
with recursive c(x) as (select 1 union all select x+1 from c where x<2000) insert into t select x, hex(x) from c;
begin; update t set b = b || '!' where a % 2; rollback;
delete from t where a > 1000;
vacuum;
select count(*) || ' rows, ' || sum(a) from t;
pragma integrity_check;
";

const PROGRAMS: [Program; 4] = [
    Program {
        image: "sqlite3",
        words: "/usr/bin/sqlite3 -batch -init /boot/tables.sql /tmp/t.db .quit",
        says: "1000 rows, 500500",
        file: Some(("boot/tables.sql", TABLES)),
        is_long: false,
    },
    Program {
        image: "sysbench",
        words: "/usr/bin/sysbench memory --memory-total-size=256M --threads=2 run",
        says: "256.00 MiB transferred",
        file: None,
        is_long: false,
    },
    Program {
        image: "python",
        words: "/usr/bin/python3 -m test test_mmap",
        says: "Tests result: SUCCESS",
        file: None,
        is_long: true,
    },
    Program {
        image: "python",
        words: "/usr/bin/python3 -m test test_threading",
        says: "Tests result: SUCCESS",
        file: None,
        is_long: true,
    },
];

/// Stressors of stress-ng, and options of theirs where their own sizes are for larger machines.
const STRESSORS: [(&str, &str); 23] = [
    ("mmap", "--mmap-bytes=16m"),
    ("mmapfork", ""),
    ("mmapmany", ""),
    ("madvise", ""),
    ("mremap", "--mremap-bytes=16m"),
    ("mprotect", ""),
    ("tlb-shootdown", ""),
    ("vm", "--vm-bytes=16m"),
    ("vm-rw", "--vm-rw-bytes=16m"),
    ("brk", ""),
    ("stack", ""),
    ("fork", ""),
    ("clone", ""),
    ("pthread", ""),
    ("futex", ""),
    ("sem", ""),
    ("switch", ""),
    ("pipe", ""),
    ("malloc", "--malloc-bytes=1m"),
    ("memfd", "--memfd-bytes=16m"),
    ("msync", "--msync-bytes=16m"),
    ("munmap", ""),
    ("pagemove", "--pagemove-bytes=4m"),
];

/// Runs them all, or skips those of which there is no image.
pub fn check(test: &Test, fleet: &Fleet, tally: &mut Tally) {
    if test.fast {
        return tally.skip("debian: programs of packages", "left out by --fast");
    }
    let is_wanted = |program: &&Program| test.soak || !program.is_long;
    for program in PROGRAMS.iter().filter(is_wanted) {
        for cpus in cpus(test) {
            let words = program.words.trim_start_matches("/usr/bin/");
            let name = format!("debian: {words} on {cpus} CPUs");
            run(tally, &name, program.image, |image| {
                let file = program
                    .file
                    .map(|(path, text)| (path.to_owned(), text.into()));
                let finished = boot(fleet, image, program.words, file, cpus)?;
                match finished.console.contains(program.says) {
                    true => Ok(String::new()),
                    false => Err(finished.unexpected(program.says)),
                }
            });
        }
    }
    if !test.soak {
        return tally.skip(
            "debian: python's tests, stressors",
            "left out without --soak",
        );
    }
    for (stressor, option) in STRESSORS {
        for cpus in cpus(test) {
            let name = format!("debian: stress-ng --{stressor} on {cpus} CPUs");
            run(tally, &name, "stress-ng", |image| {
                let words = format!(
                    "/usr/bin/stress-ng --{stressor} 1 {option} --timeout 5 --verify --metrics-brief"
                );
                operations(&boot(fleet, image, &words, None, cpus)?, stressor)
            });
        }
    }
}

fn cpus(test: &Test) -> Vec<usize> {
    if test.soak { vec![2, 4] } else { vec![2] }
}

fn run(tally: &mut Tally, name: &str, image: &str, check: impl FnOnce(&Image) -> Outcome<String>) {
    match Image::open(image) {
        Ok(image) => tally.check(name, || check(&image)),
        Err(_) => tally.skip(name, "no image of its packages here: .ci/images makes all"),
    }
}

fn boot(
    fleet: &Fleet,
    image: &Image,
    words: &str,
    file: Option<(String, Vec<u8>)>,
    cpus: usize,
) -> Outcome<Finished> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let arguments = format!("--directory=/tmp {}", words.join(" "));
    let files: Vec<_> = file.into_iter().collect();
    let mut start = Start::on(cpus);
    start.arguments = &arguments;
    // More than `brk` takes in its seconds: who is short of memory in a handler's frame dies of what another has taken.
    start.memory_mib = image.memory_mib() + MORE_MIB;
    start.image = Some(image.tree());
    start.files = &files;
    start.deadline = DEADLINE;
    fleet
        .boot(&fleet.kernel, START, start)?
        .expect_success(words[0])
}

/// How much a stressor has done; one that has done nothing was not run.
fn operations(finished: &Finished, stressor: &str) -> Outcome<String> {
    let row = finished.console.lines().find_map(|line| {
        let (_, row) = line.split_once("metrc: ")?;
        let mut words = row.split_whitespace().skip(1);
        (words.next()? == stressor).then(|| words.next()?.parse::<u64>().ok())?
    });
    match row {
        Some(1..) => Ok(format!("{} operations", row.unwrap_or(0))),
        _ => Err(Failure::work(format!(
            "{stressor} did nothing; {}",
            finished.account()
        ))),
    }
}
