//! Ring 0 of the reference kernel in the emulator.

use std::cell::RefCell;
use std::time::Duration;

use super::Ended;
use super::patience::Patience;
use crate::cli::{MachineKind, Torture};
use crate::failure::Outcome;
use crate::machine::{Boot, Emulator, MEMORY_MIB};
use crate::session::{self, Session};

/// The kernel itself names a worker that is stuck for 30 s and tells what all CPUs do; a machine that does not even do that
/// hangs as a whole.
const PATIENCE: Duration = Duration::from_secs(45);
/// From the emulator's start to the first step, and from the last to the end, on a busy host.
const MARGIN: Duration = Duration::from_secs(120);

/// Boots the kernel and listens.
pub fn run(arguments: &Torture) -> Outcome<Ended> {
    let cpus = session::cpus(arguments.cpus)?;
    let session = Session::open(&arguments.emulator, &[])?;
    let kernel = session.kernel(MachineKind::Qemu)?;
    let boot = Boot {
        // One host thread a virtual CPU, beyond the host's cores too: CPUs that take turns race less.
        emulator: Emulator::Qemu(&session.qemu, arguments.emulator.accel.settle(1)?),
        cpus,
        memory_mib: MEMORY_MIB,
        kernel: &kernel,
        options: &format!("torture={} seed={}", arguments.seconds, arguments.seed),
        // Nothing runs in ring 3.
        image: None,
        program: ("none", b""),
        arguments: "",
        files: &[],
        deadline: Duration::from_secs(arguments.seconds.into()) * 2 + MARGIN,
    };
    let patience = RefCell::new(Patience::new(arguments.seconds.into(), PATIENCE));
    let finished = boot.run_until(&mut |line| patience.borrow_mut().listen(line), &mut || {
        patience.borrow_mut().is_over()
    })?;
    let (hearing, hang) = patience.into_inner().conclude();
    let trouble = match (hang, hearing.verdict) {
        (None, Some(_)) => None,
        (Some(hang), _) => Some(format!("{hang}; {}", finished.account())),
        (None, None) => Some(finished.account()),
    };
    Ok(Ended { hearing, trouble })
}
