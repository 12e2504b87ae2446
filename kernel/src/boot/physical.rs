//! Reading physical memory by address during boot, through the direct map of the boot page tables.

use crate::addr::PhysAddr;

/// The boot page tables show this much.
pub const LIMIT: u64 = 4 << 30;

/// `len` bytes at a physical address; None beyond what the boot page tables show.
pub fn bytes(at: u64, len: usize) -> Option<&'static [u8]> {
    let end = at.checked_add(len as u64)?;
    if at == 0 || end > LIMIT {
        return None;
    }
    let pointer = PhysAddr::new(at).to_direct();
    // SAFETY: mapped by the boot tables and, for RAM, by the final ones; loader and firmware data
    // that nobody writes.
    Some(unsafe { core::slice::from_raw_parts(pointer, len) })
}

/// A plain structure at a physical address, aligned or not.
///
/// Only for types that any bytes make a valid value of.
pub fn read<T: Copy>(at: u64) -> Option<T> {
    let bytes = bytes(at, size_of::<T>())?;
    // SAFETY: that many bytes are there; the callers' types are structures of integers.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
