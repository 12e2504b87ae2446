//! [`Machine`]: where CPUs are real, and how it is started.

use std::path::PathBuf;
use std::process::Command;

use shootdown_callbench::Rest;

use super::group::Group;
use crate::cargo;
use crate::cli::{Emulator, MachineKind};
use crate::cli_calls::CallsMachine;
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::{Accel, Boot, Child, End, Kernel};
use crate::session::Session;

/// A machine, ready to start.
pub enum Machine {
    /// Ring 0 of the reference kernel in the emulator.
    Qemu {
        /// The emulator.
        session: Session,
        /// The kernel.
        kernel: Kernel,
        /// What the caller says about both.
        emulator: Emulator,
    },
    /// Threads as CPUs on this host, in a process of their own: if it dies, the lab says how.
    Hosted(PathBuf),
}

impl Machine {
    /// Finds and builds what it needs.
    ///
    /// # Errors
    /// It is the simulated one, or something is missing.
    pub fn open(kind: CallsMachine, emulator: &Emulator) -> Outcome<Self> {
        match kind {
            CallsMachine::Qemu => {
                let session = Session::open(emulator, &[])?;
                Ok(Self::Qemu {
                    kernel: session.kernel(MachineKind::Qemu)?,
                    session,
                    emulator: emulator.clone(),
                })
            }
            CallsMachine::Hosted => Ok(Self::Hosted(cargo::build_hosted_calls()?)),
            CallsMachine::Sim => Err(Failure::input(
                "the simulated machine has no CPUs of its own",
                "use --machine qemu or hosted",
            )),
        }
    }

    /// Starts it and hands over its lines; returns what it ran on. A wrong call is no failure here: its row says more.
    pub fn run(&self, group: &Group, on_line: &mut dyn FnMut(&str)) -> Outcome<String> {
        match self {
            Self::Qemu {
                session,
                kernel,
                emulator,
            } => {
                // Where resting CPUs spin, all of them are busy.
                let busy = match group.rest {
                    Rest::Halt => 1,
                    _ => group.cpus,
                };
                let accel = emulator.accel.settle(busy)?;
                boot(session, kernel, accel, group, on_line)?;
                Ok(accel.to_string())
            }
            Self::Hosted(program) => {
                start(program, group, on_line)?;
                Ok("threads of this host".into())
            }
        }
    }
}

fn boot(
    session: &Session,
    kernel: &Kernel,
    accel: Accel,
    group: &Group,
    on_line: &mut dyn FnMut(&str),
) -> Outcome<()> {
    let boot = Boot {
        qemu: &session.qemu,
        accel,
        cpus: group.cpus,
        kernel,
        options: &format!("calls={}", group.words),
        // Nothing runs in ring 3.
        program: ("none", b""),
        arguments: &[],
        deadline: group.deadline,
    };
    let finished = boot.run(on_line)?;
    match finished.end {
        End::Exited(0 | 1) => Ok(()),
        _ => Err(Failure::work(format!(
            "calls in ring 0: {}",
            finished.account()
        ))),
    }
}

fn start(program: &PathBuf, group: &Group, on_line: &mut dyn FnMut(&str)) -> Outcome<()> {
    let mut command = Command::new(program);
    command
        .arg(format!("--cpus={}", group.cpus))
        .arg(&group.words);
    let child =
        Child::run(&mut command, group.deadline, on_line).doing("start the hosted machine")?;
    let how = match child.status {
        None => format!("it did not end in {} s", group.deadline.as_secs()),
        Some(status) if matches!(status.code(), Some(0 | 1)) => return Ok(()),
        Some(status) => format!("it ended with {status}"),
    };
    Err(Failure::work(format!(
        "calls on threads: {how}\n{}",
        child.errors.trim()
    )))
}
