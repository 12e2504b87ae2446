//! A machine of loom threads: each is a CPU, interrupts are flags that a thread takes where it says so.
//!
//! The "TLB" of a CPU holds at most one translation a page, filled by [`Machine::walk`] and dropped by the
//! platform's flushes, so that a model can ask what a CPU would still use.
//!
//! Where a real CPU spins, a loom thread blocks on its own [`Event`], which whatever it can wait for sets: an
//! interrupt, an acknowledgement, the model's end. (loom runs one of several yielding threads for ever.) An
//! event is set after the memory access that it announces and orders nothing before it that a thread
//! has not already seen when it looked without blocking, which loom tries too.

#![allow(dead_code, reason = "each model uses a part")]

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use shootdown::calls::Wait;
use shootdown::*;
use shootdown::{guest::*, remote::*, tags::*, watch::*};
use std::cell::Cell;
use std::num::NonZeroU64;

pub const PAGES: usize = 2;
/// A machine for so many CPUs has some that may die.
pub const DEADLY: usize = 4;
/// Tags of a tagged machine.
pub const TAGS: usize = 2;
/// The first global tag, and the only one that models use.
pub const GLOBAL_TAG: usize = TAGS + 1;
/// Tags of virtual CPUs.
const GUEST_TAGS: usize = 1;
/// Tags that something may be cached under.
const CACHES: usize = GLOBAL_TAG + 1;
/// The root without a user part.
// SAFETY: a model's roots are numbers.
pub const NO_USER: KernelRoot = unsafe { KernelRoot::new(0) };
/// The root that leads through [`Model::table_page`].
pub const TABLE_OWNER: u64 = 1;
/// A private root, which leads through [`Model::table_page`] if its copy of the shared top-level entry does.
pub const PRIVATE: u64 = 7;
/// A CPU's own root of a tracked space, each of whose pages is a region; the first leads through [`Model::table_page`].
pub const OWN_ROOT: u64 = 8;
pub const PAGE: usize = 4096;

/// Page tables number `number`.
pub fn tables(number: u64) -> Root {
    // SAFETY: a model's roots are numbers.
    unsafe { Root::new(number) }
}

pub fn cpu(number: u32) -> CpuId {
    CpuId::new(number)
}

pub fn page(number: usize) -> FlushRange {
    FlushRange::pages(number * PAGE, 1, PageSize::SIZE_4K)
}

/// A count for functions that outlive who posts them.
pub fn counter() -> &'static AtomicU64 {
    Box::leak(Box::new(AtomicU64::new(0)))
}

pub fn flag() -> &'static AtomicBool {
    Box::leak(Box::new(AtomicBool::new(false)))
}

loom::thread_local! {
    static CPU: Cell<u32> = Cell::new(0);
    static LOADED: Cell<u64> = Cell::new(NO_USER.as_u64());
    static IRQS_OFF: Cell<bool> = Cell::new(false);
    static TAG: Cell<usize> = Cell::new(0);
    /// The top-level entry of this CPU's private root, and whether the CPU has it cached.
    static COPY: Cell<bool> = Cell::new(false);
    static COPY_CACHED: Cell<bool> = Cell::new(false);
    /// The regions whose entry this CPU's own root has.
    static TAKEN: Cell<[bool; PAGES]> = Cell::new([false; PAGES]);
    static CACHED: Cell<[[Option<u64>; PAGES]; CACHES]> = Cell::new([[None; PAGES]; CACHES]);
    /// What guests have cached, by tag.
    static GUEST_CACHED: Cell<[[Option<u64>; PAGES]; GUEST_TAGS + 1]> = Cell::new([[None; PAGES]; GUEST_TAGS + 1]);
    /// How often each page had been flushed everywhere when this CPU looked last.
    static SEEN: Cell<[u64; PAGES]> = Cell::new([0; PAGES]);
}

/// Changes what this CPU has cached under the loaded tag.
fn with_cached<R>(change: impl FnOnce(&mut [Option<u64>; PAGES]) -> R) -> R {
    let tag = TAG.with(Cell::get);
    CACHED.with(|cached| {
        let mut entries = cached.get();
        let result = change(&mut entries[tag]);
        cached.set(entries);
        result
    })
}

