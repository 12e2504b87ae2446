//! What a name or a descriptor stands for.

use alloc::sync::Arc;

use super::attributes::{Attributes, Kind};
use super::device::Device;
use super::epoll::Epoll;
use super::eventfd::Event;
use super::pipe::{PipeReader, PipeWriter};
use super::pseudo::Pseudo;
use super::timerfd::TimerFile;
use crate::exec::initramfs::File;
use crate::mm::MemoryFile;
use crate::vm;
use crate::zerocopy::ServiceHandle;

/// A file in memory with what it tells about itself.
#[derive(Clone, Debug)]
pub(super) struct Regular {
    pub file: Arc<MemoryFile>,
    pub permissions: u32,
}

/// What a name or a descriptor stands for.
#[derive(Debug)]
pub(super) enum Node {
    Device(Device),
    Static(File),
    Memory(Regular),
    /// What syncs have stored of such a file.
    Stored(Regular),
    Pseudo(Pseudo),
    Directory,
    PipeReader(PipeReader),
    PipeWriter(PipeWriter),
    Event(Event),
    Timer(TimerFile),
    Epoll(Epoll),
    ZeroCopy(ServiceHandle),
    Kvm(vm::Object),
}

impl Node {
    pub fn attributes(&self, path: &str) -> Attributes {
        match self {
            Self::Device(device) => device.attributes(path),
            Self::Static(file) => {
                Attributes::new(Kind::Regular, file.mode, file.data.len() as u64, path)
            }
            Self::Memory(regular) | Self::Stored(regular) => {
                let size = regular.file.size();
                Attributes::new(Kind::Regular, regular.permissions, size, path)
            }
            Self::Pseudo(pseudo) => Attributes::new(Kind::Regular, pseudo.permissions(), 0, path),
            Self::Directory => Attributes::new(Kind::Directory, 0o755, 0, path),
            Self::PipeReader(_) | Self::PipeWriter(_) => {
                Attributes::new(Kind::Pipe, 0o600, 0, path)
            }
            Self::Event(_) | Self::Timer(_) | Self::Epoll(_) => Attributes::untyped(0o600, path),
            Self::ZeroCopy(_) => Device::ZeroCopy.attributes(path),
            Self::Kvm(vm::Object::System) => Device::Kvm.attributes(path),
            Self::Kvm(_) => Attributes::untyped(0o600, path),
        }
    }
}
