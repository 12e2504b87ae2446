//! Every operation drops what it promises and keeps what it has no reason to drop.

use proptest::prelude::*;
use shootdown_x86::features::FeatureFlags;
use shootdown_x86::tlb::{Depth, InvpcidKind, Pcid, PcidPair, Port, TagEntries, UserSide};
use shootdown_x86::{PcidSupport, Tlb};

use super::processor::{Born, CR4_PGE, Cached, CachedTable, Caches, Processor};
use super::tables::{Page, REGIONS, Tables, all_pages};

const ROOTS: usize = 3;
/// Few, so that they meet often; 2 + 2048 is the user side of 2.
const TAGS: [u16; 5] = [0, 1, 2, 2 | 1 << 11, 0xfff];

#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Another frame for a page.
    Map(usize, Page, u32),
    Page(Page),
    Pages(Page, Depth),
    Space,
    All,
    Load(usize, Pcid, TagEntries),
    LoadRoot(usize),
    Tagged(InvpcidKind),
    UserSide(PcidPair, Page, Depth),
    Pair(PcidPair),
}

/// Must it be dropped, may it be, or must it stay?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Goes,
    Open,
    Stays,
}

fn goes_if(goes: bool) -> Fate {
    if goes { Fate::Goes } else { Fate::Stays }
}

/// The machine as it was before an operation.
#[derive(Clone, Copy, Debug)]
struct Before {
    pcids: bool,
    invpcid: bool,
    tce: bool,
    loaded: u16,
}

impl Before {
    /// The tag that a load takes.
    fn taken(self, pcid: Pcid) -> u16 {
        if self.pcids { pcid.as_u16() } else { 0 }
    }

    /// What cannot be done exactly is done by dropping everything.
    fn unless_exact(self, exact: bool, goes: bool) -> Fate {
        match goes_if(goes) {
            Fate::Stays if !exact => Fate::Open,
            fate => fate,
        }
    }

    fn page(self, op: Op, cached: &Cached) -> Fate {
        let (global, of) = (cached.tag.is_none(), |tag| cached.tag == Some(tag));
        match op {
            Op::Map(..) => Fate::Stays,
            Op::Page(page) | Op::Pages(page, Depth::Leaf) => {
                goes_if(cached.page == page && (global || of(self.loaded)))
            }
            // Where INVLPG leaves tables, the whole tag goes.
            Op::Pages(page, Depth::Tables) => self.unless_exact(
                !(self.tce && of(self.loaded)),
                cached.page == page && (global || of(self.loaded)),
            ),
            Op::Space => goes_if(of(self.loaded)),
            Op::All | Op::Tagged(InvpcidKind::All) => Fate::Goes,
            Op::Load(_, pcid, TagEntries::Drop) => goes_if(of(self.taken(pcid))),
            Op::Load(_, _, TagEntries::Keep) => goes_if(!self.pcids && of(0)),
            Op::LoadRoot(_) => goes_if(of(0)),
            Op::Tagged(InvpcidKind::AllNonGlobal) => {
                self.unless_exact(self.invpcid || !self.pcids, !global)
            }
            Op::Tagged(InvpcidKind::Context(pcid)) => {
                self.unless_exact(self.reaches(pcid), of(pcid.as_u16()))
            }
            Op::Tagged(InvpcidKind::Page(pcid, address)) => {
                let here = Page::of(address) == Some(cached.page);
                // INVLPG, the next best, drops the page's global translation too.
                let exact = self.reaches(pcid) && (self.invpcid || !(global && here));
                self.unless_exact(exact, here && of(pcid.as_u16()))
            }
            Op::UserSide(pair, page, depth) => {
                let user = self.invpcid && of(pair.user().as_u16());
                goes_if(user && (cached.page == page || depth == Depth::Tables))
            }
            Op::Pair(pair) => goes_if(of(self.loaded) || self.invpcid && of(pair.user().as_u16())),
        }
    }

