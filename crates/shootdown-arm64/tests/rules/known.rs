//! Sequences that are known from other code, or from the first idea that one has, and that the machine must punish.

use shootdown_arm64::tlb::{Depth, Dsb, Pages, Port, Reach, TagEntries, Tlbi};
use shootdown_arm64::{Asid, AsidBits};

use super::machine::{Act, Machine, Plan, TCR_A1, TCR_AS, root_address};
use super::memory::{CPUS, KERNEL, Leaf, Page, Value, Word};
use super::story::{features, tlb};

const PAGE: Page = Page {
    region: 0,
    index: 1,
};
const TAG: Asid = Asid::new(1);

/// Space 1 is loaded under `TAG` on both CPUs, and CPU 0 unmaps a page.
fn unmapped(repeats: bool) -> Machine {
    let machine = Machine::new(true, repeats);
    for cpu in 0..2 {
        // SAFETY: emulated.
        unsafe {
            tlb(&machine, cpu, features(false, true)).load_tagged_root(
                root_address(1),
                TAG,
                TagEntries::Drop,
            )
        };
    }
    let mut memory = machine.memory.borrow_mut();
    let table = memory.table(1, PAGE.region).unwrap();
    memory.store(0, Word::Leaf(table, PAGE.index), Value::Nothing);
    memory.tell(1);
    drop(memory);
    machine
}

fn is_cached(machine: &Machine, cpu: usize) -> bool {
    machine.usable(cpu).iter().any(|cached| cached.page == PAGE)
}

fn page() -> Tlbi {
    Tlbi::Page(None, PAGE.address(), Depth::Leaf)
}

#[test]
fn stores_of_others_that_were_seen_need_more_than_barriers_for_stores() {
    for (before, is_stale) in [(Dsb::Full, false), (Dsb::Stores, true), (Dsb::Own, true)] {
        let machine = unmapped(false);
        let port = machine.on(1);
        port.dsb(before);
        // SAFETY: no range.
        unsafe { port.tlbi(Reach::Own, page()) };
        port.dsb(Dsb::Own);
        port.isb();
        assert_eq!(is_cached(&machine, 1), is_stale, "{before:?}");
    }
}

#[test]
fn a_broadcast_reaches_the_others_and_a_local_one_does_not() {
    for (reach, is_stale) in [(Reach::Inner, false), (Reach::Own, true)] {
        let machine = unmapped(false);
        let port = machine.on(0);
        port.dsb(Dsb::Full);
        // SAFETY: no range.
        unsafe { port.tlbi(reach, page()) };
        port.dsb(Dsb::Full);
        port.isb();
        assert!(!is_cached(&machine, 0));
        assert_eq!(is_cached(&machine, 1), is_stale);
    }
}

#[test]
#[should_panic(expected = "a TLBI without DSB")]
fn a_broadcast_is_not_complete_by_a_barrier_of_this_cpu() {
    let machine = unmapped(false);
    let port = machine.on(0);
    port.dsb(Dsb::Full);
    // SAFETY: no range.
    unsafe { port.tlbi(Reach::Inner, page()) };
    port.dsb(Dsb::Own);
    port.isb();
    machine.usable(0);
}

#[test]
#[should_panic(expected = "stores in flight")]
fn one_broadcast_leaves_stores_in_flight_where_the_erratum_is() {
    let machine = unmapped(true);
    let port = machine.on(0);
    port.dsb(Dsb::Full);
    // SAFETY: no range.
    unsafe { port.tlbi(Reach::Inner, page()) };
    port.dsb(Dsb::Full);
    port.isb();
    machine.usable(1);
}

/// Loads root 2 under the tag that is loaded.
fn load_in_the_order(machine: &Machine, drop_before: bool, drop_behind: bool) {
    let port = machine.on(0);
    let drop = || {
        // SAFETY: no range.
        unsafe { port.tlbi(Reach::Own, Tlbi::All) };
        port.dsb(Dsb::Own);
    };
    port.dsb(Dsb::Full);
    if drop_before {
        drop();
    }
    // SAFETY: emulated.
    unsafe { port.write_ttbr0(root_address(2) | 1 << 48) };
    port.isb();
    if drop_behind {
        drop();
    }
    port.isb();
}

#[test]
#[should_panic(expected = "TLB conflict")]
fn dropped_before_the_load_it_comes_back() {
    load_in_the_order(&unmapped(false), true, false);
}

#[test]
#[should_panic(expected = "TLB conflict")]
fn dropped_behind_the_load_it_meets_the_new_root() {
    load_in_the_order(&unmapped(false), false, true);
}

