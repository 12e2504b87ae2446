//! Every operation from every state that firmware, a loader or another kernel can leave behind, and
//! interrupted before each of its instructions. CR4.PGE may be clear though the processor has it: then a sequence that
//! clears it and sets it again drops nothing at first, or leaves it set.

use shootdown_x86::features::FeatureFlags;
use shootdown_x86::tlb::{Depth, InvpcidKind, Pcid, PcidPair, Port, TagEntries};
use shootdown_x86::{PcidSupport, Tlb};

use super::contract::{Op, Seen, check, not_started, perform, start};
use super::processor::{CR4_LA57, CR4_PCIDE, CR4_PGE, CR4_TSD, Processor};
use super::tables::{KERNEL, Page, Tables};

/// CR3 bits 3 and 4 say how the root is cached, while PCIDs are off.
const CR3_CACHING: u64 = 0b11 << 3;
/// Canonical with 57 bits, and with none.
const WIDE: usize = 1 << 55;
const NOWHERE: usize = 1 << 60;

fn pcid(number: u16) -> Pcid {
    Pcid::new(number).unwrap()
}

/// A state by the bits of its number: features, CR4 and CR3 at the start.
fn processor(state: u32) -> Option<Processor> {
    let has = |bit: u32| state >> bit & 1 != 0;
    let mut flags = FeatureFlags::empty();
    flags.set(FeatureFlags::PGE, has(0));
    flags.set(FeatureFlags::PCID, has(1));
    flags.set(FeatureFlags::INVPCID, has(2));
    flags.set(FeatureFlags::TCE, has(7));
    let pge = if has(3) { CR4_PGE } else { 0 };
    let la57 = if has(4) { CR4_LA57 } else { 0 };
    let caching = if has(5) { CR3_CACHING } else { 0 };
    let pcide = if has(6) { CR4_PCIDE } else { 0 };
    let processor = Processor::new(flags, Tables::new(3));
    let pcids = PcidSupport::judge(processor.features(), || unreachable!("no such model"));
    // Whoever leaves PCIDs on, `start` takes over; a value without them is not for such a CPU.
    let is_possible = (has(0) || !has(3)) && (pcids.is_usable() || !has(6));
    is_possible.then(|| processor.with_changed(caching, pge | la57 | pcide))
}

const STATES: u32 = 1 << 8;

/// Tags that are used: the first load of each drops what it had.
fn fill(processor: &Processor, tlb: &Tlb<&Processor>) {
    for number in [2 | 1 << 11, 1, 2] {
        let load = Op::Load(usize::from(number % 3), pcid(number), TagEntries::Drop);
        check(processor, tlb, load, &mut Seen::default());
    }
}

fn pages() -> [Page; 2] {
    [0, KERNEL].map(|region| Page { region, index: 1 })
}

/// Everything that only drops.
fn flushes() -> Vec<Op> {
    let kinds = [InvpcidKind::All, InvpcidKind::AllNonGlobal].map(Op::Tagged);
    let mut ops = vec![Op::Space, Op::All, kinds[0], kinds[1]];
    for page in pages() {
        let pair = PcidPair::new(pcid(2)).unwrap();
        ops.extend([Op::Page(page), Op::Pair(pair)]);
        for depth in [Depth::Leaf, Depth::Tables] {
            ops.extend([Op::Pages(page, depth), Op::UserSide(pair, page, depth)]);
        }
        for number in [0, 1, 2] {
            let kind = InvpcidKind::Page(pcid(number), page.address());
            ops.extend([kind, InvpcidKind::Context(pcid(number))].map(Op::Tagged));
        }
    }
    for address in [WIDE, NOWHERE, !WIDE, !NOWHERE] {
        ops.push(Op::Tagged(InvpcidKind::Page(pcid(2), address)));
        ops.push(Op::Tagged(InvpcidKind::Page(pcid(0), address)));
    }
    ops
}

