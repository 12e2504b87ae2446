//! From tags to ASIDs and TLB_CONTROL.

use super::support::{Svm, SvmFlags, SvmLacks};
use super::vmcb::{TlbControl, VmcbControl};
use crate::guest::{EnterError, GuestEntries, GuestEntry, GuestTags};

const PAGE_MASK: u64 = 0xfff;
/// What a slot has that has no ASID: the host's is nobody else's.
const NONE: u32 = 0;
/// The first one of guests.
const FIRST: u32 = 1;

/// The ASIDs of one CPU, for up to `SLOTS` tags. Make a new one each time that the CPU comes online.
#[derive(Clone, Debug)]
pub struct SvmTags<const SLOTS: usize> {
    /// The highest ASID.
    last: u32,
    fresh: Option<Fresh<SLOTS>>,
}

/// ASIDs where none can be dropped by itself.
#[derive(Clone, Debug)]
struct Fresh<const SLOTS: usize> {
    /// From here on nobody has used them since everything was dropped.
    next: u32,
    /// Everything has to be dropped before any ASID is used: no guest has run since `next` began again.
    is_drop_due: bool,
    /// Whose ASID which is.
    of_slots: [u32; SLOTS],
}

impl<const SLOTS: usize> SvmTags<SLOTS> {
    /// For a CPU that has just been enabled (EFER.SVME, VM_HSAVE_PA).
    ///
    /// # Errors
    /// If it cannot run guests on nested page tables.
    pub const fn new(svm: &Svm) -> Result<Self, SvmLacks> {
        if !svm.flags.contains(SvmFlags::NESTED_PAGING) {
            return Err(SvmLacks::NestedPaging);
        }
        if svm.asids <= FIRST {
            return Err(SvmLacks::Asids);
        }
        let fresh = match svm.has_flush_by_asid() {
            true => None,
            false => Some(Fresh {
                next: FIRST,
                // Whoever had this CPU before may have used any.
                is_drop_due: true,
                of_slots: [NONE; SLOTS],
            }),
        };
        let last = svm.asids - 1;
        Ok(Self { last, fresh })
    }

    fn choose(&mut self, tag: u16, entries: GuestEntries) -> (u32, TlbControl) {
        let is_kept = tag != 0 && entries == GuestEntries::Keep;
        match (&mut self.fresh, is_kept) {
            (Some(fresh), _) => fresh.choose(tag, is_kept, self.last),
            (None, true) => (FIRST + u32::from(tag), TlbControl::Nothing),
            (None, false) => (FIRST + u32::from(tag), TlbControl::Guest),
        }
    }
}

impl<const SLOTS: usize> Fresh<SLOTS> {
    fn choose(&mut self, tag: u16, is_kept: bool, last: u32) -> (u32, TlbControl) {
        let slot = usize::from(tag).checked_sub(1);
        let held = slot.map_or(NONE, |slot| self.of_slots[slot]);
        let asid = match is_kept && held != NONE {
            true => held,
            false => self.take(last),
        };
        if let Some(slot) = slot {
            self.of_slots[slot] = asid;
        }
        match self.is_drop_due {
            true => (asid, TlbControl::All),
            false => (asid, TlbControl::Nothing),
        }
    }

    /// One that nobody has used since everything was dropped, or will be as the guest is entered.
    fn take(&mut self, last: u32) -> u32 {
        if self.next > last {
            *self = Self {
                next: FIRST,
                is_drop_due: true,
                of_slots: [NONE; SLOTS],
            };
        }
        self.next += 1;
        self.next - 1
    }
}

impl<const SLOTS: usize> GuestTags for SvmTags<SLOTS> {
    type Control = VmcbControl;

    fn slots(&self) -> usize {
        let most = match self.fresh {
            None => self.last - FIRST,
            // When all are used up, each tag takes one anew; the others are for drops.
            Some(_) => self.last / 2,
        };
        SLOTS.min(most as usize).min(usize::from(u16::MAX))
    }

    fn enter(&mut self, entry: GuestEntry, control: &mut VmcbControl) -> Result<(), EnterError> {
        if usize::from(entry.tag) > self.slots() {
            return Err(EnterError::NoSuchTag(entry.tag));
        }
        if entry.root & PAGE_MASK != 0 {
            return Err(EnterError::BadRoot(entry.root));
        }
        let (asid, tlb_control) = self.choose(entry.tag, entry.entries);
        control.load(asid, tlb_control, entry.root);
        Ok(())
    }

    fn ran(&mut self) {
        if let Some(fresh) = &mut self.fresh {
            fresh.is_drop_due = false;
        }
    }
}
