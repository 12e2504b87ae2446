//! Executes an undefined instruction; must die by SIGILL, alone.

fn main() {
    println!("illegal: executing ud2");
    // SAFETY: UD2 raises an invalid-opcode exception and nothing else.
    unsafe { std::arch::asm!("ud2", options(nomem, nostack, noreturn)) }
}