/// What a processor with [`PRIVATE`] or [`OWN_ROOT`] loaded may do at any time: use the top-level entry, and keep it.
pub fn speculate(table: &TablePage) {
    let has_entry = match LOADED.with(Cell::get) {
        PRIVATE => COPY.with(Cell::get),
        OWN_ROOT => TAKEN.with(Cell::get)[0],
        _ => return,
    };
    if has_entry || COPY_CACHED.with(Cell::get) {
        table.walk();
        COPY_CACHED.with(|cached| cached.set(true));
    }
}

/// Whether this CPU's private root has the top-level entry.
pub fn has_copy() -> bool {
    COPY.with(Cell::get)
}

/// A sticky wake-up for one CPU.
pub struct Event(Mutex<bool>, Condvar);

impl Event {
    pub fn new() -> Self {
        Self(Mutex::new(false), Condvar::new())
    }

    pub fn set(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    pub fn wait(&self) {
        let mut set = self.0.lock().unwrap();
        while !*set {
            set = self.1.wait(set).unwrap();
        }
        *set = false;
    }
}

/// A page-table page, or any frame, as plain memory: loom reports a reuse that a use may overlap.
pub struct TablePage(loom::cell::UnsafeCell<u64>);

// SAFETY: flushes order every walk before the reuse; loom checks that claim.
unsafe impl Sync for TablePage {}

impl TablePage {
    pub fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(0))
    }

    /// What a processor does to it at any time while it is reachable.
    pub fn walk(&self) {
        // SAFETY: as above.
        let owner = self.0.with(|entry| unsafe { *entry });
        assert_eq!(owner, 0, "use after reuse");
    }

    /// What its next owner does to it.
    pub fn reuse(&self) {
        // SAFETY: as above.
        self.0.with_mut(|entry| unsafe { *entry = 1 });
    }
}

/// What is under the machine, and how a flush takes virtual CPUs that do not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hypervisor {
    None,
    /// One by one.
    TakesSome,
    /// If none of the targets runs; otherwise nobody.
    TakesAll,
    /// All, by a call that has dropped when it returns what each has cached under the tag that it has loaded.
    TakesByCall,
}

/// The virtual CPU does not run.
const OUT: u64 = 1 << 0;

/// A page of it is flushed before it runs again, and no other.
fn flush_of(page: usize) -> u64 {
    1 << (page + 1)
}

/// What a processor has cached of the way to [`Model::table_page`], where calls drop it. Another CPU's call comes between two steps of the
/// processor, as real ones do.
struct Structures {
    loaded: usize,
    leads: [bool; CACHES],
}

type Question = Box<dyn Fn(CpuId) -> bool + Send + Sync>;

pub struct Model<const N: usize> {
    /// Walked by every CPU that has [`TABLE_OWNER`] loaded, up to the moment that it loads another root.
    pub table_page: TablePage,
    /// The top-level entry of the shared root that leads through [`Model::table_page`].
    pub shared_top: AtomicBool,
    events: [Event; N],
    interrupted: [AtomicBool; N],
    /// What to ask where guests hold the interrupts of their CPU, so that it takes an NMI to end guest mode.
    takes_nmi: std::sync::OnceLock<Question>,
    nmis: [AtomicBool; N],
    hypervisor: Hypervisor,
    structures: [Mutex<Structures>; N],
    /// What the hypervisor and guests know of each virtual CPU: [`OUT`], [`FLUSH`].
    vcpus: [AtomicU64; N],
    /// Whether there is an instruction that flushes all CPUs under a tag.
    global_tags: GlobalTags,
    /// Whether it is refused. Only its own CPU asks.
    pub refuses_everywhere: std::sync::atomic::AtomicBool,
    /// How often each page was flushed everywhere.
    everywhere: [AtomicU64; PAGES],
    /// Each CPU's; none without tags.
    slots: [Vec<AsidSlot>; N],
    guest_slots: [[AsidSlot; GUEST_TAGS]; N],
    /// The page table: a frame number a page.
    pub table: [AtomicU64; PAGES],
    /// What a device, or software, has made of the first page, while it listens.
    pub device: Mutex<Option<u64>>,
    /// The listener's own memory.
    pub device_page: TablePage,
    /// How often each CPU has fetched its instructions anew.
    pub synchronised: [AtomicU64; N],
}

