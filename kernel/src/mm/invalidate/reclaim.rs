//! [`Reclaim`]: what one operation takes away from many spaces, and one flush for all of them.

use super::gather::Gather;
use super::in_flight::InFlight;
use crate::mm::error::MapError;
use crate::mm::frames::{self, FrameChain, ShareList};
use crate::mm::space::{Inner, MemorySpace};
use crate::mm::witness;
use crate::platform::{KernelPlatform, SHOOTDOWN};
use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use shootdown::reclaim;

/// What one space has lost.
#[derive(Debug)]
struct Lot {
    frames: FrameChain,
    shares: ShareList,
    in_flight: InFlight,
}

/// Pages that are taken away from one space after the other. Nobody may rely on that before [`finish`](Self::finish) has returned: until then CPUs may
/// read them, and write to them. So it is for pages whose contents are given up, and a page of a file that can be written to needs no wait of its own
/// ([`Gather::note_writer`]).
///
/// Dropping it loses what was taken away.
#[must_use = "translations are gone and frames are freed only after finish()"]
#[derive(Debug)]
pub struct Reclaim {
    engine: reclaim::Reclaim<'static, KernelPlatform, Vec<ManuallyDrop<Lot>>>,
    spaces: usize,
    open: witness::Gathering,
}

impl Reclaim {
    /// Nothing yet, of that many spaces at most.
    ///
    /// # Errors
    /// [`MapError::NoMemory`].
    pub fn of(spaces: usize) -> Result<Self, MapError> {
        let mut lots = Vec::new();
        lots.try_reserve_exact(spaces)
            .map_err(|_| MapError::NoMemory)?;
        Ok(Self {
            engine: reclaim::Reclaim::new(&SHOOTDOWN, lots),
            spaces: 0,
            open: witness::Gathering::begin(),
        })
    }

    /// `gather` was taken away from `space`: leaf entries only. `_inner` proves that the lock under which that was done is still held (I1). Once a space.
    pub(in crate::mm) fn add(
        &mut self,
        space: &MemorySpace,
        _inner: &Inner,
        mut gather: Gather<'_>,
    ) {
        gather.add_what_is_in_flight();
        if gather.is_empty() {
            return;
        }
        debug_assert!(gather.tables.is_empty());
        #[cfg(feature = "breaks")]
        let gather = match super::breaks::apply(space, gather) {
            super::breaks::Rest::Flush(gather) | super::breaks::Rest::FlushLater(gather) => gather,
            super::breaks::Rest::Nothing => return,
        };
        self.engine.add(&space.engine);
        // There is room: it was reserved.
        self.engine.keep(Lot {
            frames: gather.frames,
            shares: gather.shares,
            in_flight: space.in_flight.clone(),
        });
        self.spaces += 1;
    }

    /// One flush, for which this waits; then frees. No lock of a space is held. From how many spaces something was taken away.
    pub fn finish(self) -> usize {
        let lots = {
            let _open = self.open;
            self.engine.submit().wait()
        };
        for lot in lots {
            let Lot {
                frames,
                shares,
                in_flight,
            } = ManuallyDrop::into_inner(lot);
            drop(in_flight);
            frames::free_chain(frames);
            frames::free_chain(shares.release());
        }
        self.spaces
    }
}
