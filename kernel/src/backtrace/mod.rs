//! What every CPU is doing: registers and backtraces, asked for by NMI, which reaches CPUs with interrupts off too.
//!
//! A CPU that is asked notes its registers and return addresses in its own [`slot`](self) and goes on; whoever asked waits for
//! that, but not for long, and prints. So the NMI handler takes no lock, allocates nothing, reads no memory but the stack that it
//! interrupted, and never faults: a fault would end with an IRET, and let the next NMI in on the same stack.
//!
//! | file | what |
//! |---|---|
//! | `ask` | asking one CPU or all, and printing |
//! | `slot` | what a CPU notes, and the hand-over |
//! | `walk` | following frame pointers on the interrupted stack |
//! | `symbols`, `show` | names for addresses, lines for registers: for panics too |
//!
//! It may not know threads: a stack is memory, and a CPU is asked by its number.

mod ask;
mod show;
mod slot;
mod symbols;
mod walk;

pub use ask::{print_all, print_of};
pub use show::{Frame, Registers};
pub use slot::answer;
