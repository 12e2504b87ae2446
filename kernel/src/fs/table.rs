//! The file descriptors of a process.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as linux;

use super::device::Device;
use super::file::OpenFile;
use super::node::Node;
use crate::errno::Errno;

/// Most descriptors of one process. A table of so many is no large block of the kernel heap, which could be refused.
pub const MAX_FILES: usize = 512;

/// Does `execve` close the descriptor?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseOnExec {
    /// It does.
    Yes,
    /// It does not.
    No,
}

impl CloseOnExec {
    /// As the flags of `open` and its like say.
    pub fn from_open_flags(flags: u32) -> Self {
        Self::if_set(flags & linux::O_CLOEXEC)
    }

    /// As a flag of its own says.
    pub fn if_set(flag: u32) -> Self {
        match flag {
            0 => Self::No,
            _ => Self::Yes,
        }
    }
}

#[derive(Clone, Debug)]
struct Descriptor {
    file: Arc<OpenFile>,
    close_on_exec: CloseOnExec,
}

/// Open files by number. Cloning shares the files and copies the numbers, as a child process wants it.
#[derive(Clone, Debug)]
pub struct FdTable {
    descriptors: Vec<Option<Descriptor>>,
    /// No number from here on is given out: the limit of the process.
    limit: usize,
}

impl FdTable {
    /// No file is open.
    pub const fn empty() -> Self {
        Self {
            descriptors: Vec::new(),
            limit: MAX_FILES,
        }
    }

    /// Standard input, output and error on the console, as the first process has them.
    pub fn with_console() -> Result<Self, Errno> {
        let console = OpenFile::new(Node::Device(Device::Console), linux::O_RDWR)?;
        let standard = Descriptor {
            file: console,
            close_on_exec: CloseOnExec::No,
        };
        Ok(Self {
            descriptors: alloc::vec![Some(standard); 3],
            limit: MAX_FILES,
        })
    }

    /// Changes the limit; numbers above it stay.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(MAX_FILES);
    }

    /// The file behind the number.
    pub fn get(&self, fd: i32) -> Result<Arc<OpenFile>, Errno> {
        self.look(fd).cloned()
    }

    /// The same, for what is done while the table is locked: then nobody counts the file.
    pub fn look(&self, fd: i32) -> Result<&Arc<OpenFile>, Errno> {
        Ok(&self.descriptor(fd)?.file)
    }

    /// Gives the file the lowest free number from `least` on.
    pub fn insert(
        &mut self,
        file: Arc<OpenFile>,
        close_on_exec: CloseOnExec,
        least: usize,
    ) -> Result<usize, Errno> {
        if least >= self.limit {
            return Err(Errno::EINVAL);
        }
        let free = (least..self.descriptors.len()).find(|&fd| self.descriptors[fd].is_none());
        let fd = free.unwrap_or(self.descriptors.len().max(least));
        if fd >= self.limit {
            return Err(Errno::EMFILE);
        }
        self.grow_to(fd);
        self.descriptors[fd] = Some(Descriptor {
            file,
            close_on_exec,
        });
        Ok(fd)
    }

    /// Gives the file this very number. Returns the file that had it.
    pub fn replace(
        &mut self,
        fd: i32,
        file: Arc<OpenFile>,
        close_on_exec: CloseOnExec,
    ) -> Result<Option<Arc<OpenFile>>, Errno> {
        let fd = usize::try_from(fd)
            .ok()
            .filter(|&fd| fd < self.limit)
            .ok_or(Errno::EBADF)?;
        self.grow_to(fd);
        let old = self.descriptors[fd].replace(Descriptor {
            file,
            close_on_exec,
        });
        Ok(old.map(|old| old.file))
    }

    /// Frees the number. Returns the file, which closes when its last reference goes.
    pub fn remove(&mut self, fd: i32) -> Result<Arc<OpenFile>, Errno> {
        self.descriptor(fd)?;
        let taken = self.descriptors[fd as usize].take();
        Ok(taken.ok_or(Errno::EBADF)?.file)
    }

    /// Is it closed by `execve`?
    pub fn close_on_exec(&self, fd: i32) -> Result<bool, Errno> {
        Ok(self.descriptor(fd)?.close_on_exec == CloseOnExec::Yes)
    }

    /// Changes that.
    pub fn set_close_on_exec(&mut self, fd: i32, close: bool) -> Result<(), Errno> {
        self.descriptor(fd)?;
        if let Some(Some(descriptor)) = self.descriptors.get_mut(fd as usize) {
            descriptor.close_on_exec = if close {
                CloseOnExec::Yes
            } else {
                CloseOnExec::No
            };
        }
        Ok(())
    }

    /// Takes out what `execve` closes; drop it without holding the table's lock.
    pub fn take_close_on_exec(&mut self) -> Vec<Arc<OpenFile>> {
        let closing = self.descriptors.iter_mut().filter_map(|slot| {
            let closes = slot
                .as_ref()
                .is_some_and(|d| d.close_on_exec == CloseOnExec::Yes);
            if closes { slot.take() } else { None }
        });
        closing.map(|descriptor| descriptor.file).collect()
    }

    fn descriptor(&self, fd: i32) -> Result<&Descriptor, Errno> {
        let fd = usize::try_from(fd).map_err(|_| Errno::EBADF)?;
        self.descriptors
            .get(fd)
            .and_then(Option::as_ref)
            .ok_or(Errno::EBADF)
    }

    fn grow_to(&mut self, fd: usize) {
        if fd >= self.descriptors.len() {
            self.descriptors.resize(fd + 1, None);
        }
    }
}
