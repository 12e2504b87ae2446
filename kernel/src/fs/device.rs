//! The devices: names and numbers.

use super::attributes::{Attributes, Kind};
use crate::{vm, zerocopy};

/// The devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Device {
    Console,
    Null,
    Zero,
    Random,
    /// Each `open` makes a service of it.
    ZeroCopy,
    /// Makes virtual machines.
    Kvm,
}

/// Name, device, number.
pub(super) const DEVICES: &[(&str, Device, u64)] = &[
    ("/dev/console", Device::Console, 0x501),
    ("/dev/tty", Device::Console, 0x500),
    ("/dev/null", Device::Null, 0x103),
    ("/dev/zero", Device::Zero, 0x105),
    ("/dev/random", Device::Random, 0x108),
    ("/dev/urandom", Device::Random, 0x109),
    (zerocopy::abi::DEVICE, Device::ZeroCopy, 0x0a5a),
    (vm::DEVICE, Device::Kvm, 0x0ae8),
];

/// Permissions of devices.
const DEVICE_PERMISSIONS: u32 = 0o666;

impl Device {
    /// What `stat` says about it.
    pub fn attributes(self, path: &str) -> Attributes {
        let is_it = |&&(_, device, _): &&(_, Self, _)| device == self;
        let number = DEVICES.iter().find(is_it).map_or(0, |&(.., number)| number);
        Attributes {
            device: number,
            ..Attributes::new(Kind::Device, DEVICE_PERMISSIONS, 0, path)
        }
    }
}
