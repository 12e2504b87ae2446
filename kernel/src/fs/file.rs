//! Open files: a node with an offset.

use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use super::attributes::Attributes;
use super::device::Device;
use super::inode::Inode;
use super::node::Node;
use super::pseudo::Pseudo;
use super::transfer::{copy_in, copy_out, zero_out};
use super::{console, directory, regular};
use crate::budget::{Budget, Share};
use crate::errno::Errno;
use crate::mm::file::Copy;
use crate::random;
use crate::sync::Mutex;
use crate::time;
use crate::user_memory::UserBytes;
use crate::vm;
use crate::zerocopy::Service;

/// Most bytes of one write to a pseudo file.
const PSEUDO_WRITE_BYTES: usize = 256;

/// Most open files of all processes together.
const MOST_OPEN: usize = 4096;

/// Most texts of pseudo files kept between reads; the others are made anew for each read.
const MOST_TEXTS: usize = 64;

static OPEN_FILES: Budget<MOST_OPEN> = Budget::full();
static KEPT_TEXTS: Budget<MOST_TEXTS> = Budget::full();

/// Where a seek counts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// The first byte.
    Start,
    /// The present offset.
    Current,
    /// One past the last byte.
    End,
}

/// An open file, shared by all descriptors that were copied from one another.
#[derive(Debug)]
pub struct OpenFile {
    _share: Share<MOST_OPEN>,
    pub(super) node: Node,
    /// What it is in the tree, or would be if it had a name.
    inode: Option<Arc<Inode>>,
    access: u32,
    nonblocking: AtomicBool,
    appending: AtomicBool,
    offset: AtomicU64,
    /// The text of a pseudo file since it was last read from its start.
    text: Mutex<Option<(Share<MOST_TEXTS>, Arc<String>)>>,
}

