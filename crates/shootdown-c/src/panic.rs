//! What happens when the engine finds that a duty was broken: the kernel is told, and does not come back.

use core::ffi::c_char;
use core::panic::PanicInfo;

use crate::line::Line;

unsafe extern "C" {
    /// The kernel's, needed by a library with the feature panic-handler: gets one line, which is valid during the call, and does not return. It is called
    /// when the library finds a broken duty that no error can answer.
    fn shootdown_panic(text: *const c_char) -> !;
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let line = Line::of(format_args!("{info}"));
    // SAFETY: the kernel provides it as the header says; the text ends with a zero.
    unsafe { shootdown_panic(line.as_ptr()) }
}
