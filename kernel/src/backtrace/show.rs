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
        writeln!(
            out,
            "rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x}",
            f.rax, f.rbx, f.rcx, f.rdx
        )?;
        writeln!(
            out,
            "rsi {:016x} rdi {:016x} rbp {:016x} r8  {:016x}",
            f.rsi, f.rdi, f.rbp, f.r8
        )?;
        writeln!(
            out,
            "r9  {:016x} r10 {:016x} r11 {:016x} r12 {:016x}",
            f.r9, f.r10, f.r11, f.r12
        )?;
        writeln!(
            out,
            "r13 {:016x} r14 {:016x} r15 {:016x}",
            f.r13, f.r14, f.r15
        )
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
