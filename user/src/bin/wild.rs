//! Reads through a wild pointer; must die by SIGSEGV, alone.

use std::process::ExitCode;

/// In the user half of the address space, mapped by nobody.
const WILD_ADDRESS: usize = 0x0dea_d000_0000;

fn main() -> ExitCode {
    println!("wild: reading {WILD_ADDRESS:#x}");
    let value: u64;
    // SAFETY: none of Rust's memory is touched: the load, made outside of the language, faults,
    // and that is what this program is for.
    unsafe {
        std::arch::asm!(
            "mov {value}, [{address}]",
            address = in(reg) WILD_ADDRESS,
            value = out(reg) value,
            options(nostack, readonly, preserves_flags),
        );
    }
    println!("wild: FAILED, the load gave {value:#x}");
    ExitCode::FAILURE
}
