//! Places in user memory, as user mode names them: any numbers at all, checked where they are used.

use core::marker::PhantomData;

use crate::addr;
use crate::arch::uaccess::{self, Pod};
use crate::errno::Errno;

/// A pointer that user mode passed: any number at all. Null stands for "none" where a call says so.
#[derive(Debug)]
pub struct UserPtr<T> {
    address: usize,
    pointee: PhantomData<*mut T>,
}

impl<T> Clone for UserPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for UserPtr<T> {}

impl<T> UserPtr<T> {
    /// Points there.
    pub const fn new(address: usize) -> Self {
        Self {
            address,
            pointee: PhantomData,
        }
    }

    /// The number.
    pub const fn address(self) -> usize {
        self.address
    }

    /// Is it null?
    pub const fn is_null(self) -> bool {
        self.address == 0
    }

    /// `None` when it is null.
    pub fn non_null(self) -> Option<Self> {
        (!self.is_null()).then_some(self)
    }

    /// The element `index` places on. Wraps around; an access checks the range.
    pub const fn element(self, index: usize) -> Self {
        let offset = index.wrapping_mul(size_of::<T>());
        Self::new(self.address.wrapping_add(offset))
    }
}

impl<T: Pod> UserPtr<T> {
    /// Reads one.
    pub fn read(self) -> Result<T, Errno> {
        uaccess::read_user(self.address).map_err(Errno::from)
    }

    /// Reads one unless the pointer is null.
    pub fn read_if_some(self) -> Result<Option<T>, Errno> {
        self.non_null().map(Self::read).transpose()
    }

    /// Writes one.
    pub fn write(self, value: T) -> Result<(), Errno> {
        uaccess::write_user(self.address, value).map_err(Errno::from)
    }

    /// Writes one unless the pointer is null.
    pub fn write_if_some(self, value: T) -> Result<(), Errno> {
        self.non_null().map_or(Ok(()), |there| there.write(value))
    }
}

macro_rules! pod {
    ($($plain:ty),* $(,)?) => {
        // SAFETY: `repr(C)` structures of integers and raw pointers without padding; any bytes are
        // values of them.
        $(unsafe impl Pod for $plain {})*
    };
}

pod!(
    linux_raw_sys::general::__kernel_timespec,
    linux_raw_sys::general::timeval,
    linux_raw_sys::general::rlimit64,
    linux_raw_sys::general::pollfd,
    linux_raw_sys::general::iovec,
    linux_raw_sys::general::stat,
    linux_raw_sys::general::statx,
);

/// Bytes of user memory: any address, any length.
#[derive(Clone, Copy, Debug)]
pub struct UserBytes {
    /// Where they start.
    pub address: usize,
    /// How many there are.
    pub len: usize,
}

impl UserBytes {
    /// Those bytes. EFAULT unless they lie in the user half altogether.
    pub fn new(address: usize, len: usize) -> Result<Self, Errno> {
        match address.checked_add(len) {
            Some(end) if end <= addr::USER_END => Ok(Self { address, len }),
            _ => Err(Errno::EFAULT),
        }
    }

    /// Copies kernel bytes to the start of them; `bytes` is not longer.
    pub fn copy_from(&self, bytes: &[u8]) -> Result<(), Errno> {
        debug_assert!(bytes.len() <= self.len);
        uaccess::copy_to_user(self.address, bytes).map_err(Errno::from)
    }

    /// Copies the start of them to kernel bytes; `bytes` is not longer.
    pub fn copy_to(&self, bytes: &mut [u8]) -> Result<(), Errno> {
        debug_assert!(bytes.len() <= self.len);
        uaccess::copy_from_user(bytes, self.address).map_err(Errno::from)
    }

    /// Without the first `count` bytes.
    #[must_use]
    pub fn skip(&self, count: usize) -> Self {
        let count = count.min(self.len);
        Self {
            address: self.address + count,
            len: self.len - count,
        }
    }

    /// No more than the first `count` bytes.
    #[must_use]
    pub fn limit(&self, count: usize) -> Self {
        let len = self.len.min(count);
        Self { len, ..*self }
    }
}
