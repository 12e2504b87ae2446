//! [`Place`]: where a server sees the buffers of its clients.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::abi;
use crate::errno::Errno;
use crate::mm::frames::Share;
use crate::mm::lend;
use crate::mm::{GuestArea, Lending, MemorySpace};

/// What a server asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Ordinary memory: all threads of the process see the buffer, and every CPU that may cache it flushes it.
    Ordinary,
}

impl Mode {
    /// From the argument of a registration.
    pub fn from_abi(mode: u32) -> Result<Self, Errno> {
        match mode {
            abi::MODE_ORDINARY => Ok(Self::Ordinary),
            abi::MODE_WINDOW => Err(Errno::EOPNOTSUPP),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Where a server sees buffers. Only its own thread, which has the space loaded, shows and hides them.
#[derive(Debug)]
pub(super) enum Place {
    Ordinary(Arc<MemorySpace>, GuestArea),
}

impl Place {
    /// Room for buffers of so many bytes in the space of the current thread.
    pub fn new(mode: Mode, space: Arc<MemorySpace>, bytes: usize) -> Result<Self, Errno> {
        match mode {
            Mode::Ordinary => {
                let area = space.make_room_for_guests(bytes)?;
                Ok(Self::Ordinary(space, area))
            }
        }
    }

    /// The address of the first page.
    pub fn start(&self) -> usize {
        match self {
            Self::Ordinary(_, area) => area.start(),
        }
    }

    /// Shows the pages, which moves them unless entries cannot have them. False when the program has spoilt the place.
    pub fn show(&self, pages: &mut Vec<Share>, lending: Lending) -> bool {
        match self {
            Self::Ordinary(space, area) => space.show_guests(area, pages, lending),
        }
    }

    /// Gives up what it shows, of which `pages` has what entries have not, when no CPU can translate to it any more.
    pub fn hide(&self, pages: &mut Vec<Share>) {
        match self {
            Self::Ordinary(space, area) => space.hide_guests(area),
        }
        lend::release(pages);
    }

    /// Gives up the place.
    pub fn clear(&self) {
        match self {
            Self::Ordinary(space, area) => space.remove_guests(area),
        }
    }
}
