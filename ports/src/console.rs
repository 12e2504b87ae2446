//! Lines on the serial port.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch;

/// Says a line.
macro_rules! say {
    ($($argument:tt)*) => { $crate::console::print(format_args!("{}\n", format_args!($($argument)*))) };
}
pub(crate) use say;

struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(arch::put_byte);
        Ok(())
    }
}

/// Any context; lines of several CPUs do not mix. A CPU that panics inside prints over its own line.
pub fn print(text: fmt::Arguments<'_>) {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    let irqs = arch::irq_save();
    let mut looks = 0;
    // ORDERING: lines follow each other; pairs with the release below.
    while IS_TAKEN.swap(true, Ordering::Acquire) && looks < 1_000_000 {
        looks += 1;
        core::hint::spin_loop();
    }
    // A serial port has no errors.
    let _ = Serial.write_fmt(text);
    IS_TAKEN.store(false, Ordering::Release);
    // SAFETY: 1. of the `irq_save` above.
    unsafe { arch::irq_restore(irqs) };
}
