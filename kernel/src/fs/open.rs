//! Opening files, and finding programs.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use linux_raw_sys::general as linux;

use super::device::Device;
use super::file::OpenFile;
use super::inode::{Inode, Regular, What};
use super::node::Node;
use super::path::{Found, LastLink, Path};
use super::tree;
use crate::errno::Errno;
use crate::mm::MemoryFile;
use crate::time;
use crate::vm;
use crate::zerocopy::ServiceHandle;

/// Longest name of a file without one in the tree: what remains of the longest after Linux's prefix.
const MEMFD_NAME_MAX: usize = 249;

/// Permissions of a file that was made without a name.
const MEMFD_PERMISSIONS: u32 = 0o777;

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

    fn last_link(self) -> LastLink {
        match self.has(linux::O_NOFOLLOW) || self.has(linux::O_CREAT | linux::O_EXCL) {
            true => LastLink::Stay,
            false => LastLink::Follow,
        }
    }
}

/// Opens what is there, or a new file with these permissions.
pub fn open(path: &Path, request: OpenRequest, permissions: u32) -> Result<Arc<OpenFile>, Errno> {
    if request.has(linux::O_TMPFILE) {
        return open_unnamed(path, request, permissions);
    }
    let found = path.walk(request.last_link())?;
    let (inode, is_new) = match found.inode {
        Some(_) if request.has(linux::O_CREAT | linux::O_EXCL) => return Err(Errno::EEXIST),
        Some(inode) => (inode, false),
        None if request.creates() => create(&found, request, permissions)?,
        None => return Err(Errno::ENOENT),
    };
    if inode.target().is_some() {
        return Err(Errno::ELOOP);
    }
    let node = node_of(&inode)?;
    match &node {
        Node::Directory if request.writes() || request.creates() => return Err(Errno::EISDIR),
        Node::Directory => {}
        _ if request.has(linux::O_DIRECTORY) => return Err(Errno::ENOTDIR),
        Node::Pseudo(p) if request.writes() && p.permissions() & 0o222 == 0 => {
            return Err(Errno::EACCES);
        }
        Node::Memory(file) if request.writes() && request.has(linux::O_TRUNC) && !is_new => {
            file.change().set_size(0)?;
            inode.set_modified(time::realtime_ns());
        }
        _ => {}
    }
    opened(node, inode, request)
}

fn opened(node: Node, inode: Arc<Inode>, request: OpenRequest) -> Result<Arc<OpenFile>, Errno> {
    let file = OpenFile::of_inode(node, request.flags & linux::O_ACCMODE, inode)?;
    file.set_nonblocking(request.has(linux::O_NONBLOCK));
    file.set_appending(request.has(linux::O_APPEND));
    Ok(file)
}

/// A file without a name (`O_TMPFILE`), for a directory that must be there.
fn open_unnamed(
    path: &Path,
    request: OpenRequest,
    permissions: u32,
) -> Result<Arc<OpenFile>, Errno> {
    if !request.writes() {
        return Err(Errno::EINVAL);
    }
    let directory = tree::find_directory(path)?;
    let name = format!("{}/(deleted)", tree::path_of(&directory)?);
    let inode = new_file(name, permissions)?;
    opened(node_of(&inode)?, inode, request)
}

/// A new file, unless another thread was quicker; whether it is new.
fn create(
    found: &Found,
    request: OpenRequest,
    permissions: u32,
) -> Result<(Arc<Inode>, bool), Errno> {
    let name = match Path::from_root(found) {
        Err(Errno::ENAMETOOLONG) => String::from(&*found.name),
        name => name?,
    };
    let made = new_file(name, permissions)?;
    let inode = tree::create(found, made.clone())?;
    let is_new = Arc::ptr_eq(&inode, &made);
    if !is_new && request.has(linux::O_EXCL) {
        return Err(Errno::EEXIST);
    }
    Ok((inode, is_new))
}

fn new_file(name: String, permissions: u32) -> Result<Arc<Inode>, Errno> {
    let inode = Inode::new(What::Regular(Regular::new(name, &[])), permissions)?;
    // Fails here rather than at the first use.
    inode.file().transpose()?;
    Ok(inode)
}

fn node_of(inode: &Inode) -> Result<Node, Errno> {
    Ok(match &inode.what {
        What::Device(Device::ZeroCopy) => Node::ZeroCopy(ServiceHandle::new()),
        What::Device(Device::Kvm) if !vm::is_supported() => return Err(Errno::ENODEV),
        What::Device(Device::Kvm) => Node::Kvm(vm::Object::System),
        What::Device(device) => Node::Device(*device),
        What::Pseudo(pseudo) => Node::Pseudo(*pseudo),
        What::Directory(_) => Node::Directory,
        What::Regular(regular) => Node::Memory(regular.file()?),
        What::Link(_) | What::ProgramLink => return Err(Errno::ELOOP),
    })
}

/// Cuts the file at the path or makes it longer.
pub fn set_size(path: &Path, size: u64) -> Result<(), Errno> {
    let inode = path.find(LastLink::Follow)?;
    match &inode.what {
        What::Regular(regular) => {
            regular.file()?.change().set_size(size)?;
            inode.set_modified(time::realtime_ns());
            Ok(())
        }
        What::Directory(_) => Err(Errno::EISDIR),
        _ => Err(Errno::EINVAL),
    }
}

/// The program at that path: its absolute path and its file.
///
/// # Errors
/// EACCES for what is no executable file, else as [`tree::attributes`].
pub fn executable(path: &Path) -> Result<(String, Arc<MemoryFile>), Errno> {
    let found = path.walk(LastLink::Follow)?;
    let inode = found.inode.as_ref().ok_or(Errno::ENOENT)?;
    let file = inode.file().filter(|_| inode.is_executable());
    Ok((Path::from_root(&found)?, file.ok_or(Errno::EACCES)??))
}

/// A file without a name in the tree (`memfd_create`), open for reading and writing.
///
/// # Errors
/// EINVAL for too long a name, ENFILE when too many files are open, ENOSPC for too many in memory.
pub fn new_memory_file(name: &str) -> Result<Arc<OpenFile>, Errno> {
    if name.len() > MEMFD_NAME_MAX {
        return Err(Errno::EINVAL);
    }
    let inode = new_file(format!("/memfd:{name} (deleted)"), MEMFD_PERMISSIONS)?;
    OpenFile::of_inode(node_of(&inode)?, linux::O_RDWR, inode)
}
