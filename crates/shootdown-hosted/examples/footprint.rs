//! What the engine costs whatever the machine: bytes, instructions and stack, for several numbers of CPUs.
//!
//! A platform that does nothing plays two CPUs on one thread: while CPU 0 relaxes, CPU 1 takes its interrupt. The whole runs in a child
//! process that is single-stepped, so every instruction of both CPUs is counted and the stack pointer is seen at each. With
//! `--check` it ends with an error when a limit is exceeded. With `--where` it tells in which function of the engine the instructions
//! of `call_one` are, before inlining; for that it needs `addr2line` (Debian package binutils).
//!
//! ```text
//! cargo run --release -p shootdown-hosted --example footprint [-- --check | --where | --json FILE]
//! ```

#[path = "../../shootdown-sim/examples/rows/mod.rs"]
mod rows;
mod stepping;

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use shootdown::calls::CallData;
use shootdown::*;
use stepping::{Puppet, step_through};

/// Instructions of one operation, and bytes of stack below its caller.
#[derive(Clone, Copy)]
struct Cost {
    instructions: u64,
    stack: u64,
}

/// What is measured for one number of CPUs.
struct Row {
    cpus: usize,
    engine: usize,
    memory: usize,
    /// As in [`OPERATIONS`].
    costs: [Cost; OPERATIONS.len()],
}

/// Between two CPUs, until the one that asked knows that it is done.
const OPERATIONS: [&str; 12] = [
    "call_one",
    "flush, call_one that flushes",
    "call_many, a mask of one",
    "call_any",
    "call_collect",
    "post",
    "post_data",
    "kick",
    "flush, a page",
    "flush, three pages far apart",
    "flush_kernel, a page",
    "poll, nothing there",
];
const CALL: usize = 0;
const CALL_THAT_FLUSHES: usize = 1;

/// A machine of this many CPUs, two of which are there.
macro_rules! row {
    ($cpus:literal) => {{
        static ENGINE: Shootdown<Puppet<Cpus<$cpus>>> =
            Shootdown::new(Puppet::new(|| ENGINE.handle_ipi()));
        static MEMORY: [CpuMemory<Puppet<Cpus<$cpus>>>; 2] = [const { CpuMemory::new() }; 2];
        static SPACE: std::sync::OnceLock<AddressSpace<Cpus<$cpus>>> = std::sync::OnceLock::new();
        static DATA: CallData<fn(CpuId)> = CallData::new(|_| ());
        ENGINE.attach(CpuId::new(0), &MEMORY);
        // SAFETY: nothing is loaded.
        let space = SPACE.get_or_init(|| AddressSpace::new(&ENGINE, unsafe { Root::new(1) }));
        for cpu in [1, 0] {
            ENGINE.platform().current.store(cpu, Ordering::Relaxed);
            ENGINE.online();
            ENGINE.switch_to(None, space);
        }
        let other = CpuMask::only(CpuId::new(1));
        let page = |at: usize| FlushRange::pages(at << 12, 1, PageSize::SIZE_4K);
        let mut apart = FlushRanges::from(page(7));
        apart.add(page(70));
        apart.add(page(700));
        let flush = || ENGINE.flush(space, page(7), FreedTables::No);
        let call = || ENGINE.call_one(CpuId::new(1), &|_| ());
        if $cpus == 64 && std::env::args().any(|argument| argument == "--where") {
            print_where(call).expect("addr2line, of binutils, runs");
        }
        let costs = [
            measure(call),
            // CPU 1 has served a flush, so its own is done before it is acknowledged: the deepest path.
            measure(|| (flush(), ENGINE.call_one(CpuId::new(1), &|_| flush()))),
            measure(|| ENGINE.call_many(&other, &|_| ())),
            measure(|| ENGINE.call_many(CallTargets::AnyOf(&other), &|_| ())),
            measure(|| ENGINE.call_collect(&other, &|_| 1u64, &mut [None, None])),
            measure(|| {
                ENGINE.try_post(&other, |_| ()).unwrap();
                ENGINE.platform().relax();
            }),
            measure(|| {
                let _ = ENGINE.post_data(CpuId::new(1), &DATA);
                ENGINE.platform().relax();
            }),
            measure(|| ENGINE.control().kick(&other).wait()),
            measure(flush),
            measure(|| ENGINE.flush(space, apart, FreedTables::No)),
            measure(|| ENGINE.flush(FlushScope::Kernel, page(7), FreedTables::No)),
            measure(|| ENGINE.poll()),
        ];
        Row {
            cpus: $cpus,
            engine: size_of::<Shootdown<Puppet<Cpus<$cpus>>>>(),
            memory: size_of::<CpuMemory<Puppet<Cpus<$cpus>>>>(),
            costs,
        }
    }};
}

