//! Interrupts for other CPUs: software generated interrupts (SGIs) of GICv3, v4 ([`Gic3`]) and GICv2 ([`Gic2`]).
//!
//! The host has its own driver, which enables the controller, the CPU's interface and the SGI (its redistributor's GICR_ISENABLER0, or GICD_ISENABLER0), acknowledges and ends it.
//! What is here is sending: one write for up to 16 CPUs, or eight.
//!
//! An SGI that is pending for a CPU already merges with the next one (Arm IHI 0069 and IHI 0048, "Interrupt handling and prioritization"): so it is acknowledged before its handler looks.
//! Reading the acknowledge register does that, and a DSB behind the read makes sure of it: of reading ICC_IAR1_EL1 only the effect on the signal to this CPU is immediate (IHI 0069, "Observability of the effects of accesses
//! to the GIC registers"; Linux: `gic_read_iar_common`). Without it an SGI that is sent while the handler looks may merge with the one that is still pending, and nobody looks again. The order of the handler: read,
//! DSB SY, look.

mod affinity;
mod plan;
mod port;
mod send;
mod v2;

pub use affinity::{Affinity, AffinityMap, MapError};
pub use plan::RangeSelector;
pub use port::Port;
#[cfg(target_arch = "aarch64")]
pub use port::{Distributor, SystemRegisters};
pub use send::Gic3;
pub use v2::{Gic2, InterfaceMap};

/// The number of a software generated interrupt, 0 to 15.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sgi(u8);

impl Sgi {
    /// None for numbers above 15.
    pub const fn new(number: u8) -> Option<Self> {
        match number {
            0..=15 => Some(Self(number)),
            _ => None,
        }
    }

    const fn bits(self) -> u64 {
        self.0 as u64
    }
}

/// An interrupt was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// The CPU is not in the map.
    UnknownCpu(usize),
    /// Its affinity 0 is above 15, and the controller has no range selector.
    OutOfReach(usize),
}

/// The CPUs of a set, ascending: bit 0 of the first word is CPU 0.
fn cpus(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    let bits = words.iter().enumerate();
    bits.flat_map(|(index, &word)| {
        let of_word = (0..64).filter(move |bit| word >> bit & 1 != 0);
        of_word.map(move |bit| index * 64 + bit)
    })
}
