//! The end of the kernel: message, registers, backtrace, other CPUs stopped, exit code.

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
