//! Asking, waiting for the answers, and printing them in order.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use shootdown::CpuId;

use super::slot::{self, Note};
use super::{Frame, Registers};
use crate::arch::apic;
use crate::irq::IrqState;
use crate::{boot, console, cpu_stage, time};

/// An emulator on a busy host may not run a virtual CPU for that long; a CPU that does not answer an NMI by then is broken.
const ANSWER_NS: u64 = 1_000_000_000;

/// Somebody asks and prints.
static BUSY: AtomicBool = AtomicBool::new(false);

/// Prints what every CPU is doing, in order. Does nothing when somebody else is at it. Any context but NMI, without the
/// console's lock.
pub fn print_all() {
    let cpus = || (0..boot::info().cpus as u32).map(CpuId::new);
    exclusively(|| {
        cpus().filter(is_there).for_each(ask);
        let end_ns = time::now_ns() + ANSWER_NS;
        for cpu in cpus() {
            let answer = is_there(&cpu).then(|| wait(cpu, end_ns));
            console::print(format_args!("{}", Answer { cpu, answer }));
        }
    });
}

/// Prints what that CPU is doing, unless somebody else is asking. Any context but NMI.
pub fn print_of(cpu: CpuId) {
    exclusively(|| {
        let answer = is_there(&cpu).then(|| {
            ask(cpu);
            wait(cpu, time::now_ns() + ANSWER_NS)
        });
        console::print_regardless(format_args!("{}", Answer { cpu, answer }));
    });
}

fn exclusively(work: impl FnOnce()) {
    // ORDERING: acquires the slots from the asker before; pairs with the release below.
    if !BUSY.swap(true, Ordering::Acquire) {
        work();
        // ORDERING: pairs with the acquire above.
        BUSY.store(false, Ordering::Release);
    }
}

/// Has it not been parked? One that is about to be still answers.
fn is_there(cpu: &CpuId) -> bool {
    !cpu_stage::is_parked(*cpu)
}

fn ask(cpu: CpuId) {
    slot::ask(cpu);
    // A failure becomes a missing answer.
    let _ = apic::send_nmi(cpu);
}

/// Spins. Calls nothing of the engine, so that its watchdog may ask too; the wait is bounded.
fn wait(cpu: CpuId, end_ns: u64) -> Option<Note> {
    loop {
        if let Some(note) = slot::take(cpu) {
            return Some(note);
        }
        if time::now_ns() > end_ns && slot::withdraw(cpu) {
            return None;
        }
        core::hint::spin_loop();
    }
}

/// What is printed about a CPU. The outer `None`: it is offline; the inner one: it did not answer.
struct Answer {
    cpu: CpuId,
    answer: Option<Option<Note>>,
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu;
        let note = match &self.answer {
            None => return writeln!(out, "backtrace of {cpu}: offline"),
            Some(None) => {
                let seconds = ANSWER_NS / 1_000_000_000;
                return writeln!(
                    out,
                    "backtrace of {cpu}: no answer to an NMI in {seconds} s"
                );
            }
            Some(Some(note)) => note,
        };
        let frame = &note.frame;
        let place = match frame.is_from_user() {
            true => "in user mode",
            false => "in the kernel",
        };
        let interrupts = match IrqState::from_rflags(frame.rflags) {
            IrqState::Enabled => "on",
            IrqState::Disabled => "off",
        };
        writeln!(out, "backtrace of {cpu}: {place}, interrupts {interrupts}")?;
        write!(out, "{}{}", Registers(frame), Frame(0, frame.rip as usize))?;
        // A call is before its return address.
        let mut frames = note.returns.iter().enumerate();
        frames.try_for_each(|(at, address)| write!(out, "{}", Frame(at + 1, address - 1)))
    }
}
