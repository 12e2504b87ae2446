//! Random programs of a small kernel: two CPUs, three spaces, tags that each CPU gives as it likes, tags that mean the same everywhere, and no tags. While one CPU does a step the other changes other tables, by broadcast.

use shootdown_arm64::tlb::{Depth, Granule, Pages, TagEntries};
use shootdown_arm64::{Asid, Errata, Features, IdRegisters, Tlb};

use super::machine::{Act, Cached, Machine, On, Plan, root_address};
use super::memory::{
    CPUS, KERNEL, KERNEL_ROOT, Leaf, Memory, PAGES, Page, REGION_BYTES, USER_REGIONS, Value, Word,
};

const SPACES: usize = 3;
/// Fewer than spaces: they are taken away from each other.
const OWN_TAGS: u16 = 2;
/// That of space `n` is so much above.
const GLOBAL_TAGS: u16 = 0x107;
const TAGS: usize = 1 + OWN_TAGS as usize + SPACES;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

/// How the others are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// The own CPU flushes, then interrupts.
    OwnFirst,
    OthersFirst,
    Broadcast,
    /// By tag, where all that have the space loaded have it under its global tag.
    GlobalTag,
}

const HOWS: [How; 4] = [
    How::OwnFirst,
    How::OthersFirst,
    How::Broadcast,
    How::GlobalTag,
];

#[derive(Clone, Copy, Debug)]
enum What {
    Pages(Pages, Depth),
    /// All of the space, or of everything if it is the kernel's.
    Whole,
}

/// What a tag of a CPU holds: true of a space, or not.
#[derive(Clone, Copy, Debug)]
struct Held {
    space: usize,
    is_true: bool,
}

struct Kernel<'a> {
    machine: &'a Machine,
    tlbs: [Tlb<On<'a>>; CPUS],
    held: [[Option<Held>; TAGS]; CPUS],
    /// Tag and space.
    loaded: [Option<(usize, usize)>; CPUS],
    turn: u16,
    frame: u32,
    core: Features,
}

pub fn features(ranges: bool, wide: bool) -> Features {
    core(0, ranges, wide)
}

/// Of a core that needs no second TLBI: Cortex-A72.
const A72: u64 = 0x410f_d083;
/// Falkor v1, which may mix what one write changes.
const FALKOR: u64 = 0x510f_8000;

fn core(midr: u64, ranges: bool, wide: bool) -> Features {
    Features::of(IdRegisters {
        midr,
        isar0: if ranges { 2 << 56 } else { 0 },
        mmfr0: if wide { 2 << 4 } else { 0 },
        ..IdRegisters::default()
    })
}

pub fn tlb(machine: &Machine, cpu: usize, features: Features) -> Tlb<On<'_>> {
    let port = machine.on(cpu);
    let errata = Errata::of(&features);
    // SAFETY: emulated; top table 0 is empty.
    unsafe { Tlb::new(port, &features, errata, Granule::Kib4, root_address(0)) }
}

fn root_of(space: usize) -> usize {
    space + 1
}

/// Tags by index: none, the CPU's own, global ones.
fn asid(tag: usize) -> Asid {
    match u16::try_from(tag).unwrap() {
        tag if tag <= OWN_TAGS => Asid::new(tag),
        tag => Asid::new(GLOBAL_TAGS + tag),
    }
}

fn global_tag(space: usize) -> usize {
    1 + usize::from(OWN_TAGS) + space
}

/// What a flush names, where these entries of a top table were cleared.
fn unlinked(first: usize, old: &[Value]) -> (Pages, Depth) {
    let blocks = old.iter().filter(|old| matches!(old, Value::Leaf(_)));
    let (stride_bytes, count, depth) = match (blocks.count(), old.len()) {
        (blocks, regions) if blocks == regions => (REGION_BYTES, regions, Depth::Leaf),
        // All pages that the table translated.
        (_, 1) => (4096, PAGES, Depth::Tables),
        // One large page stands for all that it covers.
        _ => (1 << 30, 1, Depth::Tables),
    };
    let page = Page {
        region: first,
        index: 0,
    };
    let pages = Pages {
        start: page.address(),
        stride_bytes,
        count,
    };
    (pages, depth)
}