#[test]
fn nothing_that_has_to_go_survives_whatever_was_on_at_the_start() {
    let (mut possible, mut fully_dropped) = (0, 0);
    for state in 0..STATES {
        for op in flushes() {
            let Some(processor) = processor(state) else {
                continue;
            };
            let tlb = start(&processor);
            if processor.has_pcids_on() {
                fill(&processor, &tlb);
            }
            let (root, mut seen) = (tlb.root(), Seen::default());
            check(&processor, &tlb, op, &mut seen);
            assert_eq!(tlb.root(), root, "{op:?} from state {state:#b}");
            possible += u32::from(matches!(op, Op::All));
            fully_dropped += u32::from(matches!(op, Op::All) && seen.gone > 0 && seen.stayed == 0);
        }
    }
    assert_eq!(fully_dropped, possible);
    assert!(possible > STATES / 2, "{possible}");
}

#[test]
fn roots_are_loaded_whatever_was_on_at_the_start() {
    for state in 0..STATES {
        let Some(processor) = processor(state) else {
            continue;
        };
        let tlb = start(&processor);
        let mut seen = Seen::default();
        for number in [1, 2, 0, 1, 2] {
            for entries in [TagEntries::Keep, TagEntries::Drop] {
                let load = Op::Load(usize::from(number), pcid(number), entries);
                check(&processor, &tlb, load, &mut seen);
                assert_eq!(processor.loaded_root(), usize::from(number));
            }
        }
        check(&processor, &tlb, Op::LoadRoot(2), &mut seen);
        assert_eq!(processor.loaded_root(), 2);
    }
}

/// Does it with an interrupt before the instruction with this number, whose handler loads root 1. Returns
/// whether it came before the end.
fn interrupted(processor: &Processor, position: u32, act: impl FnOnce()) -> bool {
    let tag = if processor.has_pcids_on() { 1 } else { 0 };
    let new = Tables::root_address(1) | tag;
    let tsd = (&processor).read_cr4() & CR4_TSD;
    processor.interrupt_before(position, new);
    act();
    if processor.is_interrupt_due() {
        return false;
    }
    assert_eq!(processor.loaded_root(), 1, "the handler's root is gone");
    let changed = (&processor).read_cr4() & CR4_TSD != tsd;
    assert!(changed, "the handler's change of CR4 is gone");
    true
}

#[test]
fn what_a_handler_loads_stays_loaded() {
    let mut came = 0;
    for state in 0..STATES {
        for position in 0..12 {
            let Some(processor) = processor(state) else {
                continue;
            };
            let tlb = start(&processor);
            let flush = |op| {
                let act = || perform(&processor, &tlb, op);
                interrupted(&processor, position, act)
            };
            came += [Op::Space, Op::All, Op::Tagged(InvpcidKind::AllNonGlobal)]
                .into_iter()
                .map(flush)
                .filter(|&came| came)
                .count();
        }
    }
    assert!(
        came > 100,
        "only {came} interrupts came: this shows nothing"
    );
}

#[test]
fn what_a_handler_loads_stays_loaded_while_tags_are_turned_on_and_off() {
    let mut came = 0;
    for position in 0..8 {
        for pge in [0, CR4_PGE] {
            let flags = FeatureFlags::all();
            let processor = Processor::new(flags, Tables::new(3)).with_changed(CR3_CACHING, pge);
            assert!(PcidSupport::judge(processor.features(), || unreachable!()).is_usable());
            let tlb = not_started(&processor);
            // SAFETY: emulated.
            let on = || unsafe { tlb.start() };
            came += u32::from(interrupted(&processor, position, on));
            let started = (&&processor).read_cr4();
            assert_ne!(started & CR4_PCIDE, 0);
            // SAFETY: emulated.
            let off = || unsafe { tlb.stop() };
            came += u32::from(interrupted(&processor, position, off));
            let stopped = (&&processor).read_cr4();
            assert_eq!(stopped & CR4_PCIDE, 0);
            assert_eq!((started ^ stopped) & CR4_PGE, 0);
        }
    }
    assert!(came > 8, "only {came} interrupts came: this shows nothing");
}