// SAFETY: each loom thread is one CPU with a fixed number; "interrupts" run only inside `take_interrupt`, so
// nothing else runs between save and restore; flushes drop the cached copies; an interrupt is a flag stored
// with Release and taken with Acquire.
unsafe impl<const N: usize> Platform for Model<N>
where
    Cpus<N>: Capacity,
{
    type Cpus = Cpus<N>;
    // Everywhere it would make all models slower.
    const CONFIG: shootdown::Config = shootdown::Config::FULL
        .with_quiet(true)
        .with_deaths(N == DEADLY);
    type IrqState = bool;

    fn current_cpu(&self) -> CpuId {
        CpuId::new(CPU.with(Cell::get))
    }

    fn irq_save(&self) -> bool {
        IRQS_OFF.with(|off| off.replace(true))
    }

    unsafe fn irq_restore(&self, state: bool) {
        IRQS_OFF.with(|off| off.set(state));
    }

    fn preempt_disable(&self) {}

    unsafe fn preempt_enable(&self) {}

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        let sent = match self.takes_nmi.get().is_some_and(|ask| ask(target)) {
            true => &self.nmis,
            false => &self.interrupted,
        };
        // A read-modify-write on both sides: loom would let a swap overlook a plain store.
        sent[target.index()].swap(true, Ordering::AcqRel);
        self.events[target.index()].set();
        Ok(())
    }

    const HAS_WINDOWS: bool = true;

    unsafe fn copy_shared_top(&self, _: u64, private: u64, range: FlushRange) {
        speculate(&self.table_page);
        if private == OWN_ROOT {
            let region = self.region_of(range.start());
            let is_there = region > 0 || self.shared_top.load(Ordering::Relaxed);
            self.set_taken(region, is_there);
            return self.walk_ahead();
        }
        COPY.with(|copy| copy.set(self.shared_top.load(Ordering::Relaxed)));
    }

    fn region_of(&self, address: usize) -> usize {
        address / PAGE
    }

    unsafe fn clear_top(&self, _: u64, range: FlushRange) {
        speculate(&self.table_page);
        self.set_taken(self.region_of(range.start()), false);
    }

    fn local_flush(&self, operation: LocalFlush) {
        speculate(&self.table_page);
        COPY_CACHED.with(|cached| cached.set(false));
        self.drop_structures(self.current_cpu());
        match operation {
            LocalFlush::Pages(range, _) => with_cached(|entries| {
                for address in range.iter_pages() {
                    entries[address / PAGE] = None;
                }
            }),
            LocalFlush::Space => with_cached(|entries| *entries = [None; PAGES]),
            LocalFlush::All => CACHED.with(|cached| cached.set([[None; PAGES]; CACHES])),
        }
        self.walk_ahead();
        speculate(&self.table_page);
    }

    unsafe fn load_root(&self, _: u64) {
        unreachable!("the engine loads roots under tags");
    }

    fn global_tags(&self) -> GlobalTags {
        self.global_tags
    }

    fn flush_everywhere(&self, asid: Asid, request: &FlushRequest) -> bool {
        assert_eq!(usize::from(asid.as_u16()), GLOBAL_TAG);
        if (self.refuses_everywhere).load(std::sync::atomic::Ordering::Relaxed) {
            return false;
        }
        for address in request.ranges().flat_map(|range| range.iter_pages()) {
            self.everywhere[address / PAGE].fetch_add(1, Ordering::AcqRel);
        }
        true
    }

    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        &self.slots[cpu.index()]
    }

    fn guest_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        &self.guest_slots[cpu.index()]
    }

    unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        speculate(&self.table_page);
        let before = LOADED.with(|loaded| loaded.replace(root));
        if self.hypervisor == Hypervisor::TakesByCall {
            self.walk_structures(root, asid, entries);
        } else if before == TABLE_OWNER {
            self.table_page.walk();
        }
        // The models of windows have no tags: the load drops what is cached.
        if root == PRIVATE || root == OWN_ROOT && entries == TagEntries::Drop {
            COPY_CACHED.with(|cached| cached.set(false));
        }
        speculate(&self.table_page);
        self.drop_flushed_everywhere();
        TAG.with(|tag| tag.set(usize::from(asid.as_u16())));
        with_cached(|cached| {
            for (page, entry) in cached.iter_mut().enumerate() {
                if entries == TagEntries::Drop {
                    *entry = None;
                }
                // A processor may walk the new tables at once, on speculation.
                if entry.is_none() && root != NO_USER.as_u64() && root != OWN_ROOT {
                    *entry = Some(self.table[page].load(Ordering::Relaxed));
                }
            }
        });
        self.walk_ahead();
    }

    fn flushes_remotely(&self) -> bool {
        self.hypervisor != Hypervisor::None || self.has_instruction()
    }

    fn flush_remote(&self, targets: &mut RemoteTargets<'_>, request: &FlushRequest) -> RemoteFlush {
        let addresses = request.ranges().flat_map(|range| range.iter_pages());
        let pages = addresses.fold(0, |pages, address| pages | flush_of(address / PAGE));
        let ask = |cpu: CpuId| {
            let flush = |seen: u64| (seen & OUT != 0).then_some(seen | pages);
            self.vcpus[cpu.index()]
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, flush)
                .is_ok()
        };
        match self.hypervisor {
            Hypervisor::None => assert!(self.has_instruction(), "nobody said that it is there"),
            Hypervisor::TakesSome => targets.take_if(ask),
            Hypervisor::TakesAll if targets.as_set().iter().all(ask) => targets.take_all(),
            Hypervisor::TakesAll => {}
            Hypervisor::TakesByCall => {
                (targets.as_set().iter()).for_each(|cpu| self.drop_structures(cpu));
                targets.take_all();
            }
        }
        RemoteFlush::Done
    }

    fn begin_secondary(
        &self,
        listener: u64,
        _: &FlushRequest,
        _: Option<NonZeroU64>,
    ) -> Option<NonZeroU64> {
        assert_eq!(listener, 1, "told of by another name");
        self.device_page.walk();
        *self.device.lock().unwrap() = None;
        None
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn synchronise_here(&self) {
        self.synchronised[self.current_cpu().index()].fetch_add(1, Ordering::Relaxed);
    }

    fn relax(&self) {
        self.events[self.current_cpu().index()].wait();
    }

    fn on_trace(&self, event: TraceEvent) {
        match event {
            TraceEvent::Acknowledged { initiator, .. } => self.events[initiator.index()].set(),
            // Others may wait for their turn.
            TraceEvent::Offline { .. } | TraceEvent::Rendezvous { .. } => {
                self.events.iter().for_each(Event::set);
            }
            _ => {}
        }
    }
}

