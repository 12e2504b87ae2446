//! [`Function`]: a function of C's, as the engine calls it.

use core::ffi::c_void;

use shootdown::CpuId;

use crate::machine::Machine;
use crate::status::{Outcome, SHOOTDOWN_NULL};

/// A function that is called on CPUs: data as given with it, and the CPU that it runs on. It runs with interrupts off, as an interrupt handler
/// does, on several CPUs at once: it must not sleep, must not enable interrupts, returns on the CPU on which it began, never by longjmp or an
/// exception, and should be short. It may flush, kick and post; calling others and waiting for them is answered by SHOOTDOWN_IN_FUNCTION.
pub type Function = Option<unsafe extern "C" fn(data: *mut c_void, cpu: u32)>;

/// One that is there, with its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    function: unsafe extern "C" fn(*mut c_void, u32),
    data: *mut c_void,
    machine: &'static Machine,
}

// SAFETY: a duty of C's, which the header states: the function may be called on any CPU.
unsafe impl Send for Bound {}
// SAFETY: as above: on several at once.
unsafe impl Sync for Bound {}

impl Bound {
    pub(crate) fn new(
        machine: &'static Machine,
        function: Function,
        data: *mut c_void,
    ) -> Outcome<Self> {
        Ok(Self {
            function: function.ok_or(SHOOTDOWN_NULL)?,
            data,
            machine,
        })
    }

    /// Runs it on `cpu`, which is the running one, with interrupts off.
    pub(crate) fn run(&self, cpu: CpuId) {
        // A CPU that runs functions has memory.
        if let Some(state) = self.machine.state(cpu) {
            state.inside_function(|| {
                // SAFETY: C has given it to be called so.
                unsafe { (self.function)(self.data, cpu.as_u32()) };
            });
        }
    }
}
