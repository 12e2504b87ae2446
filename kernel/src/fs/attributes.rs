//! What `stat` says about a file.

use linux_raw_sys::general as linux;

/// The type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Contents at offsets.
    Regular,
    /// Names of others.
    Directory,
    /// A character device.
    Device,
    /// One end of a pipe.
    Pipe,
    /// A link to a path.
    Link,
}

/// What is told about a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Bytes; 0 for what has no fixed size.
    pub size: u64,
    /// A number of its own, if it is in the tree.
    pub inode: u64,
    /// Names in the tree.
    pub names: u32,
    /// The time of the last change, in nanoseconds since the epoch.
    pub modified_ns: u64,
    /// Device number (major in the upper byte), 0 for other kinds.
    pub device: u64,
}

impl Attributes {
    /// Without contents, and outside of the tree.
    pub fn new(kind: Kind, permissions: u32) -> Self {
        let kind_bits = match kind {
            Kind::Regular => linux::S_IFREG,
            Kind::Directory => linux::S_IFDIR,
            Kind::Device => linux::S_IFCHR,
            Kind::Pipe => linux::S_IFIFO,
            Kind::Link => linux::S_IFLNK,
        };
        let mode = kind_bits | permissions & 0o7777;
        Self {
            mode,
            size: 0,
            // Some programs take 0 for "deleted".
            inode: u64::MAX,
            names: 1,
            modified_ns: 0,
            device: 0,
        }
    }

    /// Of what has no type, as Linux's event counters.
    pub fn untyped(permissions: u32) -> Self {
        Self {
            mode: permissions,
            ..Self::new(Kind::Regular, permissions)
        }
    }

    /// The type.
    pub fn kind(&self) -> Kind {
        match self.mode & linux::S_IFMT {
            linux::S_IFDIR => Kind::Directory,
            linux::S_IFCHR => Kind::Device,
            linux::S_IFIFO => Kind::Pipe,
            linux::S_IFLNK => Kind::Link,
            _ => Kind::Regular,
        }
    }
}
