//! RUN: into the guest and back, until it is the VMM's turn.

use shootdown::{CpuId, guest::GuestExit, tags::TagEntries};
use shootdown_x86::guest::{GuestEntries, GuestEntry, GuestTags};

use super::abi::{exit, run};
use super::exits::{Next, code};
use super::host;
use super::interrupt::V_INTR_MASKING;
use super::machine::Machine;
use super::request::Caller;
use super::vcpu::{State, Vcpu};
use super::vmcb::{Field, Vmcb};
use crate::arch::svm::GuestRegisters;
use crate::arch::{fpu, percpu, svm};
use crate::errno::Errno;
use crate::platform::SHOOTDOWN;
use crate::{latency, preempt, quiet};

/// The exit code of a guest that is refused, with its sign.
const REFUSED: u64 = u64::MAX;

/// What became of an attempt to run the guest.
enum Attempt {
    /// It ran.
    Ran,
    /// The thread has something else to do first.
    Interrupted,
    /// The processor refuses the guest, or would, or what chooses its tags does.
    Refused { cpu: CpuId, by_processor: bool },
}

impl Vcpu {
    /// `KVM_RUN`. The calling thread is the virtual CPU until there is something for the VMM to do.
    ///
    /// # Errors
    /// EINTR for a signal, or where the VMM said so beforehand. EFAULT or ENOMEM for memory that the VMM could not access itself.
    pub(super) fn run(&self, caller: &Caller<'_>) -> Result<(), Errno> {
        let mut state = self.state();
        state.finish(&self.page);
        let done = match self.page.wants_exit() {
            true => Err(Errno::EINTR),
            false => self.run_until_exit(&mut state, caller),
        };
        state.say_it_left(&self.machine().memory);
        if done == Err(Errno::EINTR) {
            self.page.set_reason(exit::INTR);
        }
        self.page
            .write(run::IF_FLAG, u8::from(state.has_interrupts_on()));
        let is_ready = u8::from(state.is_ready_for_interrupt());
        self.page.write(run::READY_FOR_INTERRUPT, is_ready);
        self.page.write(run::CR8, state.cr8());
        self.page.write(run::APIC_BASE, state.apic_base);
        done
    }

    fn run_until_exit(&self, state: &mut State, caller: &Caller<'_>) -> Result<(), Errno> {
        loop {
            if (caller.is_interrupted)() {
                return Err(Errno::EINTR);
            }
            state.say_it_runs(&self.machine().memory);
            state.place_events(self.page.wants_window());
            match state.attempt(self.machine(), caller)? {
                Attempt::Ran => {}
                Attempt::Interrupted => continue,
                Attempt::Refused { cpu, by_processor } => {
                    if by_processor {
                        // QEMU leaves registers of the host where the guest's were.
                        state.reset();
                    }
                    self.page.set_fail_entry(REFUSED, cpu.as_u32());
                    return Ok(());
                }
            }
            match state.handle_exit(self.machine(), &self.page)? {
                Next::Guest => {}
                Next::Vmm => return Ok(()),
            }
            if self.page.wants_window() && state.is_ready_for_interrupt() {
                self.page.set_reason(exit::IRQ_WINDOW_OPEN);
                return Ok(());
            }
        }
    }
}

const fn refused(cpu: CpuId, by_processor: bool) -> Attempt {
    Attempt::Refused { cpu, by_processor }
}

impl State {
    /// Enters the guest once, on this CPU, which the thread may have come to since the last time, and gives the CPU away if that is due then.
    fn attempt(&mut self, machine: &Machine, caller: &Caller<'_>) -> Result<Attempt, Errno> {
        let attempt = host::with_tags(|cpu, tags| {
            let attempt = self.attempt_on(machine, caller, (cpu, tags));
            // Until the guest is told that it does not run.
            preempt::disable();
            attempt
        });
        let attempt = attempt.ok_or(Errno::ENODEV)?;
        // Interrupts have been on again.
        if percpu::need_resched() {
            self.say_it_gives_way(&machine.memory);
        }
        preempt::enable();
        Ok(attempt)
    }

    fn attempt_on(
        &mut self,
        machine: &Machine,
        caller: &Caller<'_>,
        (cpu, tags): (CpuId, &mut svm::Tags),
    ) -> Attempt {
        // Interrupts are off: whatever is asked for from here on ends the guest.
        if (caller.is_interrupted)() || percpu::need_resched() {
            return Attempt::Interrupted;
        }
        if self.is_impossible() {
            return refused(cpu, false);
        }
        fpu::exchange(&mut self.callers_fpu, &self.fpu);
        let attempt = self.enter(machine, cpu, tags);
        fpu::exchange(&mut self.fpu, &self.callers_fpu);
        attempt
    }

    fn enter(&mut self, machine: &Machine, cpu: CpuId, tags: &mut svm::Tags) -> Attempt {
        let Self {
            vmcb,
            registers,
            engine,
            ..
        } = self;
        let space = machine.memory.engine();
        let enter = |entry| enter_as(entry, cpu, tags, vmcb, registers);
        // SAFETY: 1. `enter_as` enters once, as `tags` has prepared it, and says truly whether. 2. INTR is intercepted with V_INTR_MASKING, and
        // `svm::enter` has the host's flag on at VMRUN. 3. nothing else runs a VMCB.
        unsafe { space.run(&SHOOTDOWN, engine, enter) }
    }
}

/// Enters the guest as the engine says. Interrupts are off; SVM is on on this CPU, whose tags those are, and what the guest finds in other registers is
/// its own.
fn enter_as(
    entry: shootdown::guest::GuestEntry,
    cpu: CpuId,
    tags: &mut svm::Tags,
    vmcb: &mut Vmcb,
    registers: &mut GuestRegisters,
) -> GuestExit<Attempt> {
    let prepared = tags.enter(in_processors_terms(entry), vmcb.control());
    if prepared.is_err() {
        return GuestExit::NotEntered(refused(cpu, false));
    }
    // Said each time: where VMRUN refuses a guest, QEMU stores 0.
    vmcb.set(Field::V_INTR, vmcb.get(Field::V_INTR) | V_INTR_MASKING);
    // An interrupt ends the guest.
    latency::irqs_on();
    quiet::enter();
    // SAFETY: 1. as described. 2. `State::reset` has set the intercepts, which nothing changes; the nested tables show what the VMM
    // has. 3. `attempt` has loaded what the guest has of the FPU.
    unsafe { svm::enter(cpu, vmcb.address(), registers) };
    quiet::leave();
    latency::irqs_off();
    // QEMU widens the 32 bits without their sign.
    if vmcb.get(Field::EXIT_CODE) as u32 == code::INVALID {
        return GuestExit::NotEntered(refused(cpu, true));
    }
    tags.ran();
    GuestExit::Ran(Attempt::Ran)
}

/// The same in the types of the crate that knows processors.
pub(super) fn in_processors_terms(entry: shootdown::guest::GuestEntry) -> GuestEntry {
    GuestEntry {
        root: entry.root,
        tag: entry.asid.as_u16(),
        entries: match entry.entries {
            TagEntries::Keep => GuestEntries::Keep,
            TagEntries::Drop => GuestEntries::Drop,
        },
    }
}