impl<const N: usize> Model<N>
where
    Cpus<N>: Capacity,
{
    fn set_taken(&self, region: usize, is_taken: bool) {
        TAKEN.with(|taken| {
            let mut all = taken.get();
            all[region] = is_taken;
            taken.set(all);
        });
    }

    /// A processor with [`OWN_ROOT`] loaded walks to what it can reach, on speculation.
    fn walk_ahead(&self) {
        if LOADED.with(Cell::get) != OWN_ROOT {
            return;
        }
        let taken = TAKEN.with(Cell::get);
        with_cached(|entries| {
            for page in (0..PAGES).filter(|page| taken[*page]) {
                let walked = || self.table[page].load(Ordering::Relaxed);
                entries[page] = Some(entries[page].unwrap_or_else(walked));
            }
        });
    }

    fn drop_structures(&self, cpu: CpuId) {
        if self.hypervisor == Hypervisor::TakesByCall {
            let mut structures = self.structures[cpu.index()].lock().unwrap();
            let loaded = structures.loaded;
            if std::mem::take(&mut structures.leads[loaded]) && cpu == self.current_cpu() {
                self.table_page.walk();
            }
        }
    }

    /// This CPU has loaded `root` and walks at once, by what the tag has kept or by the tables.
    fn walk_structures(&self, root: u64, asid: Asid, entries: TagEntries) {
        let tag = usize::from(asid.as_u16());
        let mut structures = self.structures[self.current_cpu().index()].lock().unwrap();
        structures.loaded = tag;
        let kept = entries == TagEntries::Keep && structures.leads[tag];
        let leads = root == TABLE_OWNER && (kept || self.shared_top.load(Ordering::Relaxed));
        structures.leads[tag] = leads;
        if leads {
            self.table_page.walk();
        }
    }

    fn has_instruction(&self) -> bool {
        self.slots[0].len() > TAGS
    }

    /// What other CPUs have dropped on this one. Its own uses come before or after.
    pub fn drop_flushed_everywhere(&self) {
        if !self.has_instruction() {
            return;
        }
        // The newest value, as a processor that has answered the instruction.
        let now = self
            .everywhere
            .each_ref()
            .map(|count| count.fetch_add(0, Ordering::AcqRel));
        let seen = SEEN.with(|seen| seen.replace(now));
        CACHED.with(|cached| {
            let mut entries = cached.get();
            for page in (0..PAGES).filter(|page| now[*page] != seen[*page]) {
                entries[GLOBAL_TAG][page] = None;
            }
            cached.set(entries);
        });
    }
}

