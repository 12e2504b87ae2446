//! A check that boots the kernel around one of the programs that check themselves.

use std::path::Path;
use std::time::Duration;

use crate::failure::Outcome;
use crate::machine::{
    AccelChoice, Boot, Emulator, End, Finished, Kernel, MEMORY_MIB, find_or_install,
};
use crate::program;

/// As many as there are cores on a small host.
const CPUS: usize = 2;

/// Boots `kernel` around `program`, and returns what went wrong, if anything. A machine that does not end by `deadline` fails.
///
/// # Errors
/// There is no emulator, or it cannot be started.
pub fn run(kernel: &Path, program: &Path, deadline: Duration) -> Outcome<Option<String>> {
    let qemu = find_or_install(None)?;
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let boot = Boot {
        emulator: Emulator::Qemu(&qemu, AccelChoice::Auto.settle(CPUS)?),
        cpus: CPUS,
        memory_mib: MEMORY_MIB,
        kernel: &Kernel::Shootdown(kernel.to_owned()),
        options: "",
        program: (&name, &program::read(program)?),
        arguments: "",
        files: &[],
        deadline,
    };
    let finished = boot.run(&mut |_| ())?;
    Ok((!matches!(finished.end, End::Exited(0))).then(|| evidence(&finished)))
}

/// What the program says that failed, or how the machine ended.
fn evidence(finished: &Finished) -> String {
    let is_told = |line: &&str| line.contains(": FAILED: ");
    let told = finished.console.lines().find(is_told);
    told.map_or_else(|| finished.end.to_string(), |line| line.trim().to_owned())
}