/// After the flush: the old table's memory is used for something else, and the entry leads to a new table or block.
fn renew(
    memory: &mut Memory,
    cpu: usize,
    (root, region): (usize, usize),
    old: Value,
    (frame, to_block): (u32, bool),
) {
    if let Value::Table(table) = old {
        memory.free(table);
    }
    let global = region == KERNEL;
    let new = match to_block {
        true => Value::Leaf(Leaf {
            frame,
            global,
            block: true,
        }),
        false => Value::Table(memory.new_table(frame, global)),
    };
    memory.store(cpu, Word::Top(root, region), new);
}

impl<'a> Kernel<'a> {
    fn new(machine: &'a Machine, midr: u64, ranges: bool) -> Self {
        let core = core(midr, ranges, true);
        let tlbs = std::array::from_fn(|cpu| tlb(machine, cpu, core));
        for tlb in &tlbs {
            // SAFETY: emulated.
            unsafe { tlb.start() };
        }
        Self {
            machine,
            tlbs,
            held: [[None; TAGS]; CPUS],
            loaded: [None; CPUS],
            turn: 0,
            frame: 10_000,
            core,
        }
    }

    fn step(&mut self, random: &mut Random) -> String {
        let (cpu, space) = (random.below(CPUS), random.below(SPACES));
        let how = (HOWS[random.below(HOWS.len())], random.below(2) == 0);
        // Whoever changes the tables need not be who flushes: it has been told.
        let writer = random.below(CPUS);
        let kind = random.below(12);
        let region = random.below(USER_REGIONS);
        let kernel = random.below(3) == 0;
        let (root, region) = match kernel {
            true => (KERNEL_ROOT, KERNEL),
            false => (root_of(space), region),
        };
        let owner = (!kernel).then_some(space);
        let first = random.below(PAGES);
        let count = 1 + random.below(PAGES - first);
        let changes = (5..11).contains(&kind).then_some(root);
        let loads = (kind < 5).then_some(space);
        let planned = self.plan(random, 1 - cpu, changes, loads);
        self.machine.memory.borrow_mut().tell(cpu);
        let said = format!(
            "{planned}kind {kind} on {cpu} by {writer}, space {owner:?}, region {region}, {count} from {first}, {how:?}"
        );
        match kind {
            0..=2 => {
                self.turn = self.turn % OWN_TAGS + 1;
                let own = 1..=usize::from(OWN_TAGS);
                let mut found =
                    own.filter(|&tag| self.held[cpu][tag].is_some_and(|held| held.space == space));
                let tag = found.next().unwrap_or(usize::from(self.turn));
                self.load(cpu, space, tag);
            }
            3 => self.load(cpu, space, global_tag(space)),
            4 => self.load(cpu, space, 0),
            5..=6 => {
                let page = Page {
                    region,
                    index: first,
                };
                self.map(cpu, root, page);
            }
            7..=8 => {
                let page = |index| Page { region, index };
                for index in first..first + count {
                    self.unmap(writer, root, page(index));
                }
                let what = match random.below(3) {
                    0 => What::Whole,
                    _ => {
                        let start = page(first).address();
                        let depth = [Depth::Leaf, Depth::Tables][random.below(2)];
                        What::Pages(
                            Pages {
                                start,
                                stride_bytes: 4096,
                                count,
                            },
                            depth,
                        )
                    }
                };
                self.flush(cpu, owner, what, how);
            }
            9..=10 => {
                let regions = match random.below(2) == 0 && !kernel {
                    true => 0..USER_REGIONS,
                    false => region..region + 1,
                };
                let old: Vec<_> = regions
                    .clone()
                    .map(|r| self.unlink(writer, root, r))
                    .collect();
                let (pages, depth) = unlinked(regions.start, &old);
                self.flush(cpu, owner, What::Pages(pages, depth), how);
                for (region, old) in regions.zip(old) {
                    self.frame += 10;
                    let to_block = random.below(3) == 0;
                    let mut memory = self.machine.memory.borrow_mut();
                    renew(
                        &mut memory,
                        cpu,
                        (root, region),
                        old,
                        (self.frame, to_block),
                    );
                    drop(memory);
                    self.tlbs[cpu].publish();
                }
            }
            _ => {
                // More than is needed.
                self.tlbs[cpu].flush_all();
                self.trust(cpu, |_| true);
            }
        }
        self.machine.finish_plan();
        said
    }