/// An engine and the memory of its CPUs.
pub struct Machine<const N: usize>
where
    Cpus<N>: Capacity,
{
    /// Dropped first.
    engine: Shootdown<Model<N>>,
    memory: Vec<CpuMemory<Model<N>>>,
}

impl<const N: usize> std::ops::Deref for Machine<N>
where
    Cpus<N>: Capacity,
{
    type Target = Shootdown<Model<N>>;

    fn deref(&self) -> &Self::Target {
        &self.engine
    }
}

pub fn machine<const N: usize>() -> Arc<Machine<N>>
where
    Cpus<N>: Capacity,
{
    Arc::new(machine_with(0))
}

/// The same with [`TAGS`] tags.
pub fn tagged_machine<const N: usize>() -> Arc<Machine<N>>
where
    Cpus<N>: Capacity,
{
    Arc::new(machine_with(TAGS))
}

/// A machine with no CPU online.
pub fn machine_with<const N: usize>(tags: usize) -> Machine<N>
where
    Cpus<N>: Capacity,
{
    machine_under(Hypervisor::None, tags)
}

/// A machine of virtual CPUs, all online and running.
pub fn guest<const N: usize>(hypervisor: Hypervisor) -> Arc<Machine<N>>
where
    Cpus<N>: Capacity,
{
    let tags = match hypervisor {
        Hypervisor::TakesByCall => TAGS,
        _ => 0,
    };
    let machine = Arc::new(machine_under(hypervisor, tags));
    online_all(&machine, N as u32);
    machine
}

/// A machine with an instruction that flushes all CPUs under a tag, all online.
pub fn globally_tagged<const N: usize>() -> Arc<Machine<N>>
where
    Cpus<N>: Capacity,
{
    let machine = Arc::new(machine_under(Hypervisor::None, GLOBAL_TAG));
    online_all(&machine, N as u32);
    machine
}

fn machine_under<const N: usize>(hypervisor: Hypervisor, tags: usize) -> Machine<N>
where
    Cpus<N>: Capacity,
{
    let sets: &'static [TagSet] = Box::leak(Box::new([TagSet::new()]));
    let global_tags = match tags {
        GLOBAL_TAG => GlobalTags::new(Asid::new(GLOBAL_TAG as u16), sets),
        _ => GlobalTags::NONE,
    };
    let engine = Shootdown::new(Model {
        global_tags,
        refuses_everywhere: false.into(),
        everywhere: std::array::from_fn(|_| AtomicU64::new(0)),
        hypervisor,
        structures: std::array::from_fn(|_| {
            Mutex::new(Structures {
                loaded: 0,
                leads: [false; CACHES],
            })
        }),
        vcpus: std::array::from_fn(|_| AtomicU64::new(0)),
        device: Mutex::new(None),
        device_page: TablePage::new(),
        synchronised: std::array::from_fn(|_| AtomicU64::new(0)),
        table_page: TablePage::new(),
        shared_top: AtomicBool::new(true),
        guest_slots: std::array::from_fn(|_| std::array::from_fn(|_| AsidSlot::new())),
        slots: std::array::from_fn(|_| (0..tags).map(|_| AsidSlot::new()).collect()),
        events: std::array::from_fn(|_| Event::new()),
        interrupted: std::array::from_fn(|_| AtomicBool::new(false)),
        takes_nmi: std::sync::OnceLock::new(),
        nmis: std::array::from_fn(|_| AtomicBool::new(false)),
        table: std::array::from_fn(|_| AtomicU64::new(0)),
    });
    let memory: Vec<_> = (0..N).map(|_| CpuMemory::new()).collect();
    for (cpu, memory) in (0..).zip(&memory) {
        // SAFETY: 1. the memory is dropped after the engine, and its elements do not move.
        let memory = unsafe { memory.assume_static() };
        engine.attach(CpuId::new(cpu), std::slice::from_ref(memory));
    }
    Machine { engine, memory }
}

