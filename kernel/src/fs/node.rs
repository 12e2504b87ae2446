//! What a descriptor stands for.

use alloc::sync::Arc;

use super::attributes::{Attributes, Kind};
use super::device::Device;
use super::epoll::Epoll;
use super::eventfd::Event;
use super::pipe::{PipeReader, PipeWriter};
use super::pseudo::Pseudo;
use super::timerfd::TimerFile;
use crate::mm::MemoryFile;
use crate::vm;
use crate::zerocopy::ServiceHandle;

/// What a descriptor stands for.
#[derive(Debug)]
pub(super) enum Node {
    Device(Device),
    Memory(Arc<MemoryFile>),
    /// What syncs have stored of such a file.
    Stored(Arc<MemoryFile>),
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
    /// What `stat` says about what has no inode.
    pub fn attributes(&self) -> Attributes {
        match self {
            Self::PipeReader(_) | Self::PipeWriter(_) => Attributes::new(Kind::Pipe, 0o600),
            Self::Memory(file) | Self::Stored(file) => Attributes {
                size: file.size(),
                ..Attributes::new(Kind::Regular, 0o400)
            },
            Self::Device(device) => Attributes {
                device: device.number(),
                ..Attributes::new(Kind::Device, 0o600)
            },
            _ => Attributes::untyped(0o600),
        }
    }
}
