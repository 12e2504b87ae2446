//! Ending a boot that cannot succeed: one line with cause and remedy, and an exit code.

use core::fmt;

use crate::arch::exit::{self, qemu_exit};
use crate::console;

/// Prints `shootdown: cannot boot: ...` and ends the machine with
/// [`BOOT_ERROR`](crate::arch::exit::BOOT_ERROR). The message names cause and remedy.
pub fn fail(message: fmt::Arguments<'_>) -> ! {
    console::print(format_args!("shootdown: cannot boot: {message}\n"));
    qemu_exit(exit::BOOT_ERROR)
}

/// [`fail`] with formatting.
macro_rules! boot_fail {
    ($($argument:tt)*) => {
        $crate::boot::fail::fail(format_args!($($argument)*))
    };
}
pub(crate) use boot_fail;
