//! Lines for registers and frames.

use core::fmt;

use super::symbols;
use crate::arch::trap::TrapFrame;

/// Displays as five lines.
#[derive(Debug)]
pub struct Registers<'a>(pub &'a TrapFrame);

impl fmt::Display for Registers<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = self.0;
        writeln!(
            out,
            "rip {:016x} rsp {:016x} flags {:08x} cs {:02x} ss {:02x}",
            f.rip, f.rsp, f.rflags, f.cs, f.ss
        )?;
        let names = "rax rbx rcx rdx rsi rdi rbp r8 r9 r10 r11 r12 r13 r14 r15".split(' ');
        let values = [
            f.rax, f.rbx, f.rcx, f.rdx, f.rsi, f.rdi, f.rbp, f.r8, f.r9, f.r10, f.r11, f.r12,
            f.r13, f.r14, f.r15,
        ];
        for (at, (name, value)) in (1..).zip(names.zip(values)) {
            let end = if at % 4 == 0 || at == values.len() {
                '\n'
            } else {
                ' '
            };
            write!(out, "{name:3} {value:016x}{end}")?;
        }
        Ok(())
    }
}

/// One frame of a backtrace: its number and its address. Displays as one line, with the function if that is known.
#[derive(Debug)]
pub struct Frame(pub usize, pub usize);

impl fmt::Display for Frame {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number, address) = self;
        match symbols::find(*address) {
            Some(symbol) => writeln!(out, "  #{number} {address:#018x} {symbol}"),
            None => writeln!(out, "  #{number} {address:#018x}"),
        }
    }
}
