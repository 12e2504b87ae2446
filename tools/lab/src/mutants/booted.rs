//! A check that boots the kernel around one of the programs that check themselves.

use std::path::Path;
use std::time::Duration;

use crate::failure::{Failure, Outcome};
use crate::machine::{AccelChoice, Boot, Emulator, End, Kernel, MEMORY_MIB};
use crate::program;
use crate::session::Session;

/// As many as there are cores on a small host.
const CPUS: usize = 2;

/// Boots `kernel` around `program`, and returns what went wrong, if anything. A machine that does not end by `deadline` fails.
///
/// # Errors
/// There is no emulator, or it failed itself; or the program checked nothing.
pub fn run(
    kernel: &Path,
    program: &Path,
    options: &str,
    deadline: Duration,
) -> Outcome<Option<String>> {
    let session = Session::open(&crate::cli::Emulator::default(), &[])?;
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let boot = Boot {
        // It has what the host may lack: virtual machines.
        emulator: Emulator::Qemu(&session.qemu, AccelChoice::Tcg.settle(CPUS)?),
        cpus: CPUS,
        memory_mib: MEMORY_MIB,
        kernel: &Kernel::Shootdown(kernel.to_owned()),
        options,
        image: None,
        program: (&name, &program::read(program)?),
        arguments: "",
        files: &[],
        deadline,
    };
    let finished = boot.run(&mut |_| ())?;
    let mut lines = finished.console.lines();
    let told = lines.find(|line| line.contains(": FAILED: "));
    let ends_well = format!("{name}: OK");
    let is_proof = |line: &str| line.contains(" ok, ") || line.starts_with(&ends_well);
    let has_checked = finished.console.lines().any(is_proof);
    match (&finished.end, told) {
        (End::Exited(0), _) if has_checked => Ok(None),
        (End::Exited(0), _) => Err(Failure::work(format!("{name} checked nothing"))),
        (_, Some(line)) => Ok(Some(line.trim().to_owned())),
        (End::Emulator(_), None) => Err(Failure::work(finished.account())),
        (end, None) => Ok(Some(end.to_string())),
    }
}
