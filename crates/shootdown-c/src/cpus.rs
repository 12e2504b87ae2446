//! [`CpuSet`]: sets of CPUs as C has them.

use shootdown::{CpuId, CpuMask, Cpus};

use crate::layout::{EngineStorage, SHOOTDOWN_CPU_WORDS, SHOOTDOWN_MAX_CPUS};
use crate::machine::{N, machine};
use crate::opaque::check_pointer;
use crate::status::{Outcome, SHOOTDOWN_UNKNOWN_CPU, Status, status};

/// A set of CPUs: CPU n is bit n % 64 of word n / 64.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuSet {
    /// The bits.
    pub words: [u64; SHOOTDOWN_CPU_WORDS],
}

impl CpuSet {
    /// Of words of which the last may be missing.
    pub(crate) fn of_words(words: &[u64]) -> Self {
        let mut set = Self::default();
        set.words
            .iter_mut()
            .zip(words)
            .for_each(|(to, from)| *to = *from);
        set
    }

    fn mask(&self) -> CpuMask<Cpus<N>> {
        let has = |cpu: &usize| self.words[cpu / 64] >> (cpu % 64) & 1 != 0;
        let cpus = (0..SHOOTDOWN_MAX_CPUS).filter(has);
        cpus.map(|cpu| CpuId::new(cpu as u32)).collect()
    }
}

/// A number of C's.
pub(crate) fn cpu_id(number: u32) -> Outcome<CpuId> {
    match (number as usize) < N {
        true => Ok(CpuId::new(number)),
        false => Err(SHOOTDOWN_UNKNOWN_CPU),
    }
}

/// A set of C's.
///
/// # Safety
/// 1. It is null or a set.
pub(crate) unsafe fn mask_at(set: *const CpuSet) -> Outcome<CpuMask<Cpus<N>>> {
    check_pointer(set)?;
    // SAFETY: duty 1.
    let set = unsafe { *set };
    Ok(set.mask())
}

/// Writes a set for C, if it wants it.
///
/// # Safety
/// 1. The pointer is null or leads to a set that nobody else uses.
pub(crate) unsafe fn put_mask(set: *mut CpuSet, mask: &CpuMask<Cpus<N>>) {
    if set.is_null() || !set.is_aligned() {
        return;
    }
    let value = CpuSet::of_words(mask.as_set().words());
    // SAFETY: duty 1.
    unsafe { set.write(value) };
}

/// Writes to cpus the CPUs that are online now. Any context; does not block.
///
/// Errors: SHOOTDOWN_NULL, SHOOTDOWN_NOT_INITIALISED.
///
/// # Safety
/// 1. The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shootdown_ready_cpus(
    engine: *const EngineStorage,
    cpus: *mut CpuSet,
) -> Status {
    status((|| {
        // SAFETY: duty 1.
        let machine = unsafe { machine(engine) }?;
        check_pointer(cpus)?;
        // SAFETY: duty 1.
        unsafe { put_mask(cpus, &machine.engine.ready_cpus()) };
        Ok(())
    })())
}
