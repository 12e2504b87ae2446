//! Who watches the order in which rights are lost and memory changes hands: a model of other CPUs' TLBs when the kernel's
//! memory management is tested on the host (`kernel/tests-host`), nobody in the kernel itself.
//!
//! Each function is called immediately before what it names.

#[cfg(not(target_os = "none"))]
pub(super) use crate::witness::{Gathering, Held, copying, dirtying, freeing, releasing, storing};
#[cfg(target_os = "none")]
pub(super) use nobody::{Gathering, Held, copying, dirtying, freeing, releasing, storing};

/// The kernel's own: all of it disappears.
#[cfg(target_os = "none")]
mod nobody {
    use crate::mm::frames::FrameChain;
    use crate::mm::layout::PhysAddr;

    /// The lock of an address space is held. Dropped after the lock is released.
    #[derive(Debug)]
    pub struct Held;

    impl Held {
        /// That of the space with this root.
        #[inline(always)]
        pub const fn of(_: u64) -> Self {
            Self
        }
    }

    /// Pages are being taken away from many spaces, and nobody may rely on that. Dropped when nobody translates to them any more.
    #[derive(Debug)]
    pub struct Gathering;

    impl Gathering {
        /// From here on.
        #[inline(always)]
        pub const fn begin() -> Self {
            Self
        }
    }

    /// Frames go back to whoever wants them next.
    #[inline(always)]
    pub const fn freeing(_: &FrameChain) {}

    /// One of the owners of the frame gives it up.
    #[inline(always)]
    pub const fn releasing(_: PhysAddr) {}

    /// A copy on write: from the one frame, which may be a file's that others write to, to the other, which nobody has mapped.
    #[inline(always)]
    pub const fn copying(_: PhysAddr, _: PhysAddr, _: bool) {}

    /// A page of a file is copied to the stored copy, while it counts as dirty or not.
    #[inline(always)]
    pub const fn storing(_: PhysAddr, _: bool) {}

    /// A clean page of a file is put down as dirty.
    #[inline(always)]
    pub const fn dirtying(_: PhysAddr) {}
}
