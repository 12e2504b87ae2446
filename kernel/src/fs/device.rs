//! The devices: names and numbers.

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

impl Device {
    /// Its number (major in the upper byte).
    pub fn number(self) -> u64 {
        let is_it = |&&(_, device, _): &&(_, Self, _)| device == self;
        DEVICES.iter().find(is_it).map_or(0, |&(.., number)| number)
    }
}
