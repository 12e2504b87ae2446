//! Access to user memory from the kernel: checked ranges, SMAP opened for the copy only, faults
//! turned into errors by the exception table. Page faults are resolved on the way as for the
//! program itself, so these take the address-space lock: call them with no lock held.

/// The address is not the user's, or not mapped as needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault;

/// Copies user memory at `src` to `dst`.
pub fn copy_from_user(dst: &mut [u8], src: usize) -> Result<(), Fault> {
    let _ = (dst, src);
    todo!()
}

/// Copies `src` to user memory at `dst`.
pub fn copy_to_user(dst: usize, src: &[u8]) -> Result<(), Fault> {
    let _ = (dst, src);
    todo!()
}

/// Fills user memory with zeroes.
pub fn clear_user(dst: usize, len: usize) -> Result<(), Fault> {
    let _ = (dst, len);
    todo!()
}

/// Types that any bytes make a valid value of, without padding.
///
/// # Safety
///
/// 1. Every bit pattern is a valid value.
/// 2. The type has no padding (it is copied to user memory byte by byte).
pub unsafe trait Pod: Copy {}

macro_rules! pod {
    ($($type:ty),* $(,)?) => {
        $(
            // SAFETY: a plain integer or an array of them.
            unsafe impl Pod for $type {}
        )*
    };
}
pod!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

// SAFETY: an array of values without padding has none, and any bytes make valid elements.
unsafe impl<T: Pod, const N: usize> Pod for [T; N] {}

/// Reads one value. Alignment is not needed.
pub fn read_user<T: Pod>(src: usize) -> Result<T, Fault> {
    let _ = src;
    todo!()
}

/// Writes one value. Alignment is not needed.
pub fn write_user<T: Pod>(dst: usize, value: T) -> Result<(), Fault> {
    let _ = (dst, value);
    todo!()
}

/// Copies a NUL-terminated string; the result is without the NUL. `Ok(None)`: longer than `dst`.
pub fn strncpy_from_user(dst: &mut [u8], src: usize) -> Result<Option<&mut [u8]>, Fault> {
    let _ = (dst, src);
    todo!()
}

/// Atomic compare and exchange of an aligned user word: the value found (equal to `current` on
/// success). A misaligned address is a fault.
pub fn compare_exchange_user_u32(address: usize, current: u32, new: u32) -> Result<u32, Fault> {
    let _ = (address, current, new);
    todo!()
}

/// Atomic exchange of an aligned user word: the value found.
pub fn exchange_user_u32(address: usize, new: u32) -> Result<u32, Fault> {
    let _ = (address, new);
    todo!()
}

/// Atomic load of an aligned user word.
pub fn load_user_u32(address: usize) -> Result<u32, Fault> {
    let _ = address;
    todo!()
}