    /// The other CPU changes tables that this step leaves alone: it unlinks what a top table leads to and flushes by broadcast, or without any flush, if no CPU has that space loaded; then the memory is used anew.
    fn plan(
        &mut self,
        random: &mut Random,
        cpu: usize,
        but: Option<usize>,
        loads: Option<usize>,
    ) -> String {
        let (space, region) = (random.below(SPACES + 1), random.below(USER_REGIONS));
        let (root, region) = match space {
            SPACES => (KERNEL_ROOT, KERNEL),
            _ => (root_of(space), region),
        };
        if but == Some(root) {
            return String::new();
        }
        let is_loaded = |on: &Option<(usize, usize)>| on.is_some_and(|(_, other)| other == space);
        let is_used = space == SPACES || loads == Some(space) || self.loaded.iter().any(is_loaded);
        let memory = self.machine.memory.borrow();
        let old = memory.truth(Word::Top(root, region));
        drop(memory);
        let (core, frame, to_block) = (self.core, self.frame + 100, random.below(3) == 0);
        self.frame = frame;
        let mut acts: Vec<Act> = vec![Box::new(move |machine: &Machine| {
            let mut memory = machine.memory.borrow_mut();
            memory.store(cpu, Word::Top(root, region), Value::Nothing);
        })];
        if is_used {
            let (pages, depth) = unlinked(region, &[old]);
            acts.push(Box::new(move |machine: &Machine| {
                let tlb = tlb(machine, cpu, core);
                tlb.broadcast()
                    .expect("no erratum")
                    .begin(None, [pages], depth);
            }));
            acts.push(Box::new(move |machine: &Machine| {
                tlb(machine, cpu, core)
                    .broadcast()
                    .expect("no erratum")
                    .finish();
            }));
        } else {
            self.distrust(Some(space), |_| false);
        }
        acts.push(Box::new(move |machine: &Machine| {
            let mut memory = machine.memory.borrow_mut();
            renew(&mut memory, cpu, (root, region), old, (frame, to_block));
            drop(memory);
            tlb(machine, cpu, core).publish();
        }));
        let acts = acts.into_iter().map(|act| (random.below(5), act));
        let acts: std::collections::VecDeque<_> = acts.collect();
        let when: Vec<_> = acts.iter().map(|(when, _)| when).collect();
        let said = format!("meanwhile {cpu} renews {region} of {root} by {when:?}, ");
        self.machine.plan(Plan { cpu, acts });
        said
    }

    fn load(&mut self, cpu: usize, space: usize, tag: usize) {
        let root = root_address(root_of(space));
        let held = self.held[cpu][tag];
        let keeps = held.is_some_and(|held| held.space == space && held.is_true);
        let entries = if keeps {
            TagEntries::Keep
        } else {
            TagEntries::Drop
        };
        let tlb = &self.tlbs[cpu];
        match tag {
            // SAFETY: emulated.
            0 => unsafe { tlb.load_root(root) },
            // SAFETY: emulated.
            _ => unsafe { tlb.load_tagged_root(root, asid(tag), entries) },
        }
        self.held[cpu][tag] = Some(Held {
            space,
            is_true: tag != 0,
        });
        self.loaded[cpu] = Some((tag, space));
        assert_eq!(
            self.machine.loaded(cpu),
            (root_of(space), asid(tag).as_u16())
        );
    }

