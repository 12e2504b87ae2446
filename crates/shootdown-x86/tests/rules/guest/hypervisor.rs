//! A hypervisor in small: it decides as `shootdown::guest::GuestSpace::run` does, and compares what is cached before and after each entry.

use shootdown_x86::guest::{GuestEntries, GuestEntry, GuestTags};

use super::super::tables::Page;
use super::cpu::{Age, Cpu};
use super::processor::{Born, Cached, Caches, Memory, Running, What};

pub const CPUS: usize = 2;
pub const GUESTS: usize = 2;
/// Whose virtual CPU which is.
pub const GUEST_OF: [usize; 4] = [0, 0, 1, 1];

/// SVM or VMX.
pub trait Kind {
    type Features: Copy;
    type Processor;
    type Control;
    type Tags<'a>: GuestTags<Control = Self::Control>
    where
        Self::Processor: 'a;

    fn processor(features: Self::Features) -> Self::Processor;
    fn caches(processor: &Self::Processor) -> &Caches;
    /// For a CPU that has come online.
    fn tags(processor: &Self::Processor) -> Self::Tags<'_>;
    fn control() -> Self::Control;
    /// A guest's nested page tables.
    fn root(guest: usize) -> u64;
    /// Before an entry: the virtual CPU is the next, and may have run elsewhere before.
    fn prepare(
        processor: &Self::Processor,
        vcpu: usize,
        control: &mut Self::Control,
        has_moved: bool,
    );
    /// Enters; the exit comes later.
    fn launch(processor: &Self::Processor, vcpu: usize, control: &mut Self::Control);
    /// Whether an entry that is not the guest's own affair may drop what others have cached, after so many drops.
    fn may_drop_other_tags(features: Self::Features, drops_since: usize) -> bool;
}

#[derive(Debug)]
struct Vcpu<C> {
    control: C,
    last: Option<usize>,
    moves: u64,
}

/// What a run came upon.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Entries by what they dropped.
    pub kept: usize,
    pub linear: usize,
    pub dropped: usize,
    /// Entries that dropped other tags too.
    pub others: usize,
    /// Cached things of other tags that an entry found and left.
    pub stayed: usize,
}

pub struct Hypervisor<'a, K: Kind> {
    features: K::Features,
    processors: &'a [K::Processor],
    cpus: Vec<Cpu<K::Tags<'a>>>,
    vcpus: Vec<Vcpu<K::Control>>,
    generations: [u64; GUESTS],
    pub memory: Memory,
    /// It knows when only the guest's own tables have changed.
    is_fine: bool,
    pub seen: Seen,
}

pub fn processors<K: Kind>(features: K::Features) -> Vec<K::Processor> {
    (0..CPUS).map(|_| K::processor(features)).collect()
}

impl<'a, K: Kind> Hypervisor<'a, K> {
    pub fn new(features: K::Features, processors: &'a [K::Processor], is_fine: bool) -> Self {
        let vcpu = |_: &usize| Vcpu {
            control: K::control(),
            last: None,
            moves: 0,
        };
        Self {
            features,
            processors,
            cpus: processors.iter().map(Cpu::new::<K>).collect(),
            vcpus: GUEST_OF.iter().map(vcpu).collect(),
            generations: [1; GUESTS],
            memory: Memory::new(GUESTS, GUEST_OF.len()),
            is_fine,
            seen: Seen::default(),
        }
    }

