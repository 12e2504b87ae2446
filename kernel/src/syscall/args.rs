//! Arguments of system calls: six registers, and pointers into user memory.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;

use crate::addr;
use crate::arch::trap::TrapFrame;
use crate::arch::uaccess::{self, Pod};
use crate::errno::Errno;

/// Longest path with its terminator.
pub const PATH_MAX: usize = 4096;

/// The six argument registers.
#[derive(Clone, Copy, Debug)]
pub struct Args([u64; 6]);

impl Args {
    /// From the frame of a system call.
    pub fn of(frame: &TrapFrame) -> Self {
        Self([
            frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9,
        ])
    }

    /// As an address or length.
    pub const fn usize(&self, at: usize) -> usize {
        self.0[at] as usize
    }

    /// As all 64 bits.
    pub const fn u64(&self, at: usize) -> u64 {
        self.0[at]
    }

    /// As the low half, as Linux takes `unsigned int` arguments.
    pub const fn u32(&self, at: usize) -> u32 {
        self.0[at] as u32
    }

    /// As the low half, as Linux takes `int` arguments.
    pub const fn i32(&self, at: usize) -> i32 {
        self.0[at] as i32
    }

    /// As a pointer to one or more `T`.
    pub const fn ptr<T>(&self, at: usize) -> UserPtr<T> {
        UserPtr::new(self.0[at] as usize)
    }
}

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
        Self::new(
            self.address
                .wrapping_add(index.wrapping_mul(size_of::<T>())),
        )
    }
}

impl<T: Pod> UserPtr<T> {
    /// Reads one.
    pub fn read(self) -> Result<T, Errno> {
        uaccess::read_user(self.address).map_err(Errno::from)
    }

    /// Writes one.
    pub fn write(self, value: T) -> Result<(), Errno> {
        uaccess::write_user(self.address, value).map_err(Errno::from)
    }

    /// Writes one unless the pointer is null.
    pub fn write_if_some(self, value: T) -> Result<(), Errno> {
        if self.is_null() {
            Ok(())
        } else {
            self.write(value)
        }
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
    crate::task::signal::Action,
    crate::task::signal::AltStack,
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
        Self {
            address: self.address,
            len: self.len.min(count),
        }
    }
}

/// Reads a zero-terminated string of less than `limit` bytes.
///
/// # Errors
/// EFAULT; ENAMETOOLONG when the terminator does not come in time.
pub fn read_bytes_with_nul(address: usize, limit: usize) -> Result<Vec<u8>, Errno> {
    const CHUNK_BYTES: usize = 256;
    let mut bytes = Vec::new();
    while bytes.len() < limit {
        // Up to a page boundary only: what lies behind it need not be mapped.
        let at = address.checked_add(bytes.len()).ok_or(Errno::EFAULT)?;
        let in_page = addr::PAGE_BYTES - at % addr::PAGE_BYTES;
        let mut chunk = vec![0; in_page.min(CHUNK_BYTES).min(limit - bytes.len())];
        uaccess::copy_from_user(&mut chunk, at).map_err(|_| Errno::EFAULT)?;
        if let Some(end) = chunk.iter().position(|&b| b == 0) {
            bytes.extend_from_slice(&chunk[..end]);
            return Ok(bytes);
        }
        bytes.extend_from_slice(&chunk);
    }
    Err(Errno::ENAMETOOLONG)
}

/// Reads a path. ENOENT when it is empty or no text, as no file has such a name.
pub fn read_path(pointer: UserPtr<u8>) -> Result<String, Errno> {
    let bytes = read_bytes_with_nul(pointer.address(), PATH_MAX)?;
    match String::from_utf8(bytes) {
        Ok(path) if !path.is_empty() => Ok(path),
        _ => Err(Errno::ENOENT),
    }
}

/// Reads a name, which may be empty; EINVAL when it is no text.
pub fn read_name(pointer: UserPtr<u8>) -> Result<String, Errno> {
    let bytes = read_bytes_with_nul(pointer.address(), PATH_MAX)?;
    String::from_utf8(bytes).map_err(|_| Errno::EINVAL)
}

/// Is there a terminator at the pointer itself?
pub fn is_empty_string(pointer: UserPtr<u8>) -> Result<bool, Errno> {
    Ok(pointer.read()? == 0)
}
