//! [`Place`]: where a server sees the buffers of its clients.

use alloc::sync::Arc;
use alloc::vec::Vec;

use shootdown::CpuId;

use super::abi;
use crate::arch::percpu;
use crate::errno::Errno;
use crate::mm::frames::Share;
use crate::mm::lend;
use crate::mm::{GuestArea, Lending, MemorySpace, Window};
use crate::preempt;
use crate::task;

/// What a server asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Ordinary memory: all threads of the process see the buffer, and every CPU that may cache it flushes it.
    Ordinary,
    /// What only the server's CPU can reach.
    Window,
}

impl Mode {
    /// From the argument of a registration.
    pub fn from_abi(mode: u32) -> Result<Self, Errno> {
        match mode {
            abi::MODE_ORDINARY => Ok(Self::Ordinary),
            abi::MODE_WINDOW => Ok(Self::Window),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Where a server sees buffers. Only its own thread, which has the space loaded, shows and hides them; a window also the CPU
/// that it belongs to, as that goes offline.
#[derive(Debug)]
pub(super) enum Place {
    Ordinary(Arc<MemorySpace>, GuestArea),
    Window(Arc<Window>),
}

impl Place {
    /// Room for buffers of so many bytes in the space of the current thread, which serves that CPU.
    pub fn new(
        mode: Mode,
        space: Arc<MemorySpace>,
        cpu: CpuId,
        bytes: usize,
    ) -> Result<Self, Errno> {
        Ok(match mode {
            Mode::Ordinary => {
                let area = space.make_room_for_guests(bytes)?;
                Self::Ordinary(space, area)
            }
            Mode::Window => Self::Window(Arc::new(Window::new(space, cpu, bytes)?)),
        })
    }

    /// The address of the first page.
    pub fn start(&self) -> usize {
        match self {
            Self::Ordinary(_, area) => area.start(),
            Self::Window(window) => window.start(),
        }
    }

    /// Does `work` where pages can be hidden: of a window on its CPU only, else `None`.
    pub fn at_home<T>(&self, work: impl FnOnce() -> Option<T>) -> Option<T> {
        let Self::Window(window) = self else {
            return work();
        };
        preempt::disable();
        let is_home = percpu::cpu_id() == window.cpu();
        let done = if is_home { work() } else { None };
        preempt::enable();
        done
    }

    /// Shows the pages, which moves them unless entries cannot have them. False when the program has spoilt the place, or the
    /// CPU is going.
    pub fn show(&self, pages: &mut Vec<Share>, lending: Lending) -> bool {
        match self {
            Self::Ordinary(space, area) => space.show_guests(area, pages, lending),
            Self::Window(window) => window.show(pages, lending),
        }
    }

    /// Gives up what it shows, of which `pages` has what entries have not, when no CPU can translate to it any more.
    /// [At home](Self::at_home).
    pub fn hide(&self, pages: &mut Vec<Share>) {
        match self {
            Self::Ordinary(space, area) => space.hide_guests(area),
            // If it was never shown there is nothing to hide.
            Self::Window(window) => _ = window.hide(pages.len()),
        }
        lend::release(pages);
    }

    /// Gives up the place. The server's own thread.
    pub fn clear(&self) {
        match self {
            Self::Ordinary(space, area) => space.remove_guests(area),
            Self::Window(_) => task::close_window(),
        }
    }

    /// The window, if it is one.
    pub fn window(&self) -> Option<&Arc<Window>> {
        match self {
            Self::Ordinary(..) => None,
            Self::Window(window) => Some(window),
        }
    }
}
