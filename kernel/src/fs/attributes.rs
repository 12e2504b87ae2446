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
}

/// What is told about a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Bytes; 0 for what has no fixed size.
    pub size: u64,
    /// A number for the path.
    pub inode: u64,
    /// Device number (major in the upper byte), 0 for other kinds.
    pub device: u64,
}

impl Attributes {
    /// Of the file at that path.
    pub fn new(kind: Kind, permissions: u32, size: u64, path: &str) -> Self {
        let kind_bits = match kind {
            Kind::Regular => linux::S_IFREG,
            Kind::Directory => linux::S_IFDIR,
            Kind::Device => linux::S_IFCHR,
            Kind::Pipe => linux::S_IFIFO,
        };
        let mode = kind_bits | permissions & 0o7777;
        Self {
            mode,
            size,
            inode: inode_of(path),
            device: 0,
        }
    }

    /// Of what has no type, as Linux's event counters.
    pub fn untyped(permissions: u32, path: &str) -> Self {
        Self {
            mode: permissions,
            ..Self::new(Kind::Regular, permissions, 0, path)
        }
    }

    /// The type.
    pub fn kind(&self) -> Kind {
        match self.mode & linux::S_IFMT {
            linux::S_IFDIR => Kind::Directory,
            linux::S_IFCHR => Kind::Device,
            linux::S_IFIFO => Kind::Pipe,
            _ => Kind::Regular,
        }
    }
}

/// FNV-1a of the path: stable, and never 0, which some programs take for "deleted".
fn inode_of(path: &str) -> u64 {
    let hash = path.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.max(1)
}
