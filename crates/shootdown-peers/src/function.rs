//! [`Borrowed`]: a caller's function on its way to the targets.

use core::fmt;

use shootdown::CpuId;
use shootdown::shim::PlainCell;

/// A function that its caller keeps alive until every target has run it.
#[derive(Clone, Copy)]
pub(crate) struct Borrowed(*const (dyn Fn(CpuId) + Sync + 'static));

// SAFETY: what it points to is `Sync`.
unsafe impl Send for Borrowed {}

impl fmt::Debug for Borrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Borrowed")
    }
}

impl Borrowed {
    /// Does nothing.
    pub(crate) const NOTHING: Self = Self(&|_| ());

    pub(crate) fn new(function: &(dyn Fn(CpuId) + Sync)) -> Self {
        let function: *const (dyn Fn(CpuId) + Sync + '_) = function;
        // SAFETY: only the lifetime changes, and `run` has it as a duty.
        Self(unsafe {
            core::mem::transmute::<
                *const (dyn Fn(CpuId) + Sync + '_),
                *const (dyn Fn(CpuId) + Sync + 'static),
            >(function)
        })
    }

    /// Runs it.
    ///
    /// # Safety
    /// 1. The caller of `call` that lent the function has not returned yet.
    pub(crate) unsafe fn run(self, cpu: CpuId) {
        // SAFETY: duty 1.
        let function = unsafe { &*self.0 };
        function(cpu);
    }
}

/// Where a function lies while its targets have not all copied it.
pub(crate) type Place = PlainCell<Borrowed>;

/// An empty place.
pub(crate) fn place() -> Place {
    PlainCell::new(Borrowed::NOTHING)
}
