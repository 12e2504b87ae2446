//! The user's FS base: where thread-local storage lives. The kernel does not use FS.

use x86_64::VirtAddr;
use x86_64::registers::model_specific::FsBase;

/// Sets the FS base of this CPU.
///
/// # Panics
///
/// When the address is not canonical (the processor would raise #GP); callers check user values
/// against [`USER_END`](crate::addr::USER_END).
#[inline]
pub fn write(base: u64) {
    FsBase::write(VirtAddr::new(base));
}
