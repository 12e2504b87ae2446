//! Copying top-level entries into private roots: what the platform does for the engine's windows.

use shootdown::FlushRange;
use shootdown::sim::Ordering;

use crate::explore::Tables;
use crate::kernel::layout::page_at;
use crate::kernel::sightings::Sight;
use crate::kernel::{KERNEL_REGION, PAGES_PER_TABLE, Pte, REGIONS, SharedHardware, WINDOW_REGION};
use crate::machine::context;

/// Whether any page of a region is in the range.
fn concerns(range: FlushRange, region: usize) -> bool {
    let (first, end) = (region * PAGES_PER_TABLE, (region + 1) * PAGES_PER_TABLE);
    page_at(range.start()) < end && first < page_at(range.end() - 1) + 1
}

impl Tables for SharedHardware {
    fn copy_shared_top(&self, shared: u64, private: u64, range: FlushRange) {
        let responds = context().with(|state| state.me().in_handler);
        if responds {
            self.saw(Sight::TopCopiedByResponder);
        }
        let (shared, private) = (shared as u16, private as u16);
        for region in (0..REGIONS).filter(|region| *region != WINDOW_REGION) {
            if !concerns(range, region) {
                continue;
            }
            // ORDERING: acquires the contents of what the entry leads to, for walks through the copy; pairs with the Release in
            // `write_entry`.
            let wanted = self.physical.entry(shared, region).load(Ordering::Acquire);
            let own = self.physical.entry(private, region);
            if own.load(Ordering::Relaxed) == wanted {
                continue;
            }
            context().tell(|| {
                format!(
                    "copies entry {region} of table {shared} to table {private}: {}",
                    Pte(wanted)
                )
            });
            // Nobody but this CPU walks it.
            own.store(wanted, Ordering::Relaxed);
            if responds && Pte(wanted) == Pte::EMPTY {
                self.saw(Sight::TopEntryRemovedByResponder);
            }
        }
    }

    fn clear_top(&self, private: u64, range: FlushRange) {
        for region in (0..KERNEL_REGION).filter(|region| concerns(range, *region)) {
            context().tell(|| format!("clears entry {region} of table {private}"));
            let own = self.physical.entry(private as u16, region);
            own.store(Pte::EMPTY.0, Ordering::Relaxed);
        }
    }

    fn region_of(&self, address: usize) -> usize {
        page_at(address) / PAGES_PER_TABLE
    }
}