/// The hypervisor takes this virtual CPU off its processor, and lets it run again: having flushed of it what somebody has asked for.
pub fn go_out_and_in<const N: usize>(machine: &Machine<N>)
where
    Cpus<N>: Capacity,
{
    let model = machine.platform();
    let vcpu = &model.vcpus[model.current_cpu().index()];
    vcpu.store(OUT, Ordering::Release);
    let asked = vcpu.swap(0, Ordering::AcqRel);
    with_cached(|entries| {
        for (page, entry) in entries.iter_mut().enumerate() {
            if asked & flush_of(page) != 0 {
                *entry = None;
            }
        }
    });
}

/// Runs `vcpu` on this CPU for one use of each of `pages`, and `between` after each: what they are translated to.
pub fn run_guest<const N: usize, const USES: usize>(
    machine: &Machine<N>,
    guest: &GuestSpace<Cpus<N>>,
    vcpu: &mut Vcpu,
    pages: [usize; USES],
    mut between: impl FnMut(u64),
) where
    Cpus<N>: Capacity,
{
    let table = &machine.platform().table;
    let inside = |entry: GuestEntry| {
        let tag = usize::from(entry.asid.as_u16());
        let mut all = GUEST_CACHED.with(Cell::get);
        if entry.entries == TagEntries::Drop {
            all[tag] = [None; PAGES];
        }
        for page in pages {
            let frame = all[tag][page].unwrap_or_else(|| table[page].load(Ordering::Relaxed));
            all[tag][page] = Some(frame);
            between(frame);
        }
        GUEST_CACHED.with(|cached| cached.set(all));
        GuestExit::Ran(())
    };
    // SAFETY: 1. uses of pages do not call the engine. 2. Interrupts are taken when a thread says so. 3. Nothing else uses what guests cache.
    unsafe { guest.run(machine, vcpu, inside) };
}

/// Guests of the machine hold the interrupts of their CPU from now on.
pub fn let_guests_hold_interrupts<const N: usize>(machine: &Machine<N>)
where
    Cpus<N>: Capacity,
{
    let engine = std::ptr::from_ref(&machine.engine);
    // SAFETY: only the platform inside it uses it, which lives no longer.
    let engine: &'static Shootdown<Model<N>> = unsafe { &*engine };
    let ask = move |target| engine.control().is_in_guest(target);
    assert!(machine.platform().takes_nmi.set(Box::new(ask)).is_ok());
}

/// Runs `vcpu` on this CPU until an NMI comes, unless something waits for the CPU, and serves what has come.
pub fn run_holder<const N: usize>(
    machine: &Machine<N>,
    guest: &GuestSpace<Cpus<N>>,
    vcpu: &mut Vcpu,
) where
    Cpus<N>: Capacity,
{
    let model = machine.platform();
    let me = model.current_cpu().index();
    let inside = |_| {
        // One that has come is over: from here on it ends guest mode.
        model.nmis[me].swap(false, Ordering::AcqRel);
        if machine.control().has_work() {
            return GuestExit::NotEntered(());
        }
        while !model.nmis[me].swap(false, Ordering::AcqRel) {
            model.events[me].wait();
        }
        GuestExit::Ran(())
    };
    // SAFETY: 1. it enters nothing. 2. as `is_in_guest` says. 3. Nothing else uses what guests cache.
    unsafe { guest.run(machine, vcpu, inside) };
    if machine.control().has_work() {
        machine.handle_ipi();
    }
}

