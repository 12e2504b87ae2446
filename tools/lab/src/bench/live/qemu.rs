//! Ring 0 of the reference kernel in the emulator.

use shootdown_calls::Rest;

use super::group::Group;
use crate::cli::{Emulator, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::machine::{Accel, Boot, End, Kernel};
use crate::session::Session;

/// The emulator with a kernel.
pub struct Qemu {
    session: Session,
    kernel: Kernel,
    emulator: Emulator,
}

impl Qemu {
    /// Finds and builds them.
    pub fn open(emulator: &Emulator) -> Outcome<Self> {
        let session = Session::open(emulator, &[])?;
        let kernel = session.kernel(MachineKind::Qemu)?;
        Ok(Self {
            session,
            kernel,
            emulator: emulator.clone(),
        })
    }

    /// What a group's machine runs on. Where resting CPUs spin, all of them are busy.
    pub fn accel(&self, group: &Group) -> Outcome<Accel> {
        let busy = if group.rest == Rest::Halt {
            1
        } else {
            group.cpus
        };
        self.emulator.accel.settle(busy)
    }

    /// Boots a machine and hands over its lines. A wrong call is no failure here: its row says more.
    pub fn run(&self, group: &Group, on_line: &mut dyn FnMut(&str)) -> Outcome<()> {
        let boot = Boot {
            qemu: &self.session.qemu,
            accel: self.accel(group)?,
            cpus: group.cpus,
            kernel: &self.kernel,
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
}