    pub fn caches(&self, cpu: usize) -> &'a Caches {
        K::caches(&self.processors[cpu])
    }

    pub fn running(&self, cpu: usize) -> Option<Running> {
        self.caches(cpu).running()
    }

    pub fn exit(&mut self, cpu: usize) {
        if self.running(cpu).is_some() {
            self.caches(cpu).exit(&self.memory);
        }
    }

    fn exit_if(&mut self, is_meant: impl Fn(usize) -> bool) {
        for cpu in 0..CPUS {
            if self
                .running(cpu)
                .is_some_and(|running| is_meant(running.vcpu))
            {
                self.exit(cpu);
            }
        }
    }

    /// The CPU goes offline, and comes back with its caches as they were.
    pub fn restart(&mut self, cpu: usize) {
        self.exit(cpu);
        self.cpus[cpu] = Cpu::new::<K>(&self.processors[cpu]);
    }

    /// Changes a guest's nested tables, and flushes: whoever runs the guest is kicked.
    pub fn change(&mut self, guest: usize, change: impl FnOnce(&mut Memory)) {
        change(&mut self.memory);
        self.generations[guest] += 1;
        self.exit_if(|vcpu| GUEST_OF[vcpu] == guest);
    }

    /// The host changes what a virtual CPU's own tables say, as by writing its CR3.
    pub fn change_own(&mut self, vcpu: usize, virtual_page: usize, page: Page) {
        self.exit_if(|running| running == vcpu);
        self.memory.own[vcpu][virtual_page] = page;
        self.vcpus[vcpu].moves += 1;
    }

    /// The guest that runs here changes its own tables.
    pub fn guest_maps(&mut self, cpu: usize, virtual_page: usize, page: Page) {
        if self.running(cpu).is_some() {
            self.caches(cpu)
                .guest_maps(&mut self.memory, virtual_page, page);
        }
    }

    /// Runs a virtual CPU here from now on. If it is `in_vain`, an interrupt is pending that keeps the host from entering.
    pub fn enter(&mut self, cpu: usize, vcpu: usize, in_vain: bool) {
        self.exit(cpu);
        self.exit_if(|running| running == vcpu);
        let this = &mut self.vcpus[vcpu];
        let has_moved = this.last != Some(cpu);
        let age = Age {
            generation: self.generations[GUEST_OF[vcpu]],
            moves: this.moves + u64::from(has_moved),
        };
        let (tag, entries) = self.cpus[cpu].choose(vcpu, age, self.is_fine);
        let root = K::root(GUEST_OF[vcpu]);
        let entry = GuestEntry { root, tag, entries };
        let processor = &self.processors[cpu];
        K::prepare(processor, vcpu, &mut this.control, has_moved);
        let caches = K::caches(processor);
        let (before, now) = (caches.all(), caches.begin());
        let here = &mut self.cpus[cpu];
        here.tags.enter(entry, &mut this.control).unwrap();
        if entries != GuestEntries::Keep {
            here.drops = here.drops.saturating_add(1);
        }
        if in_vain {
            here.drops_in_vain += usize::from(entries != GuestEntries::Keep);
            return;
        }
        K::launch(processor, vcpu, &mut this.control);
        here.tags.ran();
        here.leave(tag, vcpu, age);
        (this.last, this.moves) = (Some(cpu), age.moves);
        let before: Vec<Cached> = before.into_keys().collect();
        self.compare(cpu, &before, now, entries);
    }

    /// What had to go is gone, and nothing else.
    fn compare(&mut self, cpu: usize, before: &[Cached], now: Born, entries: GuestEntries) {
        let (here, caches) = (&mut self.cpus[cpu], K::caches(&self.processors[cpu]));
        let running = caches.running().expect("entered");
        let is_old = |what: &str, cached: &Cached| {
            assert!(
                !running.may_use(cached) || caches.all()[cached] >= now,
                "{what} {cached:?} of before is left: {entries:?}"
            );
        };
        let after = caches.all();
        match entries {
            GuestEntries::Keep => self.seen.kept += 1,
            GuestEntries::DropLinear => {
                self.seen.linear += 1;
                let combined = after.keys().filter(|cached| cached.is_combined());
                combined.for_each(|cached| is_old("combined", cached));
            }
            GuestEntries::Drop => {
                self.seen.dropped += 1;
                after.keys().for_each(|cached| is_old("cached", cached));
            }
        }
        let others = before
            .iter()
            .filter(|cached| !may_go(&running, entries, cached));
        let (stayed, gone): (Vec<&Cached>, _) =
            others.partition(|cached| after.contains_key(*cached));
        self.seen.stayed += stayed.len();
        if let Some(gone) = gone.first() {
            self.seen.others += 1;
            let may = K::may_drop_other_tags(self.features, here.drops);
            assert!(
                may,
                "{gone:?} went too after {} drops: {entries:?}",
                here.drops
            );
        }
        if !after.keys().any(|cached| cached.what == What::Host) {
            here.drops = here.drops_in_vain;
        }
        here.drops_in_vain = 0;
    }

    /// Whatever a guest may use is what its tables say.
    pub fn check(&self) {
        for cpu in 0..CPUS {
            let Some(running) = self.running(cpu) else {
                continue;
            };
            let guest = GUEST_OF[running.vcpu];
            assert_eq!(running.root, guest, "another guest's tables");
            let frame = |page| self.memory.nested.leaf(guest, page).map(|leaf| leaf.frame);
            for (cached, _) in self.caches(cpu).usable(&self.memory) {
                let is_true = match cached.what {
                    What::Combined(page, held) => {
                        frame(self.memory.own[running.vcpu][page]) == Some(held)
                    }
                    What::Nested(page, held) => frame(page) == Some(held),
                    What::Table(region, held) => {
                        self.memory.nested.table_of(guest, region) == Some(held)
                    }
                    What::Host => false,
                };
                assert!(is_true, "stale {cached:?} for {running:?}");
            }
        }
    }
}

/// Whether an entry that drops has a reason to drop this.
fn may_go(running: &Running, entries: GuestEntries, cached: &Cached) -> bool {
    match (entries, running.combined.nested) {
        (GuestEntries::Keep, _) => false,
        (GuestEntries::Drop, Some(nested)) => cached.tag.nested == Some(nested),
        (GuestEntries::Drop | GuestEntries::DropLinear, _) => {
            cached.tag.own == running.combined.own
        }
    }
}
