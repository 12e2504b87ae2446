//! Access to user memory from the kernel: checked ranges, SMAP opened for the copy only, faults
//! turned into errors by the exception table.
//!
//! Page faults are resolved on the way as for the program itself, so these functions may take the
//! address-space lock: call them with no lock held. Interrupts in any state.

use core::arch::asm;
use core::mem::MaybeUninit;

use super::extable::fault_at;
use super::smap::smap_site;
use crate::addr::USER_END;

/// The address is not the user's, or not mapped as needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault;

/// Refuses ranges that leave the user's half.
fn check(start: usize, len: usize) -> Result<(), Fault> {
    match start.checked_add(len) {
        Some(end) if end <= USER_END => Ok(()),
        _ => Err(Fault),
    }
}

/// Refuses words that are not aligned or not the user's.
fn check_word(address: usize) -> Result<(), Fault> {
    if address.is_multiple_of(size_of::<u32>()) {
        check(address, size_of::<u32>())
    } else {
        Err(Fault)
    }
}

fn result(failed: u32) -> Result<(), Fault> {
    if failed == 0 { Ok(()) } else { Err(Fault) }
}

/// Copies `len` bytes; one side is the user's.
///
/// # Safety
///
/// 1. The kernel's side is valid for `len` bytes; the user's passed [`check`].
#[inline(never)]
unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
    let failed: u32;
    // SAFETY: duty 1 is the caller's; faults at 2 and 3 continue at 4. The direction flag is clear.
    unsafe {
        asm!(
            smap_site!("0xcb"),
            "2: rep movsq",
            "mov rcx, {tail}",
            "3: rep movsb",
            "xor eax, eax",
            "jmp 5f",
            "4: mov eax, 1",
            "5:",
            smap_site!("0xca"),
            fault_at!("2", "4"),
            fault_at!("3", "4"),
            tail = in(reg) len % 8,
            inout("rcx") len / 8 => _,
            inout("rdi") dst => _,
            inout("rsi") src => _,
            out("eax") failed,
            options(nostack),
        );
    }
    result(failed)
}

/// Copies user memory at `src` to `dst`. After an error `dst` is partly written.
pub fn copy_from_user(dst: &mut [u8], src: usize) -> Result<(), Fault> {
    check(src, dst.len())?;
    // SAFETY: 1. `dst` is a slice; the range was checked.
    unsafe { copy(dst.as_mut_ptr(), src as *const u8, dst.len()) }
}

/// Copies `src` to user memory at `dst`. After an error a part was written.
pub fn copy_to_user(dst: usize, src: &[u8]) -> Result<(), Fault> {
    check(dst, src.len())?;
    // SAFETY: 1. `src` is a slice; the range was checked.
    unsafe { copy(dst as *mut u8, src.as_ptr(), src.len()) }
}

/// Fills user memory with zeroes.
pub fn clear_user(dst: usize, len: usize) -> Result<(), Fault> {
    check(dst, len)?;
    let failed: u32;
    // SAFETY: the range was checked; a fault at 2 continues at 3. The direction flag is clear.
    unsafe {
        asm!(
            smap_site!("0xcb"),
            "2: rep stosb",
            "jmp 4f",
            "3: mov eax, 1",
            "4:",
            smap_site!("0xca"),
            fault_at!("2", "3"),
            inout("rcx") len => _,
            inout("rdi") dst => _,
            inout("eax") 0 => failed,
            options(nostack),
        );
    }
    result(failed)
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
            // SAFETY: a plain integer.
            unsafe impl Pod for $type {}
        )*
    };
}
pod!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

// SAFETY: an array of values without padding has none, and any bytes make valid elements.
unsafe impl<T: Pod, const N: usize> Pod for [T; N] {}

/// Reads one value. Alignment is not needed.
pub fn read_user<T: Pod>(src: usize) -> Result<T, Fault> {
    check(src, size_of::<T>())?;
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: 1. `value` has that size; the range was checked.
    unsafe { copy(value.as_mut_ptr().cast(), src as *const u8, size_of::<T>()) }?;
    // SAFETY: every byte was written, and `Pod` takes any.
    Ok(unsafe { value.assume_init() })
}