#[test]
fn the_width_of_tags_is_what_the_processor_takes() {
    for (wide, claims, bits) in [
        (true, true, AsidBits::Sixteen),
        (true, false, AsidBits::Eight),
        (false, false, AsidBits::Eight),
        // A hypervisor that says more than it does.
        (false, true, AsidBits::Eight),
    ] {
        for tcr in [0, TCR_A1, TCR_A1 | 0x19] {
            let machine = Machine::new(wide, false);
            // With a tag of 16 bits, too, where the processor has eight.
            machine.leave(0, tcr, root_address(1) | 0x1234 << 48);
            let tlb = tlb(&machine, 0, features(false, claims));
            // SAFETY: emulated.
            assert_eq!(unsafe { tlb.start() }, bits);
            machine.usable(0);
            let asid = if bits == AsidBits::Eight { 0 } else { TCR_AS };
            assert_eq!(machine.on(0).read_tcr(), tcr & 0x19 | asid);
        }
    }
}

/// What was cached before is true of another meaning of TTBR0_EL1.
#[test]
fn starting_leaves_nothing_cached() {
    let machine = Machine::new(true, false);
    // The tag is TTBR1_EL1's, 0.
    machine.leave(0, TCR_A1 | TCR_AS, root_address(1) | 1 << 48);
    assert!(is_cached(&machine, 0));
    let mut memory = machine.memory.borrow_mut();
    let table = memory.table(1, PAGE.region).unwrap();
    memory.store(0, Word::Leaf(table, PAGE.index), Value::Nothing);
    drop(memory);
    // SAFETY: emulated.
    unsafe { tlb(&machine, 0, features(false, true)).start() };
    assert!(!is_cached(&machine, 0));
    let cpus = machine.cpus.borrow();
    let mut pages = cpus[0].pages.keys();
    assert!(pages.all(|cached| cached.page.region == KERNEL));
}

/// A loader's identity map is global, and no load drops what is.
#[test]
fn starting_leaves_no_root_from_which_global_entries_come_back() {
    for block in [false, true] {
        let machine = Machine::new(true, false);
        let frame = 7;
        let leaf = Leaf {
            frame,
            global: true,
            block,
        };
        let mut memory = machine.memory.borrow_mut();
        let word = match (block, memory.table(1, PAGE.region)) {
            (false, Some(table)) => Word::Leaf(table, PAGE.index),
            _ => Word::Top(1, PAGE.region),
        };
        memory.store(0, word, Value::Leaf(leaf));
        (0..CPUS).for_each(|cpu| _ = memory.settle(cpu, |_| true));
        drop(memory);
        machine.leave(0, 0, root_address(1));
        let tlb = tlb(&machine, 0, features(false, true));
        // SAFETY: emulated.
        unsafe { tlb.start() };
        // SAFETY: emulated.
        unsafe { tlb.load_tagged_root(root_address(2), TAG, TagEntries::Drop) };
        assert!(
            machine
                .usable(0)
                .iter()
                .all(|cached| cached.leaf.frame != frame)
        );
    }
}

/// While CPU 1 loads another root CPU 0 unlinks a table of the one before, flushes and frees it, at any two moments.
fn frees_within_a_load(broadcasts: bool) {
    for moments in (0..12).flat_map(|first| (0..12).map(move |second| [first, second])) {
        let machine = unmapped(true);
        let table = machine.memory.borrow().table(1, PAGE.region).unwrap();
        let unlink: Act = Box::new(move |machine| {
            let mut memory = machine.memory.borrow_mut();
            memory.store(0, Word::Top(1, PAGE.region), Value::Nothing);
            drop(memory);
            let tlb = tlb(machine, 0, features(false, true));
            let page = Pages {
                start: PAGE.address(),
                stride_bytes: 4096,
                count: 1,
            };
            match tlb.broadcast().filter(|_| broadcasts) {
                Some(broadcast) => broadcast.begin(None, [page], Depth::Tables),
                None => tlb.flush_pages(page, Depth::Tables),
            }
        });
        let free: Act = Box::new(move |machine| {
            let tlb = tlb(machine, 0, features(false, true));
            tlb.broadcast().unwrap().finish();
            machine.memory.borrow_mut().free(table);
        });
        let acts = moments.into_iter().zip([unlink, free]).collect();
        machine.plan(Plan { cpu: 0, acts });
        let tlb = tlb(&machine, 1, features(false, true));
        // SAFETY: emulated.
        unsafe { tlb.load_tagged_root(root_address(2), TAG, TagEntries::Drop) };
        machine.finish_plan();
    }
}

#[test]
fn a_broadcast_reaches_a_cpu_within_a_load() {
    frees_within_a_load(true);
}

/// So the CPU is told by interrupt, or is waited for, until the load has returned.
#[test]
#[should_panic(expected = "walks a freed table")]
fn a_load_walks_tables_of_the_root_before() {
    frees_within_a_load(false);
}
