//! The end of the kernel: message, registers, backtrace, other CPUs stopped, exit code.
//!
//! The first CPU that panics stops the others by NMI, which reaches them with interrupts off too, and says which of them have stopped. A CPU that
//! panics meanwhile stops as they do. A panic during a panic prints one line and ends the machine at once.

mod stop;

use core::fmt;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::arch::exit::{self, qemu_exit};
use crate::arch::trap::{TrapFrame, vectors};
use crate::arch::{paging, percpu, stacks, svm, uaccess};
use crate::backtrace::{Frame, Registers};
use crate::console::print_regardless;
use crate::irq;

pub use stop::cpu_starts;
#[cfg(feature = "selftest")]
pub use stop::{Stopped, stop};

/// Frames shown at most.
const BACKTRACE_LIMIT: usize = 32;
/// No CPU panics.
const NOBODY: u32 = u32::MAX;

static PANICKING: AtomicU32 = AtomicU32::new(NOBODY);

/// Prints without end of line handling.
macro_rules! say {
    ($($argument:tt)*) => {
        print_regardless(format_args!($($argument)*))
    };
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let stopped = begin();
    let message = info.message();
    match info.location() {
        Some(at) => headline(format_args!("{message} ({}:{})", at.file(), at.line())),
        None => headline(format_args!("{message}")),
    }
    say!("{stopped}");
    backtrace(frame_pointer());
    qemu_exit(exit::PANIC)
}

/// Ends the kernel because of an exception in it. Any context.
pub fn exception(frame: &TrapFrame) -> ! {
    let stopped = begin();
    let name = vectors::name(frame.vector);
    let cr2 = x86_64::registers::control::Cr2::read_raw() as usize;
    headline(format_args!(
        "{name} in ring {} at {:#x}, error code {:#x}, cr2 {cr2:#x}",
        frame.cs & 3,
        frame.rip,
        frame.error_code
    ));
    say!("{stopped}");
    if let Some(cpu) = stacks::guard_owner(cr2) {
        say!("a kernel stack of cpu{cpu} overflowed\n");
    }
    say!("{}", Registers(frame));
    show_frame(0, frame.rip as usize);
    backtrace(frame.rbp as usize);
    qemu_exit(exit::PANIC)
}

/// Called first by handlers with stacks of their own: does not return where this CPU is to stop, or has stopped. One that panics goes on.
pub fn stop_if_asked() {
    if stop::is_asked() && PANICKING.load(Ordering::Relaxed) != percpu::cpu_id().as_u32() {
        stop::stop_here();
    }
}

/// Makes this CPU the only one that runs, or ends the machine if it panics again.
fn begin() -> stop::Stopped {
    irq::disable();
    let me = percpu::cpu_id().as_u32();
    match PANICKING.compare_exchange(NOBODY, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {}
        Err(first) if first == me => {
            say!("KERNEL PANIC cpu{me}: another panic while panicking\n");
            qemu_exit(exit::PANIC);
        }
        // Another CPU was first.
        Err(_) => stop::stop_here(),
    }
    // A reset by INIT waits as long as the global interrupt flag is clear.
    svm::leave();
    stop::stop_others()
}

fn headline(message: fmt::Arguments<'_>) {
    say!(
        "\nKERNEL PANIC cpu{}: {message}\n",
        percpu::cpu_id().as_u32()
    );
}

/// RBP of the caller.
#[inline(always)]
fn frame_pointer() -> usize {
    let rbp: usize;
    // SAFETY: only reads a register.
    unsafe {
        core::arch::asm!("mov {}, rbp", out(reg) rbp, options(nomem, nostack, preserves_flags))
    };
    rbp
}

/// Follows saved frame pointers (System V ABI for AMD64, "The Stack Frame"), which may be anything:
/// every read may fail.
fn backtrace(mut frame: usize) {
    for number in 1..=BACKTRACE_LIMIT {
        let (Ok(next), Ok(address)) = (
            uaccess::probe_kernel(frame),
            uaccess::probe_kernel(frame.wrapping_add(8)),
        ) else {
            return;
        };
        if !paging::is_kernel_code(address) {
            return;
        }
        // The call is before the return address.
        show_frame(number, address - 1);
        if next <= frame {
            return;
        }
        frame = next;
    }
}

fn show_frame(number: usize, address: usize) {
    say!("{}", Frame(number, address));
}
