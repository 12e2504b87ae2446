//! Opening files, and finding programs.

use alloc::string::String;
use alloc::sync::Arc;

use linux_raw_sys::general as linux;

use super::file::OpenFile;
use super::node::Node;
use super::tree::{self, normalise};
use crate::errno::Errno;
use crate::task::Process;

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

    fn writes(self) -> bool {
        self.flags & linux::O_ACCMODE != linux::O_RDONLY
    }
}

/// Opens what is there; nothing can be created.
pub fn open(process: &Process, path: &str, request: OpenRequest) -> Result<Arc<OpenFile>, Errno> {
    let mut path = normalise(path);
    if tree::is_exe_link(&path) {
        path = String::from(&*process.exe());
    }
    let node = match tree::lookup(&path) {
        Err(Errno::ENOENT) if request.has(linux::O_CREAT) => return Err(Errno::EROFS),
        other => other?,
    };
    if request.has(linux::O_CREAT | linux::O_EXCL) {
        return Err(Errno::EEXIST);
    }
    match &node {
        Node::Directory if request.writes() => return Err(Errno::EISDIR),
        Node::Directory => {}
        _ if request.has(linux::O_DIRECTORY) => return Err(Errno::ENOTDIR),
        Node::Static(_) if request.writes() => return Err(Errno::EROFS),
        Node::Pseudo(p) if request.writes() && tree::pseudo_permissions(*p) & 0o222 == 0 => {
            return Err(Errno::EACCES);
        }
        _ => {}
    }
    let file = OpenFile::at_path(node, request.flags & linux::O_ACCMODE, path)?;
    file.set_nonblocking(request.has(linux::O_NONBLOCK));
    Ok(file)
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
