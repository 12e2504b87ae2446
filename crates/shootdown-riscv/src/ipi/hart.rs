//! Which hart is which CPU. Hart ids are any numbers: neither dense nor from 0 on (only some hart has id 0), and CPUs may come in another order.

use core::sync::atomic::{AtomicU64, Ordering};

/// A hart's id, as `mhartid` and the firmware's tables have it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HartId(u64);

impl HartId {
    /// What SBI takes for all harts, and so no hart's id here ("Hart list parameter").
    const ALL: u64 = u64::MAX;

    /// The id, unless SBI takes it for all harts.
    pub const fn new(id: u64) -> Option<Self> {
        if id == Self::ALL {
            None
        } else {
            Some(Self(id))
        }
    }

    /// The number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// Harts as SBI's calls take them: bit `i` of `mask` is the hart `base + i`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HartMask {
    /// The lowest of them: SBI wants a hart here that exists.
    pub base: u64,
    /// Which; bit 0 is set.
    pub mask: u64,
}

impl HartMask {
    /// One hart.
    pub const fn only(hart: HartId) -> Self {
        Self {
            base: hart.0,
            mask: 1,
        }
    }
}

/// Why an entry was not made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapError {
    /// The map has no room for a CPU with this number.
    NoSuchCpu,
    /// The CPU is there already, as something else.
    Taken,
}

/// Hart ids by CPU number, for up to `CPUS` CPUs; for a `static`.
#[derive(Debug)]
pub struct HartMap<const CPUS: usize> {
    ids: [AtomicU64; CPUS],
}

impl<const CPUS: usize> Default for HartMap<CPUS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const CPUS: usize> HartMap<CPUS> {
    /// No CPU.
    pub const fn new() -> Self {
        Self {
            ids: [const { AtomicU64::new(HartId::ALL) }; CPUS],
        }
    }

    /// CPU `cpu` is this hart. To say so again is fine. Each hart is to be one CPU's: two CPUs with one id are one target. Any context.
    ///
    /// # Errors
    ///
    /// [`MapError`]; nothing has changed then.
    pub fn insert(&self, cpu: usize, hart: HartId) -> Result<(), MapError> {
        let id = self.ids.get(cpu).ok_or(MapError::NoSuchCpu)?;
        let ordering = Ordering::Relaxed;
        match id.compare_exchange(HartId::ALL, hart.0, ordering, ordering) {
            Err(other) if other != hart.0 => Err(MapError::Taken),
            _ => Ok(()),
        }
    }

    /// The hart that CPU `cpu` is.
    pub fn hart(&self, cpu: usize) -> Option<HartId> {
        HartId::new(self.ids.get(cpu)?.load(Ordering::Relaxed))
    }

    /// The targets in as few masks as there can be, lowest first. Targets that are not in the map are left out.
    ///
    /// `targets` has bit `cpu % 64` of word `cpu / 64` for each. All of them are gone through once for each mask and once more; hart ids within 64 of each other are one mask.
    pub fn masks<'a>(&'a self, targets: &'a [u64]) -> impl Iterator<Item = HartMask> + 'a {
        let mut from = Some(0);
        core::iter::from_fn(move || {
            let mask = self.mask_from(targets, from?)?;
            from = mask.base.checked_add(u64::from(u64::BITS));
            Some(mask)
        })
    }

    /// The mask with the lowest target from hart `from` on, and all others that fit.
    fn mask_from(&self, targets: &[u64], from: u64) -> Option<HartMask> {
        let harts = cpus(targets).filter_map(|cpu| self.hart(cpu));
        let mut found: Option<HartMask> = None;
        for HartId(id) in harts.filter(|hart| hart.0 >= from) {
            let HartMask { base, mask } = found.unwrap_or(HartMask { base: id, mask: 0 });
            let (low, high) = (base.min(id), base.max(id));
            // What does not fit any more comes in a later mask.
            let mask = if id < base {
                shifted(mask, base - id)
            } else {
                mask
            };
            let bit = if low == id { 1 } else { shifted(1, high - low) };
            found = Some(HartMask {
                base: low,
                mask: mask | bit,
            });
        }
        found
    }
}

/// Shifted up, out of the mask if that is far.
fn shifted(mask: u64, by: u64) -> u64 {
    u32::try_from(by).map_or(0, |by| mask.checked_shl(by).unwrap_or(0))
}

/// The numbers of the bits that are set.
pub(super) fn cpus(targets: &[u64]) -> impl Iterator<Item = usize> + '_ {
    targets.iter().enumerate().flat_map(|(index, &word)| {
        let mut rest = word;
        core::iter::from_fn(move || {
            let bit = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            (bit < u64::BITS).then_some(index * 64 + bit as usize)
        })
    })
}
