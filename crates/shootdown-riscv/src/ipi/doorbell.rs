//! Words of devices, of which each interrupts one hart when it is written.

use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::hart::MapError;

/// The number of an interrupt in the harts' interrupt files: 1 to 2047 (Advanced Interrupt Architecture, "Interrupt files and interrupt identities").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImsicIdentity(u16);

impl ImsicIdentity {
    /// The identity, if there can be one with this number. Files have 63 at least; the host knows how many the smallest has.
    pub const fn new(identity: u16) -> Option<Self> {
        if identity >= 1 && identity <= 2047 {
            Some(Self(identity))
        } else {
            None
        }
    }

    /// The number.
    pub const fn as_u16(self) -> u16 {
        self.0
    }
}

/// What is written to a doorbell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Doorbell {
    value: u32,
}

impl Doorbell {
    /// For IMSICs: the same identity on every hart, enabled in its interrupt file. A doorbell is the register `seteipnum_le`, the first word of the page of
    /// the hart's interrupt file of supervisor level (Advanced Interrupt Architecture, "Memory region for an interrupt file").
    pub const fn imsic(identity: ImsicIdentity) -> Self {
        Self {
            value: identity.0 as u32,
        }
    }

    /// For an ACLINT's SSWI: a doorbell is the register SETSSIP of the hart, at 4 bytes times its *index* in that device, which the device tree gives, and
    /// not its id ("RISC-V Advanced Core Local Interruptor", 1.0-rc4, "Supervisor-level Software Interrupt Device"). Writing it is an edge, and clearing `sip.SSIP` is all that the target
    /// does; T-HEAD's older device, whose word stays set, is not that.
    pub const fn sswi() -> Self {
        Self { value: 1 }
    }

    pub(super) const fn value(self) -> u32 {
        self.value
    }
}

/// Doorbells by CPU number, for up to `CPUS` CPUs; for a `static`.
#[derive(Debug)]
pub struct DoorbellMap<const CPUS: usize> {
    kind: Doorbell,
    registers: [AtomicPtr<u32>; CPUS],
}

impl<const CPUS: usize> DoorbellMap<CPUS> {
    /// No CPU, of this kind.
    pub const fn new(kind: Doorbell) -> Self {
        Self {
            kind,
            registers: [const { AtomicPtr::new(ptr::null_mut()) }; CPUS],
        }
    }

    /// CPU `cpu` is interrupted by this register. To say so again is fine. Any context.
    ///
    /// # Errors
    ///
    /// [`MapError`]; nothing has changed then.
    ///
    /// # Safety
    ///
    /// 1. `register` is a doorbell of the map's kind, of the hart that is CPU `cpu`, mapped as device memory for writing as long as anybody sends by the map.
    pub unsafe fn insert(&self, cpu: usize, register: NonNull<u32>) -> Result<(), MapError> {
        let place = self.registers.get(cpu).ok_or(MapError::NoSuchCpu)?;
        let (none, new, ordering) = (ptr::null_mut(), register.as_ptr(), Ordering::Relaxed);
        match place.compare_exchange(none, new, ordering, ordering) {
            Err(other) if other != new => Err(MapError::Taken),
            _ => Ok(()),
        }
    }

    pub(super) fn register(&self, cpu: usize) -> Option<NonNull<u32>> {
        NonNull::new(self.registers.get(cpu)?.load(Ordering::Relaxed))
    }

    pub(super) const fn kind(&self) -> Doorbell {
        self.kind
    }
}