    fn table(self, op: Op, cached: &CachedTable) -> Fate {
        let of = |tag| cached.tag == tag;
        match op {
            Op::Map(..) => Fate::Stays,
            Op::Page(page) | Op::Pages(page, Depth::Leaf) => {
                goes_if(of(self.loaded) && (!self.tce || page.region == cached.region))
            }
            Op::Pages(_, Depth::Tables) | Op::Space => goes_if(of(self.loaded)),
            Op::All | Op::Tagged(InvpcidKind::All | InvpcidKind::AllNonGlobal) => Fate::Goes,
            Op::Load(_, pcid, TagEntries::Drop) => goes_if(of(self.taken(pcid))),
            Op::Load(_, _, TagEntries::Keep) => goes_if(!self.pcids && of(0)),
            Op::LoadRoot(_) => goes_if(of(0)),
            Op::Tagged(InvpcidKind::Context(pcid)) => {
                self.unless_exact(self.reaches(pcid), of(pcid.as_u16()))
            }
            Op::Tagged(InvpcidKind::Page(pcid, address)) => {
                let leads_there =
                    Page::of(address).is_some_and(|page| page.region == cached.region);
                // INVLPG, the next best, may drop more tables.
                let exact = self.reaches(pcid) && (self.invpcid || !of(pcid.as_u16()));
                self.unless_exact(exact, of(pcid.as_u16()) && leads_there)
            }
            Op::UserSide(pair, page, depth) => {
                let user = self.invpcid && of(pair.user().as_u16());
                goes_if(user && (page.region == cached.region || depth == Depth::Tables))
            }
            Op::Pair(pair) => goes_if(of(self.loaded) || self.invpcid && of(pair.user().as_u16())),
        }
    }

    /// Whether there are means to flush a tag and nothing else.
    fn reaches(self, pcid: Pcid) -> bool {
        self.invpcid || !self.pcids || pcid.as_u16() == self.loaded
    }
}

/// How many cached things were seen to stay and to go.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    pub stayed: usize,
    pub gone: usize,
}

/// Does it, and compares what is cached before and after.
pub fn check(processor: &Processor, tlb: &Tlb<&Processor>, op: Op, seen: &mut Seen) {
    let now = processor.begin();
    let before = Before {
        pcids: processor.has_pcids_on(),
        invpcid: processor.features().has_invpcid() && processor.has_pcids_on(),
        tce: processor.has_tce_on(),
        loaded: processor.loaded_tag(),
    };
    let caches = processor.caches();
    let cr4 = (&processor).read_cr4();
    perform(processor, tlb, op);
    assert!(processor.interrupts_are_on(), "{op:?} left interrupts off");
    let changed = (&processor).read_cr4() ^ cr4;
    assert_eq!(changed, 0, "{op:?} on {before:?} left CR4 changed");
    let after = processor.caches();
    compare(&caches, &after, now, op, before, seen);
    for cached in processor.usable() {
        let tag = processor.loaded_tag();
        assert!(cached.tag.is_none_or(|other| other == tag));
    }
}

fn compare(was: &Caches, is: &Caches, now: Born, op: Op, before: Before, seen: &mut Seen) {
    let mut judge = |what: &dyn std::fmt::Debug, fate, born: Option<&Born>| {
        // Cached anew since is as good as gone.
        let kept = born.is_some_and(|&born| born < now);
        match fate {
            Fate::Goes => assert!(!kept, "{op:?} on {before:?} left {what:?} behind"),
            Fate::Stays => assert!(kept, "{op:?} on {before:?} dropped {what:?} too"),
            Fate::Open => {}
        }
        match kept {
            true => seen.stayed += 1,
            false => seen.gone += 1,
        }
    };
    for cached in was.pages.keys() {
        judge(cached, before.page(op, cached), is.pages.get(cached));
    }
    for cached in was.tables.keys() {
        judge(cached, before.table(op, cached), is.tables.get(cached));
    }
}

pub fn perform(processor: &Processor, tlb: &Tlb<&Processor>, op: Op) {
    let address = Tables::root_address;
    match op {
        Op::Map(root, page, frame) => processor.memory.borrow_mut().set(root, page, Some(frame)),
        Op::Page(page) => tlb.flush_page(page.address()),
        Op::Pages(page, depth) => tlb.flush_pages(page.address(), 4096, 1, depth),
        Op::Space => tlb.flush_non_global(),
        Op::All => tlb.flush_all(),
        // SAFETY: emulated.
        Op::Load(root, pcid, entries) => unsafe {
            tlb.load_tagged_root(address(root), pcid, entries);
        },
        // SAFETY: emulated.
        Op::LoadRoot(root) => unsafe { tlb.load_root(address(root)) },
        // Without tags it is a mistake.
        Op::Tagged(InvpcidKind::Page(pcid, _) | InvpcidKind::Context(pcid))
            if pcid != Pcid::UNTAGGED && !tlb.has_pcids() => {}
        Op::Tagged(kind) => tlb.flush_tagged(kind),
        Op::UserSide(pair, page, depth) => {
            let side = tlb.flush_user_side(pair, (page.address(), 4096, 1), depth);
            assert_eq!(side, expected_side(processor));
        }
        Op::Pair(pair) => assert_eq!(tlb.flush_pair(pair), expected_side(processor)),
    }
}

