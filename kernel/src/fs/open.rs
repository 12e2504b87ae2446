//! Opening files, and finding programs.

use alloc::string::String;
use alloc::sync::Arc;

use linux_raw_sys::general as linux;

use super::device::Device;
use super::file::OpenFile;
use super::node::Node;
use super::tmp;
use super::tree::{self, normalise};
use crate::errno::Errno;
use crate::task::Process;
use crate::vm;
use crate::zerocopy::ServiceHandle;

/// How a file is to be opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest {
    flags: u32,
}

impl OpenRequest {
    /// As the flags of `open` say; unknown ones are ignored as on Linux.
    pub fn from_flags(flags: u32) -> Result<Self, Errno> {
        if flags & linux::O_ACCMODE == linux::O_ACCMODE {
            return Err(Errno::EINVAL);
        }
        Ok(Self { flags })
    }

    fn has(self, flag: u32) -> bool {
        self.flags & flag == flag
    }

    fn creates(self) -> bool {
        self.has(linux::O_CREAT)
    }

    fn writes(self) -> bool {
        self.flags & linux::O_ACCMODE != linux::O_RDONLY
    }
}

/// Opens what is there, or a new file in `/tmp` with these permissions.
pub fn open(
    process: &Process,
    path: &str,
    request: OpenRequest,
    permissions: u32,
) -> Result<Arc<OpenFile>, Errno> {
    let mut path = normalise(path);
    if tree::is_exe_link(&path) {
        path = String::from(&*process.exe());
    }
    let node = match tree::lookup(&path) {
        Err(Errno::ENOENT) if request.creates() => create(&path, request, permissions)?,
        Ok(_) if request.has(linux::O_CREAT | linux::O_EXCL) => return Err(Errno::EEXIST),
        other => other?,
    };
    let node = match node {
        Node::Device(Device::ZeroCopy) => Node::ZeroCopy(ServiceHandle::new()),
        Node::Device(Device::Kvm) if !vm::is_supported() => return Err(Errno::ENODEV),
        Node::Device(Device::Kvm) => Node::Kvm(vm::Object::System),
        other => other,
    };
    match &node {
        Node::Directory if request.writes() => return Err(Errno::EISDIR),
        Node::Directory => {}
        _ if request.has(linux::O_DIRECTORY) => return Err(Errno::ENOTDIR),
        Node::Static(_) if request.writes() => return Err(Errno::EROFS),
        Node::Pseudo(p) if request.writes() && p.permissions() & 0o222 == 0 => {
            return Err(Errno::EACCES);
        }
        Node::Memory(regular) if request.writes() && request.has(linux::O_TRUNC) => {
            regular.file.change().set_size(0)?;
        }
        _ => {}
    }
    let file = OpenFile::at_path(node, request.flags & linux::O_ACCMODE, path)?;
    file.set_nonblocking(request.has(linux::O_NONBLOCK));
    file.set_appending(request.has(linux::O_APPEND));
    Ok(file)
}

fn create(path: &str, request: OpenRequest, permissions: u32) -> Result<Node, Errno> {
    match tmp::create(path, permissions) {
        // Another thread was quicker.
        Err(Errno::EEXIST) if !request.has(linux::O_EXCL) => tree::lookup(path),
        made => made.map(Node::Memory),
    }
}

/// Takes a name away: of a file in `/tmp`.
pub fn remove(path: &str) -> Result<(), Errno> {
    let path = normalise(path);
    match tree::lookup(&path)? {
        Node::Memory(_) => tmp::remove(&path),
        Node::Directory => Err(Errno::EISDIR),
        _ => Err(Errno::EROFS),
    }
}

/// Cuts the file at the path or makes it longer: one in `/tmp`.
pub fn set_size(path: &str, size: u64) -> Result<(), Errno> {
    match tree::lookup(&normalise(path))? {
        Node::Memory(regular) => Ok(regular.file.change().set_size(size)?),
        Node::Directory => Err(Errno::EISDIR),
        Node::Static(_) => Err(Errno::EROFS),
        _ => Err(Errno::EINVAL),
    }
}

/// The program at that path: its absolute path and its bytes.
pub fn executable(process: &Process, path: &str) -> Result<(String, &'static [u8]), Errno> {
    let mut path = normalise(path);
    if tree::is_exe_link(&path) {
        path = String::from(&*process.exe());
    }
    match tree::lookup(&path)? {
        Node::Static(file) if file.mode & 0o111 != 0 => Ok((path, file.data)),
        _ => Err(Errno::EACCES),
    }
}
