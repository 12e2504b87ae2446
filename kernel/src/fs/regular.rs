//! Files in memory: what system calls on them do, and what mappings of files show.

use alloc::sync::Arc;

use linux_raw_sys::general as linux;

use super::device::Device;
use super::file::OpenFile;
use super::node::Node;
use super::transfer::copy_in;
use crate::addr::PAGE_BYTES;
use crate::arch::uaccess;
use crate::errno::Errno;
use crate::mm::file::{Copy, PageRange};
use crate::mm::{MemoryFile, SharedArea};
use crate::task;
use crate::user_memory::UserBytes;
use crate::vm;

/// Bytes written at a time: they pass through the stack, because user memory must not be touched under a spin lock.
const PIECE_BYTES: usize = 512;

/// What a mapping of a file shows.
#[derive(Clone, Debug)]
pub enum Mappable {
    /// The pages of this file.
    Pages(Arc<MemoryFile>),
    /// Zeroes.
    Zeroes,
    /// One page that is the kernel's, too.
    Shared(SharedArea),
}

impl OpenFile {
    /// What `mmap` of it shows.
    pub fn mappable(&self) -> Result<Mappable, Errno> {
        match &self.node {
            Node::Memory(file) => Ok(Mappable::Pages(file.clone())),
            Node::Device(Device::Zero) => Ok(Mappable::Zeroes),
            Node::Kvm(vm::Object::Vcpu(vcpu)) => Ok(Mappable::Shared(vcpu.run_page())),
            Node::Directory => Err(Errno::EACCES),
            _ => Err(Errno::ENODEV),
        }
    }

    /// Cuts it or makes it longer; EINVAL for what is no file in memory, or not open for writing.
    pub fn set_size(&self, size: u64) -> Result<(), Errno> {
        match &self.node {
            Node::Memory(file) if !self.is_read_only() => {
                file.change().set_size(size)?;
                self.note_change();
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Makes it at least so long.
    ///
    /// # Errors
    /// EBADF if it is not open for writing, ENODEV for what is no file in memory, EFBIG, ENOMEM.
    pub fn reserve(&self, end: u64) -> Result<(), Errno> {
        match &self.node {
            Node::Memory(_) if self.is_read_only() => Err(Errno::EBADF),
            Node::Memory(file) => {
                let change = file.change();
                if change.size() < end {
                    change.set_size(end)?;
                }
                Ok(())
            }
            _ => Err(Errno::ENODEV),
        }
    }

    /// Stores what was written to it since the last time. Only files in memory keep anything back.
    pub fn sync(&self) -> Result<(), Errno> {
        match &self.node {
            Node::Memory(file) => Ok(file.sync(PageRange::WHOLE)?),
            _ => Ok(()),
        }
    }

    /// A file to read what syncs have stored of this one; ENOTTY for what is no file in memory.
    pub fn stored(&self) -> Result<Arc<Self>, Errno> {
        match &self.node {
            Node::Memory(file) => Self::new(Node::Stored(file.clone()), linux::O_RDONLY),
            _ => Err(Errno::ENOTTY),
        }
    }
}

/// Copies bytes of one of the copies from `offset` on; how many. Stops early for a signal.
pub(super) fn read(
    file: &MemoryFile,
    copy: Copy,
    offset: u64,
    to: UserBytes,
) -> Result<usize, Errno> {
    let mut done = 0;
    while done < to.len {
        let rest = to.skip(done);
        // Each copy is all there or not at all: no page of the program ends in it.
        let room = rest.len.min(PAGE_BYTES - rest.address % PAGE_BYTES);
        let part = file.part(copy, offset.saturating_add(done as u64), room);
        if part.len() == 0 {
            break;
        }
        // SAFETY: 1. they are there until it is dropped.
        let copied = unsafe { uaccess::copy_to_user_from(rest.address, part.as_ptr(), part.len()) };
        match copied {
            Ok(()) => done += part.len(),
            Err(fault) if done == 0 => return Err(fault.into()),
            Err(_) => break,
        }
        if task::current().is_interrupted() {
            break;
        }
    }
    Ok(done)
}

/// Copies bytes to `offset`, or to the end of the file without one; how many, and the offset behind them. No other
/// write comes in between. Stops early for a signal.
///
/// # Errors
/// EFBIG, ENOSPC, ENOMEM and EFAULT, each before the first byte.
pub(super) fn write(
    file: &MemoryFile,
    offset: Option<u64>,
    from: UserBytes,
) -> Result<(usize, u64), Errno> {
    let change = file.change();
    let start = offset.unwrap_or_else(|| change.size());
    let mut at = start;
    let done = copy_in::<PIECE_BYTES>(from, |bytes| {
        let written = change.write(at, bytes)?;
        at += written as u64;
        Ok(written)
    })?;
    Ok((done, start + done as u64))
}
