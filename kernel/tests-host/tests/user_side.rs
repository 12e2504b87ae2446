//! With isolation: what a flush names is gone under the user side of a tag, too, before user mode runs again, on a processor with INVPCID and on one without.
#![cfg(feature = "isolation")]

mod support;

use shootdown::{AddressSpace, FlushRange, FreedTables, PageSize, Root};
use shootdown_kernel_tests::arch::{percpu, tlb};
use shootdown_kernel_tests::isolation;
use shootdown_kernel_tests::mm::page_table::PageTable;
use shootdown_kernel_tests::platform::SHOOTDOWN;
use shootdown_x86::features::FeatureFlags;
use support::*;

const SPACES: usize = 6;
const PAGES: usize = 3;
const STEPS: usize = 20_000;

/// A program runs, and uses all pages, which are in the page tables as `now`.
fn run(now: &[u64; PAGES]) {
    isolation::enter_user();
    tlb::processor().load(percpu::user_cr3());
    for (page, &now) in now.iter().enumerate() {
        assert_eq!(
            tlb::processor().translate(at(page), now),
            now,
            "page {page} is stale"
        );
    }
    tlb::processor().load(percpu::kernel_cr3());
}

/// Spaces take turns on one CPU, and their pages change now and then, also of those that are not loaded; more of them than there are tags.
fn spaces_take_turns(flags: FeatureFlags) {
    tlb::use_pcids(flags);
    let _turn = Turn::new();
    let tables: Vec<_> = (0..SPACES).map(|_| PageTable::new().unwrap()).collect();
    // SAFETY: tables of this kernel, which outlive the spaces.
    let root = |table: &PageTable| unsafe { Root::new(table.root().as_u64()) };
    let spaces: Vec<_> = (tables.iter())
        .map(|table| AddressSpace::new(&SHOOTDOWN, root(table)))
        .collect();
    let mut now = [[0; PAGES]; SPACES];
    let mut random = random::Random::new(1);
    let mut loaded = 0;
    SHOOTDOWN.switch_to(None, &spaces[loaded]);
    for _ in 0..STEPS {
        let (space, page) = (random.below(SPACES), random.below(PAGES));
        match random.below(4) {
            0 => {
                SHOOTDOWN.switch_to(Some(&spaces[loaded]), &spaces[space]);
                loaded = space;
            }
            1 => {
                now[space][page] += 1;
                let freed = [FreedTables::No, FreedTables::Yes][random.below(2)];
                let range = FlushRange::pages(at(page), 1, PageSize::SIZE_4K);
                SHOOTDOWN.flush(&spaces[space], range, freed);
            }
            _ => run(&now[loaded]),
        }
    }
    SHOOTDOWN.switch_away(
        &spaces[loaded],
        shootdown_kernel_tests::arch::paging::kernel_root(),
    );
}

#[test]
fn nothing_stale_is_used_where_single_pages_of_the_user_side_are_dropped() {
    spaces_take_turns(FeatureFlags::all());
}

#[test]
fn nothing_stale_is_used_where_the_user_side_is_dropped_as_it_is_loaded() {
    spaces_take_turns(FeatureFlags::all() - FeatureFlags::INVPCID);
}
