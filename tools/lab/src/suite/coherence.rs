//! Checks that no stale translation is ever used, and that they would notice if one were.

use std::time::Duration;

use super::machines::Bench;
use super::tally::Tally;
use crate::cli::Test;
use crate::failure::{Failure, Outcome};
use crate::machine::{End, Finished, Kernel};
use crate::protocol::{self, Message};

const POLICIES: [&str; 3] = ["before", "published", "best"];
/// Steps that the breakable kernel leaves out; tlbtorture has to notice each.
const BREAKS: [&str; 3] = ["no-remote", "no-wait", "free-early"];
/// Within so many seconds it has to notice.
const BREAK_SECONDS: u32 = 60;
/// What a boot needs beyond the time that the program was given.
const ALLOWANCE: Duration = Duration::from_secs(60);

/// Runs them all.
pub fn check(test: &Test, bench: &Bench, tally: &mut Tally) {
    let machines: &[usize] = if test.fast { &[2] } else { &[2, 4] };
    for &cpus in machines {
        tally.check(
            &format!("coherence: madvise checks itself on {cpus} CPUs"),
            || madvise(bench, bench.kernel(), cpus),
        );
    }
    let (seconds, machines): (u32, &[usize]) = match (test.fast, test.soak) {
        (true, _) => (3, &[2, 4]),
        (_, true) => (60, &[2, 4, 8]),
        _ => (6, &[2, 4, 8]),
    };
    for &cpus in machines {
        for policy in POLICIES {
            let name = format!("coherence: tlbtorture, {policy}, {seconds} s on {cpus} CPUs");
            tally.check(&name, || {
                torture(bench, bench.kernel(), policy, seconds, cpus)
            });
        }
    }
    for step in BREAKS {
        tally.check(&format!("coherence: tlbtorture notices {step}"), || {
            broken(bench, step)
        });
    }
    on_linux(bench, tally);
}

/// The same programs on Linux: a difference is ours.
fn on_linux(bench: &Bench, tally: &mut Tally) {
    for name in ["linux: madvise checks itself", "linux: tlbtorture"] {
        match bench.linux() {
            None => tally.skip(
                name,
                "no Linux image here; `./lab doctor` says how to get one",
            ),
            Some(linux) if name.ends_with("torture") => {
                tally.check(name, || torture(bench, &linux, "linux", 3, 2))
            }
            Some(linux) => tally.check(name, || madvise(bench, &linux, 2)),
        }
    }
}

fn madvise(bench: &Bench, kernel: &Kernel, cpus: usize) -> Outcome<String> {
    let threads = format!("--threads=1,{cpus}");
    let arguments = [
        "--pages=1,32",
        &threads,
        "--slice-ms=20",
        "--rounds=1",
        "--warmup-ms=5",
        "--self-check",
    ];
    let finished = bench.boot(kernel, "", "madvise", &arguments, cpus, ALLOWANCE)?;
    clean(&finished)
}

fn torture(
    bench: &Bench,
    kernel: &Kernel,
    policy: &str,
    seconds: u32,
    cpus: usize,
) -> Outcome<String> {
    clean(&run_torture(bench, kernel, "", policy, seconds, cpus)?)
}

fn run_torture(
    bench: &Bench,
    kernel: &Kernel,
    options: &str,
    policies: &str,
    seconds: u32,
    cpus: usize,
) -> Outcome<Finished> {
    let words = [
        format!("--seconds={seconds}"),
        format!("--threads={cpus}"),
        format!("--policies={policies}"),
    ];
    let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    let deadline = ALLOWANCE + Duration::from_secs(u64::from(seconds) * 2);
    bench.boot(kernel, options, "tlbtorture", &arguments, cpus, deadline)
}

/// Passes if the program ended well, did something, and saw nothing stale.
fn clean(finished: &Finished) -> Outcome<String> {
    let (rows, stale, work) = count(finished)?;
    if finished.end != End::Exited(0) || rows == 0 || stale > 0 || work == 0 {
        return Err(Failure::work(format!(
            "{rows} rows, {work} operations, {stale} stale; {}",
            finished.account()
        )));
    }
    Ok(format!("{work} operations, none stale"))
}

/// Passes if the program failed because of what it saw, and not in another way.
fn broken(bench: &Bench, step: &str) -> Outcome<String> {
    let finished = run_torture(
        bench,
        bench.breakable(),
        &format!("break={step}"),
        "best",
        BREAK_SECONDS,
        2,
    )?;
    let (_, stale, work) = count(&finished)?;
    if finished.end == End::Exited(1) && stale > 0 {
        return Ok(format!(
            "{stale} stale among {work} operations, after {:.1} s",
            finished.elapsed.as_secs_f64()
        ));
    }
    Err(Failure::work(format!(
        "without {step}: {work} operations, {stale} stale; {}",
        finished.account()
    )))
}

/// Rows, stale accesses and operations that the console shows.
fn count(finished: &Finished) -> Outcome<(u64, u64, u64)> {
    let (mut rows, mut stale, mut work) = (0, 0, 0);
    for line in finished.console.lines() {
        match protocol::parse(line.trim_end()) {
            Some(Ok(Message::Row(row))) => {
                let number = |key: &str| row.get(key).and_then(serde_json::Value::as_u64);
                rows += 1;
                stale += number("stale")
                    .ok_or_else(|| Failure::work(format!("a row without `stale`: {line}")))?;
                work += number("operations").or(number("iterations")).unwrap_or(0);
            }
            Some(Err(garbled)) => return Err(Failure::work(garbled)),
            _ => {}
        }
    }
    Ok((rows, stale, work))
}