impl OpenFile {
    /// Of what is not in the tree. `access` is `O_RDONLY`, `O_WRONLY` or `O_RDWR`.
    ///
    /// # Errors
    /// ENFILE when too many files are open.
    pub(super) fn new(node: Node, access: u32) -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self::bare(node, access)?))
    }

    /// The same, of what `inode` is.
    pub(super) fn of_inode(node: Node, access: u32, inode: Arc<Inode>) -> Result<Arc<Self>, Errno> {
        let mut file = Self::bare(node, access)?;
        file.inode = Some(inode);
        Ok(Arc::new(file))
    }

    fn bare(node: Node, access: u32) -> Result<Self, Errno> {
        Ok(Self {
            _share: OPEN_FILES.take(1).ok_or(Errno::ENFILE)?,
            node,
            inode: None,
            access,
            nonblocking: AtomicBool::new(false),
            appending: AtomicBool::new(false),
            offset: AtomicU64::new(0),
            text: Mutex::new(None),
        })
    }

    /// Reads from the present offset and moves it.
    pub fn read(&self, to: UserBytes) -> Result<usize, Errno> {
        self.may_read()?;
        match &self.node {
            Node::PipeReader(pipe) => pipe.read(to, self.is_nonblocking()),
            Node::Event(event) => event.read(to, self.is_nonblocking()),
            Node::Timer(timer) => timer.read(to, self.is_nonblocking()),
            Node::Epoll(_) => Err(Errno::EINVAL),
            Node::Memory(_) | Node::Stored(_) | Node::Pseudo(_) => {
                let offset = self.offset.load(Ordering::Relaxed);
                let count = self.read_at(to, offset)?;
                self.offset.store(offset + count as u64, Ordering::Relaxed);
                Ok(count)
            }
            _ => self.read_stream(to),
        }
    }

    /// Reads from `offset`, leaving the file's own alone.
    pub fn read_at(&self, to: UserBytes, offset: u64) -> Result<usize, Errno> {
        self.may_read()?;
        match &self.node {
            Node::Memory(file) => regular::read(file, Copy::InMemory, offset, to),
            Node::Stored(file) => regular::read(file, Copy::Stored, offset, to),
            Node::Pseudo(pseudo) => {
                let text = self.text(*pseudo, offset)?;
                copy_out(to, from_offset(text.as_bytes(), offset))
            }
            Node::PipeReader(_)
            | Node::PipeWriter(_)
            | Node::Event(_)
            | Node::Timer(_)
            | Node::Epoll(_) => Err(Errno::ESPIPE),
            _ => self.read_stream(to),
        }
    }

    /// What has no offsets and never waits.
    fn read_stream(&self, to: UserBytes) -> Result<usize, Errno> {
        match &self.node {
            // Nobody types.
            Node::Device(Device::Console | Device::Null) => Ok(0),
            Node::Device(Device::Zero) => zero_out(to),
            Node::Device(Device::Random) => random::fill_user(to.limit(1 << 20)),
            Node::Directory => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Writes at the present offset.
    pub fn write(&self, from: UserBytes) -> Result<usize, Errno> {
        if self.access == linux::O_RDONLY {
            return Err(Errno::EBADF);
        }
        match &self.node {
            Node::Device(Device::Console) => console::write(from),
            Node::Device(_) => Ok(from.len),
            Node::Pseudo(pseudo) if from.len <= PSEUDO_WRITE_BYTES => {
                copy_in::<PSEUDO_WRITE_BYTES>(from, |bytes| {
                    pseudo.accept(bytes)?;
                    Ok(bytes.len())
                })
            }
            Node::PipeWriter(pipe) => pipe.write(from, self.is_nonblocking()),
            Node::Event(event) => event.write(from, self.is_nonblocking()),
            Node::Timer(_) | Node::Epoll(_) => Err(Errno::EINVAL),
            Node::Memory(file) => {
                let offset = self.offset.load(Ordering::Relaxed);
                let (count, end) = regular::write(file, self.place(offset), from)?;
                self.offset.store(end, Ordering::Relaxed);
                self.note_change();
                Ok(count)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// How many bytes of several places a write must keep together; 0 where it need not.
    pub fn kept_together(&self) -> usize {
        match &self.node {
            Node::PipeWriter(_) => linux::PIPE_BUF as usize,
            _ => 0,
        }
    }

    /// Writes so many bytes at most from several places.
    pub fn write_together(&self, from: &[UserBytes]) -> Result<usize, Errno> {
        match &self.node {
            Node::PipeWriter(pipe) => pipe.write_together(from, self.is_nonblocking()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Writes at `offset`, which devices and pseudo files ignore, and files opened for appending, too, as on Linux.
    pub fn write_at(&self, from: UserBytes, offset: u64) -> Result<usize, Errno> {
        match &self.node {
            Node::Memory(_) if self.access == linux::O_RDONLY => Err(Errno::EBADF),
            Node::Memory(file) => {
                let (count, _) = regular::write(file, self.place(offset), from)?;
                self.note_change();
                Ok(count)
            }
            Node::PipeReader(_)
            | Node::PipeWriter(_)
            | Node::Event(_)
            | Node::Timer(_)
            | Node::Epoll(_) => Err(Errno::ESPIPE),
            _ => self.write(from),
        }
    }

    /// Moves the offset. Returns the new one. Never sleeps.
    pub fn seek(&self, by: i64, whence: Whence) -> Result<usize, Errno> {
        match &self.node {
            Node::PipeReader(_) | Node::PipeWriter(_) | Node::Device(Device::Console) => {
                return Err(Errno::ESPIPE);
            }
            // As on Linux it may be sought in, to no effect.
            Node::Event(_) => return Ok(0),
            _ => {}
        }
        let from = |base: i64| base.checked_add(by).filter(|&to| to >= 0);
        let to = match (whence, &self.node) {
            (Whence::Current, _) => {
                let moved = |offset: u64| Some(from(offset as i64)? as u64);
                let before = self
                    .offset
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, moved);
                return Ok((before.map_err(|_| Errno::EINVAL)? as i64 + by) as usize);
            }
            (Whence::End, Node::Memory(file) | Node::Stored(file)) => from(file.size() as i64),
            _ => from(0),
        };
        let to = to.ok_or(Errno::EINVAL)? as u64;
        self.offset.store(to, Ordering::Relaxed);
        Ok(to as usize)
    }

    /// Writes directory entries from the present offset on, as `getdents64` has them.
    pub fn read_directory(&self, to: UserBytes) -> Result<usize, Errno> {
        let inode = self.directory().ok_or(Errno::ENOTDIR)?;
        let directory = inode.directory().ok_or(Errno::ENOTDIR)?;
        let first = self.offset.load(Ordering::Relaxed);
        let (count, next) = directory::read(inode, directory, first, to)?;
        self.offset.store(next, Ordering::Relaxed);
        Ok(count)
    }

    /// What `poll` may report now. Never sleeps; but of a set of files the last reference to one may go.
    pub fn ready(&self) -> u16 {
        let bits = match &self.node {
            Node::PipeReader(pipe) => pipe.ready(),
            Node::PipeWriter(pipe) => pipe.ready(),
            Node::Event(event) => event.ready(),
            Node::Timer(timer) => timer.ready(),
            Node::Epoll(_) if self.has_events() => linux::POLLIN,
            Node::Epoll(_) => 0,
            _ => linux::POLLIN | linux::POLLOUT,
        };
        bits as u16
    }

    /// The service that it is, if it is one.
    pub fn service(&self) -> Option<Arc<Service>> {
        match &self.node {
            Node::ZeroCopy(handle) => Some(handle.service()),
            _ => None,
        }
    }

    /// What it is of a virtual machine, if it is.
    pub fn vm_object(&self) -> Option<vm::Object> {
        match &self.node {
            Node::Kvm(object) => Some(object.clone()),
            _ => None,
        }
    }

    /// Whether it is a set of files that are waited for together.
    pub const fn is_epoll(&self) -> bool {
        matches!(self.node, Node::Epoll(_))
    }

    /// Whether it is the console.
    pub const fn is_console(&self) -> bool {
        matches!(self.node, Node::Device(Device::Console))
    }

    /// What `stat` says.
    pub fn attributes(&self) -> Attributes {
        match &self.inode {
            Some(inode) => inode.attributes(),
            None => self.node.attributes(),
        }
    }

    /// What it is in the tree.
    pub const fn inode(&self) -> Option<&Arc<Inode>> {
        self.inode.as_ref()
    }

    /// The same, if it is a directory.
    pub fn directory(&self) -> Option<&Arc<Inode>> {
        self.inode
            .as_ref()
            .filter(|inode| inode.directory().is_some())
    }

    /// Its bytes have changed.
    pub(super) fn note_change(&self) {
        if let Some(inode) = &self.inode {
            inode.set_modified(time::realtime_ns());
        }
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.access == linux::O_RDONLY
    }

    /// Access and status flags, as `fcntl` tells them.
    pub fn status_flags(&self) -> u32 {
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        self.access
            | flag(self.is_nonblocking(), linux::O_NONBLOCK)
            | flag(self.is_appending(), linux::O_APPEND)
    }

    /// Should reads and writes fail instead of waiting?
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Should writes go to the end?
    pub fn set_appending(&self, appending: bool) {
        self.appending.store(appending, Ordering::Relaxed);
    }

    fn is_appending(&self) -> bool {
        self.appending.load(Ordering::Relaxed)
    }

    /// Where a write to `offset` goes: to the end if that is `None`.
    fn place(&self, offset: u64) -> Option<u64> {
        (!self.is_appending()).then_some(offset)
    }

    fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    /// EBADF unless it was opened for reading.
    pub fn may_read(&self) -> Result<(), Errno> {
        if self.access == linux::O_WRONLY {
            Err(Errno::EBADF)
        } else {
            Ok(())
        }
    }

    /// The text of a pseudo file: made anew at its start, so that one pass sees one state.
    fn text(&self, pseudo: Pseudo, offset: u64) -> Result<Arc<String>, Errno> {
        if offset > 0
            && let Some((_, text)) = &*self.text.lock()
        {
            return Ok(text.clone());
        }
        let text = Arc::new(pseudo.text()?);
        let keep = KEPT_TEXTS.take(1).map(|share| (share, text.clone()));
        let old = core::mem::replace(&mut *self.text.lock(), keep);
        drop(old);
        Ok(text)
    }
}

fn from_offset(bytes: &[u8], offset: u64) -> &[u8] {
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    &bytes[start..]
}
