//! Sequences that are known from other code, or from the first idea that one has, and that the machine must punish.

use shootdown_arm64::tlb::{Depth, Dsb, Port, Reach, TagEntries, Tlbi};
use shootdown_arm64::{Asid, AsidBits};

use super::machine::{Machine, TCR_A1, TCR_AS, root_address};
use super::memory::{Page, Value, Word};
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
            machine.leave(0, tcr, root_address(0));
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
    let mut tags = cpus[0].pages.keys().filter_map(|cached| cached.tag);
    assert!(tags.all(|tag| tag == TAG.as_u16()));
}