/// Instructions and stack of `operation`.
fn measure<R>(operation: impl Fn() -> R) -> Cost {
    let (mut instructions, mut lowest) = (0, u64::MAX);
    let first = step_through(operation, |seen| {
        instructions += 1;
        lowest = lowest.min(seen.rsp);
    });
    Cost {
        instructions,
        stack: first - lowest,
    }
}

/// Prints how many instructions of `operation` are in which function of the engine: the innermost one, before inlining.
fn print_where<R>(operation: impl Fn() -> R) -> Result<(), Box<dyn std::error::Error>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let base = maps.split('-').next().ok_or("no mapping of the program")?;
    let base = u64::from_str_radix(base, 16)?;
    let mut seen = Vec::new();
    step_through(operation, |registers| {
        seen.push(format!("{:x}", registers.rip - base))
    });
    let mut addr2line = std::process::Command::new("addr2line");
    addr2line
        .args(["-aifCe"])
        .arg(std::env::current_exe()?)
        .args(&seen);
    let output = String::from_utf8(addr2line.output()?.stdout)?;
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    for frames in output.split("0x").skip(1) {
        // An address, and for each frame, from the innermost on, a function and where it stands.
        let lines: Vec<_> = frames.lines().skip(1).collect();
        let mut frames = lines.chunks(2).filter_map(|frame| {
            let (_, file) = frame.get(1)?.split_once("/shootdown/src/")?;
            let mut path = frame[0].rsplit("::");
            let (function, owner) = (path.next()?, path.next()?);
            let owner = owner.split('<').next()?;
            Some(format!("{}, {owner}::{function}", file.split(':').next()?))
        });
        let place = frames.next().unwrap_or_else(|| "the host".to_string());
        *counts.entry(place).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (place, count) in counts {
        println!("{count:>4} {place}");
    }
    println!("{:>4} in all", seen.len());
    Ok(())
}

fn print(rows: &[Row]) {
    let line = |name: &str, of: &dyn Fn(&Row) -> String| {
        let cells: String = rows.iter().map(|row| format!("{:>13}", of(row))).collect();
        println!("{name:<30}{cells}");
    };
    line("CPUs of the engine", &|row| row.cpus.to_string());
    line("engine, B", &|row| row.engine.to_string());
    line("memory of each CPU, B", &|row| row.memory.to_string());
    println!("instructions of both CPUs / bytes of stack");
    for (at, name) in OPERATIONS.iter().enumerate() {
        let cell = |row: &Row| format!("{} / {}", row.costs[at].instructions, row.costs[at].stack);
        line(name, &cell);
    }
}

/// What `lab figures` shows of a row.
fn told(row: &Row) -> impl Iterator<Item = Value> {
    OPERATIONS.iter().zip(&row.costs).map(|(operation, cost)| {
        json!({
            "cpus": row.cpus, "engine": row.engine, "memory": row.memory,
            "operation": operation, "instructions": cost.instructions, "stack": cost.stack,
        })
    })
}

/// Bytes of a call whose function flushes what its initiator drops before it acknowledges: the deepest that the engine goes.
const MOST_STACK: u64 = 2112;

/// What the documentation promises.
fn broken_promises(rows: &[Row]) -> Vec<String> {
    let mut broken = Vec::new();
    let [first, several] = [1, 2].map(|row: usize| rows[row].costs[CALL].instructions);
    for row in rows {
        let (call, stack) = (
            row.costs[CALL].instructions,
            row.costs[CALL_THAT_FLUSHES].stack,
        );
        // One word of targets; several, which cost the same however many they are.
        let (like, per_cent) = match row.cpus {
            ..=64 => (first, 5),
            256 => (first, 20),
            _ => (several, 5),
        };
        if call.abs_diff(like) * 100 > like * per_cent {
            broken.push(format!(
                "a call takes {call} instructions with {} CPUs, not about {like}",
                row.cpus
            ));
        }
        if stack > MOST_STACK {
            broken.push(format!("{stack} B of stack with {} CPUs", row.cpus));
        }
        if row.engine > 4 << 20 {
            broken.push(format!("an engine of {} B", row.engine));
        }
    }
    broken
}

fn main() -> ExitCode {
    let rows = [row!(4), row!(64), row!(256), row!(1024), row!(4096)];
    print(&rows);
    rows::write(rows.iter().flat_map(told).collect());
    let broken = broken_promises(&rows);
    if std::env::args().any(|argument| argument == "--check") && !broken.is_empty() {
        broken.iter().for_each(|promise| println!("{promise}"));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