fn expected_side(processor: &Processor) -> UserSide {
    match processor.has_pcids_on() && !processor.features().has_invpcid() {
        true => UserSide::Owed,
        false => UserSide::Dropped,
    }
}

/// Tags for a processor that does not have them on yet.
pub fn not_started(processor: &Processor) -> Tlb<&Processor> {
    // SAFETY: the features are the processor's.
    let tlb = unsafe { Tlb::with_port(processor, processor.features()) };
    // SAFETY: emulated; the test starts them, or faults.
    unsafe { tlb.with_pcids() }
}

/// A processor with these features and its caches under the crate's control.
pub fn start(processor: &Processor) -> Tlb<&Processor> {
    let features = processor.features();
    let support = PcidSupport::judge(features, || unreachable!("no such model"));
    if !support.is_usable() {
        // SAFETY: they are the processor's.
        return unsafe { Tlb::with_port(processor, features) };
    }
    let tlb = not_started(processor);
    // SAFETY: emulated.
    unsafe { tlb.start() };
    tlb
}

/// Every mixture of what the sequences depend on; global pages on or still off where they exist.
pub fn any_processor(roots: usize) -> impl Strategy<Value = Processor> {
    let relevant =
        FeatureFlags::PGE | FeatureFlags::PCID | FeatureFlags::INVPCID | FeatureFlags::TCE;
    (any::<u32>(), any::<bool>()).prop_map(move |(bits, is_pge_off)| {
        let flags = FeatureFlags::from_bits_truncate(bits) & relevant;
        let is_changed = is_pge_off && flags.contains(FeatureFlags::PGE);
        let changed = if is_changed { CR4_PGE } else { 0 };
        Processor::new(flags, Tables::new(roots)).with_changed(0, changed)
    })
}

pub fn any_page() -> impl Strategy<Value = Page> {
    (0..REGIONS * super::tables::PAGES).prop_map(|nth| all_pages().nth(nth).unwrap())
}

fn any_pcid() -> impl Strategy<Value = Pcid> {
    (0..TAGS.len()).prop_map(|index| Pcid::new(TAGS[index]).unwrap())
}

fn any_depth() -> impl Strategy<Value = Depth> {
    prop_oneof![Just(Depth::Leaf), Just(Depth::Tables)]
}

pub fn any_entries() -> impl Strategy<Value = TagEntries> {
    prop_oneof![Just(TagEntries::Keep), Just(TagEntries::Drop)]
}

fn any_op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        (any_pcid(), any_page()).prop_map(|(pcid, page)| InvpcidKind::Page(pcid, page.address())),
        any_pcid().prop_map(InvpcidKind::Context),
        Just(InvpcidKind::All),
        Just(InvpcidKind::AllNonGlobal),
    ];
    let pair = || (1..3u16).prop_map(|pcid| PcidPair::new(Pcid::new(pcid).unwrap()).unwrap());
    let load = || (0..ROOTS, any_pcid(), any_entries()).prop_map(|(r, p, e)| Op::Load(r, p, e));
    prop_oneof![
        2 => (0..ROOTS, any_page(), 0..50u32).prop_map(|(r, p, f)| Op::Map(r, p, f)),
        6 => load(),
        1 => any_page().prop_map(Op::Page),
        2 => (any_page(), any_depth()).prop_map(|(page, depth)| Op::Pages(page, depth)),
        1 => Just(Op::Space),
        1 => Just(Op::All),
        1 => (0..ROOTS).prop_map(Op::LoadRoot),
        3 => kind.prop_map(Op::Tagged),
        2 => (pair(), any_page(), any_depth()).prop_map(|(pair, page, depth)| Op::UserSide(pair, page, depth)),
        1 => pair().prop_map(Op::Pair),
    ]
}

proptest! {
    #![proptest_config(super::config())]
    #[test]
    fn every_operation_drops_what_it_promises_and_no_more(
        processor in any_processor(ROOTS),
        ops in proptest::collection::vec(any_op(), 1..40),
    ) {
        let tlb = start(&processor);
        for op in ops {
            check(&processor, &tlb, op, &mut Seen::default());
        }
    }
}
