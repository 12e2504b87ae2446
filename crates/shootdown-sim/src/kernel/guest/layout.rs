//! How much there is of everything that guests have. Their tables lie in the same frames as those of spaces.

use crate::kernel::PAGES_PER_TABLE;

/// Virtual machines that exist at once, at most.
pub(super) const VMS: usize = 3;
/// How much of a run is about guests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestShare {
    /// Nothing.
    None,
    /// Something besides other things.
    Some,
    /// Little is about anything else.
    Most,
}

impl GuestShare {
    /// In three of four machines nothing. From a source of its own, so that seeds mean what they meant before there were guests.
    pub(crate) fn of_seed(seed: u64) -> Self {
        match Self::source(seed).u8(..4) {
            0 => Self::if_any(seed),
            _ => Self::None,
        }
    }

    /// On a machine with guests.
    pub(crate) fn if_any(seed: u64) -> Self {
        match Self::source(!seed).bool() {
            true => Self::Most,
            false => Self::Some,
        }
    }

    fn source(seed: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(seed ^ 0x6e57_ed00)
    }

    /// How many virtual machines there are at once, at most.
    pub(in crate::kernel) fn most_vms(self, seed: u64) -> usize {
        Self::source(seed.rotate_left(9)).usize(1..=VMS)
    }

    /// How many tags each CPU has for guests: none, too few, enough.
    pub(crate) fn tags(self, seed: u64) -> usize {
        const TAGS: [usize; 7] = [0, 1, 2, 3, 4, 8, 12];
        match self {
            Self::None => 0,
            Self::Some | Self::Most => TAGS[Self::source(seed.rotate_left(21)).usize(..TAGS.len())],
        }
    }
}

/// Virtual CPUs of one, at most.
pub(super) const VCPUS: usize = 3;
/// Entries of a nested root.
pub(super) const GUEST_REGIONS: usize = 2;
/// Guest-physical pages.
pub(super) const GUEST_PAGES: usize = GUEST_REGIONS * PAGES_PER_TABLE;
/// Guest-virtual pages of each virtual CPU, which has page tables of its own.
pub(super) const VIRTUAL_PAGES: usize = 3;
