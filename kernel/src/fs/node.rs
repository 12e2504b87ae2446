//! What a name or a descriptor stands for.

use super::attributes::{Attributes, Kind};
use super::eventfd::Event;
use super::pipe::{PipeReader, PipeWriter};
use super::pseudo::Pseudo;
use super::tree::{self, Device};
use crate::exec::initramfs::File;

/// What a name or a descriptor stands for.
#[derive(Debug)]
pub(super) enum Node {
    Device(Device),
    Static(File),
    Pseudo(Pseudo),
    Directory,
    PipeReader(PipeReader),
    PipeWriter(PipeWriter),
    Event(Event),
}

impl Node {
    pub fn attributes(&self, path: &str) -> Attributes {
        match self {
            Self::Device(device) => tree::device_attributes(*device, path),
            Self::Static(file) => {
                Attributes::new(Kind::Regular, file.mode, file.data.len() as u64, path)
            }
            Self::Pseudo(pseudo) => {
                Attributes::new(Kind::Regular, tree::pseudo_permissions(*pseudo), 0, path)
            }
            Self::Directory => Attributes::new(Kind::Directory, 0o755, 0, path),
            Self::PipeReader(_) | Self::PipeWriter(_) => {
                Attributes::new(Kind::Pipe, 0o600, 0, path)
            }
            Self::Event(_) => Attributes::untyped(0o600, path),
        }
    }
}
