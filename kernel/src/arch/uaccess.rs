//! Access to user memory from the kernel: checked ranges, SMAP opened for the copy only, faults
//! turned into errors by the exception table.
//!
//! Page faults are resolved on the way as for the program itself, so these functions may sleep: call them with
//! interrupts and preemption on. Otherwise a page that is not there is an error, which [`read_user_now`] is for.

use core::arch::asm;
use core::mem::MaybeUninit;

use super::extable::fault_at;
use super::percpu;
use super::smap::smap_site;
use crate::addr::USER_END;
use crate::errno::Errno;
use spin::Once;

/// The address is not the user's, or not mapped as needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault;

impl From<Fault> for Errno {
    fn from(_: Fault) -> Self {
        Self::EFAULT
    }
}

/// Drops what a CPU that [defers](percpu::is_deferring) flushes has missed: the scheduler's.
pub static CATCH_UP: Once<fn()> = Once::new();

/// Refuses ranges that leave the user's half.
///
/// # Panics
/// With preemption off: a page fault could not be resolved, and the error would be wrong.
fn check(start: usize, len: usize) -> Result<(), Fault> {
    assert!(
        percpu::preempt_count() == 0,
        "access to user memory with preemption off"
    );
    check_range(start, len)
}

fn check_range(start: usize, len: usize) -> Result<(), Fault> {
    // Before every access: none of them uses what this CPU has still to drop.
    if percpu::is_deferring()
        && let Some(catch_up) = CATCH_UP.get()
    {
        catch_up();
    }
    match start.checked_add(len) {
        Some(end) if end <= USER_END => Ok(()),
        _ => Err(Fault),
    }
}

fn result(failed: u32) -> Result<(), Fault> {
    if failed == 0 { Ok(()) } else { Err(Fault) }
}