    fn map(&mut self, cpu: usize, root: usize, page: Page) {
        let mut memory = self.machine.memory.borrow_mut();
        let Some(table) = memory.table(root, page.region) else {
            return;
        };
        if memory.leaf(root, page).is_some() {
            return;
        }
        self.frame += 1;
        let leaf = Leaf {
            frame: self.frame,
            global: page.region == KERNEL && page.index + 1 != PAGES,
            block: false,
        };
        memory.store(cpu, Word::Leaf(table, page.index), Value::Leaf(leaf));
        drop(memory);
        self.tlbs[cpu].publish();
        // The own walker sees it.
        let memory = self.machine.memory.borrow();
        let seen = memory.walked(cpu, Word::Leaf(table, page.index));
        assert_eq!(seen, [Value::Leaf(leaf)], "not published");
    }

    fn unmap(&mut self, cpu: usize, root: usize, page: Page) {
        let mut memory = self.machine.memory.borrow_mut();
        if let Some(table) = memory.table(root, page.region) {
            memory.store(cpu, Word::Leaf(table, page.index), Value::Nothing);
        }
    }

    fn unlink(&mut self, cpu: usize, root: usize, region: usize) -> Value {
        let mut memory = self.machine.memory.borrow_mut();
        let old = memory.truth(Word::Top(root, region));
        memory.store(cpu, Word::Top(root, region), Value::Nothing);
        old
    }

    /// Drops it on all CPUs that need it: where the space is loaded, or everywhere if it is the kernel's.
    fn flush(
        &mut self,
        cpu: usize,
        owner: Option<usize>,
        what: What,
        (how, meanwhile): (How, bool),
    ) {
        // By whoever has made the stores.
        self.machine.memory.borrow_mut().tell(cpu);
        let needs = |cpu: usize| match (owner, self.loaded[cpu]) {
            (None, _) => true,
            (Some(space), loaded) => loaded.is_some_and(|(_, other)| other == space),
        };
        let needs: [bool; CPUS] = std::array::from_fn(needs);
        let here = || needs[cpu].then_some(cpu);
        let there = (0..CPUS).filter(|&other| other != cpu && needs[other]);
        let global = owner.filter(|&space| {
            let mut tags = (0..CPUS).filter(|&cpu| needs[cpu]);
            tags.all(|cpu| self.loaded[cpu] == Some((global_tag(space), space)))
        });
        match (how, global) {
            (How::OwnFirst, _) => {
                let order: Vec<_> = here().into_iter().chain(there).collect();
                self.flush_each(&order, owner, what);
            }
            (How::OthersFirst, _) => {
                let order: Vec<_> = there.chain(here()).collect();
                self.flush_each(&order, owner, what);
            }
            (How::GlobalTag, Some(space)) => {
                self.broadcast(cpu, what, Some(space), meanwhile);
                self.distrust(owner, |tag| tag == global_tag(space));
            }
            (How::Broadcast | How::GlobalTag, _) => {
                self.broadcast(cpu, what, None, meanwhile);
                // Under every tag; what is widened drops more.
            }
        }
    }

    fn flush_each(&mut self, cpus: &[usize], owner: Option<usize>, what: What) {
        for &cpu in cpus {
            self.machine.memory.borrow_mut().tell(cpu);
            let tlb = &self.tlbs[cpu];
            match what {
                What::Pages(pages, depth) => tlb.flush_pages(pages, depth),
                What::Whole if owner.is_some() => tlb.flush_space(),
                What::Whole => tlb.flush_all(),
            }
        }
        for cpu in 0..CPUS {
            let loaded = self.loaded[cpu].map(|(tag, _)| tag);
            for tag in 0..TAGS {
                // The kernel's pages go under every tag.
                let kept = owner.is_none() || loaded == Some(tag) && cpus.contains(&cpu);
                if let Some(held) = &mut self.held[cpu][tag] {
                    held.is_true &= kept || owner != Some(held.space);
                }
            }
        }
    }

