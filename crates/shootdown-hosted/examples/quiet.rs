//! What a way into the kernel and out of it costs a quiet CPU that has missed nothing, and one that is not quiet, beside an empty system call of this host: instructions, and
//! cycles of the counter of one core, one after the other. The figure `quiet-cores`.
//!
//! ```text
//! cargo run --release -p shootdown-hosted --example quiet -- [--json FILE]
//! ```

#[path = "stepping/measure.rs"]
mod measure;
mod stepping;

use measure::{count, cycles};
use serde_json::json;
use shootdown::*;
use stepping::Puppet;

type Quiet = Puppet<Cpus<64>, false, true>;

static ENGINE: Shootdown<Quiet> = Shootdown::new(Puppet::new(|| ENGINE.handle_ipi()));
static MEMORY: [CpuMemory<Quiet>; 1] = [const { CpuMemory::new() }; 1];

fn main() {
    ENGINE.attach(CpuId::new(0), &MEMORY);
    ENGINE.online();
    let leave = || _ = ENGINE.control().leave_quiet();
    let leave_and_enter = || {
        // SAFETY: 1. and 2. it leaves at once.
        unsafe { ENGINE.control().enter_quiet() };
        leave();
    };
    // SAFETY: it takes nothing.
    let getpid = || _ = unsafe { libc::syscall(libc::SYS_getpid) };
    // The first one has never been quiet.
    let works: [(&str, &dyn Fn()); 3] = [
        ("leave", &leave),
        ("leave and enter", &leave_and_enter),
        ("getpid", &getpid),
    ];
    let row = |(operation, work): (&str, &dyn Fn())| {
        let (instructions, cycles) = (count(work), cycles(work));
        println!("{operation}: {instructions} instructions, {cycles} cycles");
        json!({"from": "user mode", "operation": operation, "instructions": instructions, "cycles": cycles})
    };
    let rows = works.map(row);
    if let [_, json, file] = &std::env::args().collect::<Vec<_>>()[..]
        && json == "--json"
    {
        let result = json!({ "rows": rows }).to_string();
        std::fs::write(file, result).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}