/// Makes this loom thread CPU `cpu`.
pub fn become_cpu(cpu: u32) {
    CPU.with(|current| current.set(cpu));
}

/// Runs `body` as CPU `cpu` on a new loom thread.
pub fn on_cpu<const N: usize, R: 'static>(
    machine: &Arc<Machine<N>>,
    cpu: u32,
    body: impl FnOnce(&Machine<N>) -> R + 'static,
) -> loom::thread::JoinHandle<R>
where
    Cpus<N>: Capacity,
{
    let machine = machine.clone();
    loom::thread::spawn(move || {
        become_cpu(cpu);
        body(&machine)
    })
}

/// Brings CPUs `0..count` online one after the other, before the model proper starts.
pub fn online_all<const N: usize>(machine: &Machine<N>, count: u32)
where
    Cpus<N>: Capacity,
{
    for cpu in 0..count {
        become_cpu(cpu);
        machine.online();
    }
    become_cpu(0);
}

/// Takes the pending interrupt, if there is one; tells whether there was.
pub fn take_interrupt<const N: usize>(machine: &Machine<N>) -> bool
where
    Cpus<N>: Capacity,
{
    let me = machine.platform().current_cpu();
    let pending = machine.platform().interrupted[me.index()].swap(false, Ordering::AcqRel);
    if pending {
        machine.handle_ipi();
    }
    pending
}

/// Takes interrupts until `done` says so; something must set this CPU's event each time it may have changed.
pub fn idle_until<const N: usize>(machine: &Machine<N>, done: impl Fn() -> bool)
where
    Cpus<N>: Capacity,
{
    loop {
        let finished = done();
        let interrupted = take_interrupt(machine);
        if finished {
            return;
        }
        if !interrupted {
            machine.platform().relax();
        }
    }
}

/// CPU `cpu`, on a new loom thread, takes interrupts until `done` says so.
pub fn idler<const N: usize>(
    machine: &Arc<Machine<N>>,
    cpu: u32,
    done: impl Fn() -> bool + 'static,
) -> loom::thread::JoinHandle<()>
where
    Cpus<N>: Capacity,
{
    on_cpu(machine, cpu, move |machine| idle_until(machine, done))
}

/// Sets the flag that CPU `cpu` waits for.
pub fn tell<const N: usize>(machine: &Machine<N>, cpu: u32, flag: &AtomicBool)
where
    Cpus<N>: Capacity,
{
    flag.store(true, Ordering::Release);
    wake(machine, cpu);
}

/// Lets CPU `cpu` look again.
pub fn wake<const N: usize>(machine: &Machine<N>, cpu: u32)
where
    Cpus<N>: Capacity,
{
    machine.platform().events[cpu as usize].set();
}

/// What this CPU translates `page` to: its cached copy, or a walk whose result it caches.
pub fn walk<const N: usize>(machine: &Machine<N>, page: usize) -> u64
where
    Cpus<N>: Capacity,
{
    machine.platform().drop_flushed_everywhere();
    with_cached(|entries| {
        let frame =
            entries[page].unwrap_or_else(|| machine.platform().table[page].load(Ordering::Relaxed));
        entries[page] = Some(frame);
        frame
    })
}

/// The translation of `page` that this CPU would use without a walk.
pub fn cached(page: usize) -> Option<u64> {
    with_cached(|entries| entries[page])
}

/// A model checker with the preemption bound of this crate's models (`LOOM_MAX_PREEMPTIONS` overrides it).
pub fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// Two CPUs each post to CPU 2 of a machine that is made by `make`: both calls run, whoever came first (I7).
pub fn two_initiators_post_to_one(make: fn() -> Arc<Machine<3>>) {
    check(3, move || {
        let machine = make();
        let target = CpuMask::only(CpuId::new(2));
        let sum = counter();
        let other = on_cpu(&machine, 1, move |machine| {
            _ = machine.submit(
                &target,
                move |_| {
                    sum.fetch_add(1, Ordering::Relaxed);
                },
                Wait::None,
            );
        });
        let responder = idler(&machine, 2, move || sum.load(Ordering::Relaxed) == 11);
        _ = machine.submit(
            &target,
            move |_| {
                sum.fetch_add(10, Ordering::Relaxed);
            },
            Wait::None,
        );
        other.join().unwrap();
        responder.join().unwrap();
    });
}