    fn broadcast(&self, cpu: usize, what: What, space: Option<usize>, meanwhile: bool) {
        let tlb = &self.tlbs[cpu];
        let tag = space.map(|space| asid(global_tag(space)));
        let broadcast = tlb.broadcast().expect("no erratum");
        match (what, tag) {
            (What::Pages(pages, depth), _) => broadcast.begin(tag, [pages], depth),
            (What::Whole, Some(tag)) => broadcast.begin_tag(tag),
            (What::Whole, None) => broadcast.begin_all(),
        }
        if meanwhile {
            // As the engine does: it flushes this CPU while the others are flushed.
            tlb.flush_space();
        }
        broadcast.finish();
    }

    /// Tags of a space but those named hold what is not true any more.
    fn distrust(&mut self, owner: Option<usize>, but: impl Fn(usize) -> bool) {
        for tags in &mut self.held {
            for (tag, held) in tags.iter_mut().enumerate() {
                if let Some(held) = held.as_mut().filter(|held| Some(held.space) == owner) {
                    held.is_true &= but(tag);
                }
            }
        }
    }

    fn trust(&mut self, cpu: usize, which: impl Fn(usize) -> bool) {
        for (tag, held) in self.held[cpu].iter_mut().enumerate() {
            if let Some(held) = held.as_mut().filter(|_| which(tag)) {
                held.is_true = tag != 0;
            }
        }
    }

    /// The tables decide: for what is usable now, for what each tag that is trusted holds, and for the kernel's pages under every tag.
    fn check(&self) {
        for cpu in 0..CPUS {
            let truth = |space: usize, page: Page| {
                let root = if page.region == KERNEL {
                    KERNEL_ROOT
                } else {
                    root_of(space)
                };
                self.machine.memory.borrow().leaf(root, page)
            };
            let usable: Vec<Cached> = self.machine.usable(cpu);
            for cached in usable {
                let space = self.loaded[cpu].map(|(_, space)| space);
                let leaf = match space {
                    None if cached.page.region != KERNEL => None,
                    space => truth(space.unwrap_or(0), cached.page),
                };
                assert_eq!(leaf, Some(cached.leaf), "stale on {cpu}: {cached:?}");
            }
            let cpus = self.machine.cpus.borrow();
            for cached in cpus[cpu].pages.keys() {
                let tag = (0..TAGS).find(|&tag| cached.tag == Some(asid(tag).as_u16()));
                let held = tag.and_then(|tag| self.held[cpu][tag]);
                let held = held.filter(|held| held.is_true);
                if cached.page.region == KERNEL || held.is_some() {
                    let leaf = truth(held.map_or(0, |held| held.space), cached.page);
                    assert_eq!(leaf, Some(cached.leaf), "kept on {cpu}: {cached:?}");
                }
            }
        }
    }
}

#[test]
fn no_translation_contradicts_the_page_tables() {
    for seed in 1..=300u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (repeats, mixes) = (seed % 3 != 0, seed % 3 == 1);
        let machine = Machine::new(true, repeats).mixing(mixes);
        let midr = [A72, FALKOR, 0][seed as usize % 3];
        let mut kernel = Kernel::new(&machine, midr, seed % 2 == 0);
        let mut story = Vec::new();
        for _ in 0..40 {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let said = kernel.step(&mut random);
                kernel.check();
                said
            }));
            match result {
                Ok(said) => story.push(said),
                Err(panic) => {
                    eprintln!("seed {seed}, after {story:#?}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}
