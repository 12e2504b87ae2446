//! Arguments of system calls: six registers, and strings that they point to.

use alloc::string::String;
use alloc::vec::Vec;

use crate::addr;
use crate::arch::trap::TrapFrame;
use crate::arch::uaccess;
use crate::errno::Errno;
use crate::user_memory::UserPtr;

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

    /// As a place in a file or its size: EINVAL for a negative one.
    pub fn offset(&self, at: usize) -> Result<u64, Errno> {
        u64::try_from(self.0[at] as i64).map_err(|_| Errno::EINVAL)
    }

    /// As a pointer to one or more `T`.
    pub const fn ptr<T>(&self, at: usize) -> UserPtr<T> {
        UserPtr::new(self.0[at] as usize)
    }
}

/// Reads a zero-terminated string of less than `limit` bytes.
///
/// # Errors
/// EFAULT; ENAMETOOLONG when the terminator does not come in time.
pub fn read_bytes_with_nul(address: usize, limit: usize) -> Result<Vec<u8>, Errno> {
    const CHUNK_BYTES: usize = 256;
    let mut bytes = Vec::new();
    let mut chunk = [0; CHUNK_BYTES];
    while bytes.len() < limit {
        // Up to a page boundary only: what lies behind it need not be mapped.
        let at = address.checked_add(bytes.len()).ok_or(Errno::EFAULT)?;
        let in_page = addr::PAGE_BYTES - at % addr::PAGE_BYTES;
        let chunk = &mut chunk[..in_page.min(CHUNK_BYTES).min(limit - bytes.len())];
        uaccess::copy_from_user(chunk, at).map_err(|_| Errno::EFAULT)?;
        if let Some(end) = chunk.iter().position(|&b| b == 0) {
            bytes.extend_from_slice(&chunk[..end]);
            return Ok(bytes);
        }
        bytes.extend_from_slice(chunk);
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