/// CPU 0 of a machine that is made by `make` submits so many copies to CPU 1, more than there is room for at a time: each payload arrives whole, once,
/// and in order (I6).
pub fn copies_arrive_whole_and_in_order(make: fn() -> Arc<Machine<2>>, last: u64) {
    check(3, move || {
        let machine = make();
        let seen = counter();
        let all = (1..=last).fold(0, |before, number| before << 4 | number);
        let responder = idler(&machine, 1, move || seen.load(Ordering::Relaxed) == all);
        for number in 1..=last {
            let copy = [number, !number, number];
            _ = machine.submit(
                &CpuMask::only(cpu(1)),
                move |_| {
                    assert_eq!(copy, [copy[0], !copy[0], copy[0]], "a torn payload");
                    let before = seen.load(Ordering::Relaxed);
                    seen.store(before << 4 | copy[0], Ordering::Relaxed);
                },
                Wait::None,
            );
        }
        responder.join().unwrap();
    });
}

/// The CPUs of a machine that is made by `make` call each other and take no interrupts while they wait: each serves the other.
/// (Afterwards each takes interrupts until the other is done, as an idle CPU would.)
pub fn waiters_serve_each_other(make: fn() -> Arc<Machine<2>>) {
    two_wait_for_each_other(make, |machine, target| {
        machine.call_one(target, &|_| {}).unwrap();
    });
}

/// Each CPU of two does what waits for the other.
pub fn two_wait_for_each_other(make: fn() -> Arc<Machine<2>>, wait_for: fn(&Machine<2>, CpuId)) {
    check(2, move || {
        let machine = make();
        let finished: &'static [AtomicBool; 2] =
            Box::leak(Box::new([AtomicBool::new(false), AtomicBool::new(false)]));
        let call_the_other = move |machine: &Machine<2>| {
            let me = machine.platform().current_cpu().as_u32();
            wait_for(machine, CpuId::new(1 - me));
            finished[me as usize].store(true, Ordering::Release);
            wake(machine, 1 - me);
            idle_until(machine, || {
                finished[1 - me as usize].load(Ordering::Acquire)
            });
        };
        let other = on_cpu(&machine, 1, call_the_other);
        call_the_other(&machine);
        other.join().unwrap();
    });
}

/// CPU 0 calls CPU 1 of a machine that is made by `make` while that goes offline: the call runs there, once, before it is gone,
/// or says that it did not (I8).
pub fn a_call_meets_a_cpu_that_leaves(make: fn() -> Arc<Machine<2>>, preemptions: usize) {
    check(preemptions, move || {
        let machine = make();
        let gone = Arc::new(AtomicBool::new(false));
        let leaver = departing(&machine, &gone, |_| ());
        let runs = Arc::new(AtomicU64::new(0));
        let ran = {
            let (runs, gone) = (runs.clone(), gone.clone());
            machine.call_one(CpuId::new(1), &move |_| {
                assert!(!gone.load(Ordering::Relaxed), "run by a CPU that is gone");
                runs.fetch_add(1, Ordering::Relaxed);
            })
        };
        assert_eq!(runs.load(Ordering::Relaxed), u64::from(ran.is_ok()));
        idle_until(&machine, || gone.load(Ordering::Acquire));
        leaver.join().unwrap();
    });
}

/// CPU 1 goes offline, and does `after` when it has; the model's CPU 0 is free meanwhile.
pub fn departing<const N: usize>(
    machine: &Arc<Machine<N>>,
    gone: &Arc<AtomicBool>,
    after: impl FnOnce(&Machine<N>) + 'static,
) -> loom::thread::JoinHandle<()>
where
    Cpus<N>: Capacity,
{
    let gone = gone.clone();
    on_cpu(machine, 1, move |machine| {
        machine.offline();
        gone.store(true, Ordering::Release);
        after(machine);
        wake(machine, 0);
    })
}

/// A machine of the default policy with all CPUs online.
pub fn online_machine<const N: usize>() -> Arc<Machine<N>>
where
    Cpus<N>: Capacity,
{
    let machine = machine();
    online_all(&machine, N as u32);
    machine
}
