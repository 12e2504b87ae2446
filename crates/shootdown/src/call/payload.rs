//! The bytes that travel inside a request.

use core::mem::MaybeUninit;

/// What fits into a request without a pointer: a 64-byte line less the header, the function and the pending
/// set of up to 64 CPUs.
pub const PAYLOAD_BYTES: usize = 40;

/// Uninterpreted bytes of some `Copy` value.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(crate) struct Payload([MaybeUninit<u8>; PAYLOAD_BYTES]);

impl Payload {
    pub(crate) const EMPTY: Self = Self([MaybeUninit::uninit(); PAYLOAD_BYTES]);

    /// Stores `value`; too large or too strictly aligned a type does not compile.
    pub(crate) fn of<T: Copy>(value: T) -> Self {
        const {
            assert!(
                size_of::<T>() <= PAYLOAD_BYTES,
                "at most 40 bytes travel inline: capture less"
            );
            assert!(
                align_of::<T>() <= 8,
                "inline payloads are aligned to 8 bytes"
            );
        }
        let mut payload = Self::EMPTY;
        let bytes: *mut T = payload.0.as_mut_ptr().cast();
        // SAFETY: the assertions above make the array large enough and aligned for a T.
        unsafe { bytes.write(value) };
        payload
    }

    /// Copies the value out.
    ///
    /// # Safety
    /// 1. This payload (or a copy of it) came from [`of`](Self::of) with the same `T`.
    /// 2. `T` may be used on this thread.
    pub(crate) unsafe fn get<T: Copy>(&self) -> T {
        let bytes: *const T = self.0.as_ptr().cast();
        // SAFETY: duty 1 makes the bytes a valid, aligned T.
        unsafe { bytes.read() }
    }
}
