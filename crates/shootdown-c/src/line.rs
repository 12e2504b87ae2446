//! [`Line`]: a short text for C, in memory of its own; and texts of C's.

use core::ffi::{CStr, c_char};
use core::fmt;

use crate::opaque::check_pointer;
use crate::status::{Outcome, SHOOTDOWN_INVALID};

/// Bytes of a line, with the zero at its end.
const BYTES: usize = 256;

/// A text that ends with a zero; what does not fit is left out.
pub(crate) struct Line {
    bytes: [u8; BYTES],
    len: usize,
}

impl Line {
    pub(crate) fn of(words: fmt::Arguments<'_>) -> Self {
        let mut line = Self {
            bytes: [0; BYTES],
            len: 0,
        };
        // It never fails: what does not fit is left out.
        let _ = fmt::write(&mut line, words);
        line
    }

    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..BYTES - 1];
        let len = words.len().min(room.len());
        room[..len].copy_from_slice(&words.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

/// A text of C's.
///
/// # Safety
/// 1. It is null, or ends with a zero and does not change as long as the answer is used.
pub(crate) unsafe fn text_of<'a>(text: *const c_char) -> Outcome<&'a str> {
    check_pointer(text)?;
    // SAFETY: duty 1.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| SHOOTDOWN_INVALID)
}

/// Writes `text` and a zero to memory of C's.
///
/// # Errors
/// It has less room.
///
/// # Safety
/// 1. The buffer is null or has `capacity` bytes.
pub(crate) unsafe fn put_text(text: &str, buffer: *mut c_char, capacity: usize) -> Outcome {
    check_pointer(buffer)?;
    if text.len() >= capacity {
        return Err(SHOOTDOWN_INVALID);
    }
    let buffer = buffer.cast::<u8>();
    // SAFETY: duty 1; there is room, and what is ours is not C's.
    unsafe { buffer.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
    // SAFETY: one more than the text has room.
    let end = unsafe { buffer.add(text.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}