/// Writes one value. Alignment is not needed.
pub fn write_user<T: Pod>(dst: usize, value: T) -> Result<(), Fault> {
    check(dst, size_of::<T>())?;
    // SAFETY: 1. `value` has that size and no padding; the range was checked.
    unsafe { copy(dst as *mut u8, (&raw const value).cast(), size_of::<T>()) }
}

/// Copies a NUL-terminated string; the result is without the NUL. `Ok(None)`: no NUL within
/// `dst.len()` bytes.
pub fn strncpy_from_user(dst: &mut [u8], src: usize) -> Result<Option<&mut [u8]>, Fault> {
    /// The string may end just before a page that cannot be read, so no piece crosses 64 bytes.
    const PIECE_BYTES: usize = 64;
    let mut done = 0;
    while done < dst.len() {
        let from = src.checked_add(done).ok_or(Fault)?;
        let piece = (PIECE_BYTES - from % PIECE_BYTES).min(dst.len() - done);
        let target = &mut dst[done..done + piece];
        copy_from_user(target, from)?;
        if let Some(nul) = target.iter().position(|&byte| byte == 0) {
            return Ok(Some(&mut dst[..done + nul]));
        }
        done += piece;
    }
    Ok(None)
}

/// Atomic compare and exchange of an aligned user word: the value found (equal to `current` on
/// success).
pub fn compare_exchange_user_u32(address: usize, current: u32, new: u32) -> Result<u32, Fault> {
    check_word(address)?;
    let found: u32;
    let failed: u32;
    // SAFETY: the word was checked; a fault at 2 continues at 3.
    unsafe {
        asm!(
            smap_site!("0xcb"),
            "2: lock cmpxchg dword ptr [{address}], {new:e}",
            "jmp 4f",
            "3: mov {failed:e}, 1",
            "4:",
            smap_site!("0xca"),
            fault_at!("2", "3"),
            address = in(reg) address,
            new = in(reg) new,
            failed = inout(reg) 0u32 => failed,
            inout("eax") current => found,
            options(nostack),
        );
    }
    result(failed).map(|()| found)
}

/// Atomic exchange of an aligned user word: the value found.
pub fn exchange_user_u32(address: usize, new: u32) -> Result<u32, Fault> {
    check_word(address)?;
    let found: u32;
    let failed: u32;
    // SAFETY: the word was checked; a fault at 2 continues at 3.
    unsafe {
        asm!(
            smap_site!("0xcb"),
            "2: xchg dword ptr [{address}], {value:e}",
            "jmp 4f",
            "3: mov {failed:e}, 1",
            "4:",
            smap_site!("0xca"),
            fault_at!("2", "3"),
            address = in(reg) address,
            value = inout(reg) new => found,
            failed = inout(reg) 0u32 => failed,
            options(nostack),
        );
    }
    result(failed).map(|()| found)
}

/// Atomic load of an aligned user word.
pub fn load_user_u32(address: usize) -> Result<u32, Fault> {
    check_word(address)?;
    let found: u32;
    let failed: u32;
    // SAFETY: the word was checked; a fault at 2 continues at 3.
    unsafe {
        asm!(
            smap_site!("0xcb"),
            "2: mov {found:e}, dword ptr [{address}]",
            "jmp 4f",
            "3: mov {failed:e}, 1",
            "4:",
            smap_site!("0xca"),
            fault_at!("2", "3"),
            address = in(reg) address,
            found = inout(reg) 0u32 => found,
            failed = inout(reg) 0u32 => failed,
            options(nostack),
        );
    }
    result(failed).map(|()| found)
}

/// Reads a word of kernel memory that may not be mapped: for backtraces over doubtful pointers.
pub fn probe_kernel(address: usize) -> Result<usize, Fault> {
    if address < USER_END || !address.is_multiple_of(size_of::<usize>()) {
        return Err(Fault);
    }
    let found: usize;
    let failed: u32;
    // SAFETY: only reads; a fault at 2 continues at 3.
    unsafe {
        asm!(
            "2: mov {found}, qword ptr [{address}]",
            "jmp 4f",
            "3: mov {failed:e}, 1",
            "4:",
            fault_at!("2", "3"),
            address = in(reg) address,
            found = inout(reg) 0usize => found,
            failed = inout(reg) 0u32 => failed,
            options(nostack),
        );
    }
    result(failed).map(|()| found)
}