/// Copies `len` bytes; one side is the user's. 4 and 8 bytes are one access each, so an aligned word
/// that other threads change is never torn (futexes rely on that).
///
/// # Safety
///
/// 1. The kernel's side is valid for `len` bytes; the user's passed [`check`].
#[inline(never)]
unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) -> Result<(), Fault> {
    let failed: u32;
    // SAFETY: duty 1 is the caller's; faults at 2, 3 and 5 continue at 6. The direction flag is clear.
    unsafe {
        asm!(
            smap_site!(stac),
            "2: rep movsq",
            "test {tail:e}, 4",
            "jz 4f",
            "3: movsd",
            "4: mov ecx, {tail:e}",
            "and ecx, 3",
            "5: rep movsb",
            "xor eax, eax",
            "jmp 7f",
            "6: mov eax, 1",
            "7:",
            smap_site!(clac),
            fault_at!("2", "6"),
            fault_at!("3", "6"),
            fault_at!("5", "6"),
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
    // SAFETY: 1. `src` is a slice.
    unsafe { copy_to_user_from(dst, src.as_ptr(), src.len()) }
}

/// The same from memory that others may be writing to.
///
/// # Safety
///
/// 1. There are `len` bytes at `src`.
pub unsafe fn copy_to_user_from(dst: usize, src: *const u8, len: usize) -> Result<(), Fault> {
    check(dst, len)?;
    // SAFETY: 1. the caller's, 1; the range was checked.
    unsafe { copy(dst as *mut u8, src, len) }
}

/// Writes `values` to user memory `stride` bytes apart, the first at `dst`. After an error a part was written.
pub fn scatter_to_user(dst: usize, stride: usize, values: &[u16]) -> Result<(), Fault> {
    let Some(others) = values.len().checked_sub(1) else {
        return Ok(());
    };
    check(dst, others * stride + size_of::<u16>())?;
    let failed: u32;
    // SAFETY: the range was checked; a fault at 3 continues at 4. The direction flag is clear.
    unsafe {
        asm!(
            smap_site!(stac),
            "2: lodsw",
            "3: mov word ptr [{dst}], ax",
            "add {dst}, {stride}",
            "dec {left}",
            "jnz 2b",
            "xor eax, eax",
            "jmp 5f",
            "4: mov eax, 1",
            "5:",
            smap_site!(clac),
            fault_at!("3", "4"),
            dst = inout(reg) dst => _,
            stride = in(reg) stride,
            left = inout(reg) values.len() => _,
            inout("rsi") values.as_ptr() => _,
            out("eax") failed,
            options(nostack),
        );
    }
    result(failed)
}

/// Fills user memory with zeroes.
pub fn clear_user(dst: usize, len: usize) -> Result<(), Fault> {
    check(dst, len)?;
    let failed: u32;
    // SAFETY: the range was checked; a fault at 2 continues at 3. The direction flag is clear.
    unsafe {
        asm!(
            smap_site!(stac),
            "2: rep stosb",
            "jmp 4f",
            "3: mov eax, 1",
            "4:",
            smap_site!(clac),
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

/// Reads one value. Alignment is not needed; an aligned `u32` or `u64` is read at once.
pub fn read_user<T: Pod>(src: usize) -> Result<T, Fault> {
    check(src, size_of::<T>())?;
    read_checked(src)
}

/// `src` passed [`check`].
fn read_checked<T: Pod>(src: usize) -> Result<T, Fault> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: 1. `value` has that size; the range was checked.
    unsafe { copy(value.as_mut_ptr().cast(), src as *const u8, size_of::<T>()) }?;
    // SAFETY: every byte was written, and `Pod` takes any.
    Ok(unsafe { value.assume_init() })
}

/// Reads one value as [`read_user`] does, but never sleeps: a page that is not there now is an error. Preemption is off.
pub fn read_user_now<T: Pod>(src: usize) -> Result<T, Fault> {
    debug_assert!(percpu::preempt_count() > 0);
    check_range(src, size_of::<T>())?;
    read_checked(src)
}

/// Writes one value. Alignment is not needed; an aligned `u32` or `u64` is written at once.
pub fn write_user<T: Pod>(dst: usize, value: T) -> Result<(), Fault> {
    check(dst, size_of::<T>())?;
    write_checked(dst, value)
}

/// Writes one value as [`write_user`] does, but never sleeps: a page that is not there now, or not to be written, is an error. Preemption is off.
pub fn write_user_now<T: Pod>(dst: usize, value: T) -> Result<(), Fault> {
    debug_assert!(percpu::preempt_count() > 0);
    check_range(dst, size_of::<T>())?;
    write_checked(dst, value)
}

/// `dst` passed [`check`].
fn write_checked<T: Pod>(dst: usize, value: T) -> Result<(), Fault> {
    // SAFETY: 1. `value` has that size and no padding; the range was checked.
    unsafe { copy(dst as *mut u8, (&raw const value).cast(), size_of::<T>()) }
}

/// Exchanges a byte with other threads and guests: one access, and a full barrier. What was there. Never sleeps, as [`write_user_now`].
pub fn exchange_user_now(at: usize, new: u8) -> Result<u8, Fault> {
    debug_assert!(percpu::preempt_count() > 0);
    check_range(at, 1)?;
    let (old, failed): (u8, u32);
    // SAFETY: the range was checked; a fault at 2 continues at 3.
    unsafe {
        asm!(
            smap_site!(stac),
            "2: xchg byte ptr [{at}], {old}",
            "jmp 4f",
            "3: mov {failed:e}, 1",
            "4:",
            smap_site!(clac),
            fault_at!("2", "3"),
            at = in(reg) at,
            old = inout(reg_byte) new => old,
            failed = inout(reg) 0u32 => failed,
            options(nostack),
        );
    }
    result(failed).map(|()| old)
}

/// Exchanges an aligned word with other threads if it is `old`: one access, and a full barrier. What was there. May sleep.
pub fn compare_exchange_user(at: usize, old: u32, new: u32) -> Result<u32, Fault> {
    check(at, size_of::<u32>())?;
    let (found, failed): (u32, u32);
    // SAFETY: the range was checked; a fault at 2 continues at 3.
    unsafe {
        asm!(
            smap_site!(stac),
            "2: lock cmpxchg dword ptr [{at}], {new:e}",
            "jmp 4f",
            "3: mov {failed:e}, 1",
            "4:",
            smap_site!(clac),
            fault_at!("2", "3"),
            at = in(reg) at,
            new = in(reg) new,
            inout("eax") old => found,
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
    probe(address)
}

/// Reads a word at any address, of a page that may not be mapped or not be the user's. With interrupts off a fault is not resolved.
pub fn probe(address: usize) -> Result<usize, Fault> {
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
