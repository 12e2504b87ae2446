//! A deterministic machine on one thread: the test says which CPU it is, interrupts are taken when the test says
//! so or when the running CPU relaxes.
//!
//! Each CPU has a TLB that caches what it walked and forgets only what the engine tells it to, so a test can ask
//! what a CPU would still use.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(missing_debug_implementations, reason = "tests only")]

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

use shootdown::flushes::FLUSH_CEILING_PAGES;
use shootdown::watch::Stall;
use shootdown::*;

use shootdown::{Cpus, guest::*, remote::*, secondary::*, tags::*, watch::*};

pub const PAGE: usize = 4096;
/// The first page of windows; from here to [`GLOBAL`] an entry of one root is in no other.
pub const WINDOW: usize = 500;
/// Pages of a region of a tracked space; the last one has all from [`WINDOW`] on.
pub const REGION: usize = 10;
/// Roots from this number on are CPUs' own roots of tracked spaces.
pub const OWN_ROOTS: u64 = 1000;
/// Tags for virtual CPUs on each CPU.
pub const GUEST_TAGS: usize = 2;
/// The first global page.
pub const GLOBAL: usize = 1000;

#[derive(Default)]
struct PuppetCpu {
    interrupted: AtomicBool,
    irqs_off: AtomicBool,
    preempt_count: AtomicUsize,
    /// The loaded root and its tag.
    loaded: Mutex<(u64, u16)>,
    /// Translations by tag and address; an address from [`GLOBAL`] on is under every tag.
    tlb: Mutex<BTreeMap<(u16, usize), u64>>,
    /// Cached entries of kernel page tables, which lead to a table: by tag.
    structures: Mutex<BTreeMap<u16, u64>>,
    slots: Vec<AsidSlot>,
    /// Translations that user mode has cached, by tag and address.
    user_tlb: Mutex<BTreeMap<(u16, usize), u64>>,
    /// Tags of virtual CPUs.
    guest_slots: Vec<AsidSlot>,
    /// What guests have cached, by tag and guest-physical address.
    guest_tlb: Mutex<BTreeMap<(u16, usize), u64>>,
}

/// Where an NMI may come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    Event(TraceEvent),
    /// Just before a flush, or just after it.
    Flush(LocalFlush),
    /// Just before a root is loaded, or just after it.
    Load(u64),
}

/// When a load drops what the new tag holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LoadOrder {
    /// Before the tag is loaded; if it is loaded already, after that too.
    #[default]
    Right,
    /// Against contract 4: only before.
    DropsBefore,
    /// Against contract 4: only after.
    DropsAfter,
}

/// The CPUs that a back end reaches without an interrupt.
#[derive(Clone, Copy, Default)]
pub struct Reach {
    pub at_once: &'static [u32],
    /// After a wait of the initiator.
    pub later: &'static [u32],
}

/// [`Reach`]: all of them, as one.
pub const EVERYBODY: &[u32] = &[u32::MAX];

/// Whether this is the moment.
type When = fn(Moment) -> bool;

type Once = Box<dyn FnOnce() + Send>;

/// What happened, until somebody takes it.
pub struct Log<T>(Mutex<Vec<T>>);

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Log<T> {
    fn push(&self, event: T) {
        self.0.lock().unwrap().push(event);
    }

    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// How often something happened, also in functions that outlive who posts them.
#[derive(Default, Debug)]
pub struct Count(AtomicU32);

impl Count {
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// The same, and counts from zero again.
    pub fn take(&self) -> u32 {
        self.0.swap(0, Relaxed)
    }
}

/// A root that was loaded: on which CPU, and how.
pub type Load = (u32, u64, Asid, TagEntries);

/// A call back into the engine, whose size the puppet's type does not name.
type Hook<R> = fn(&'static Puppet) -> R;

#[derive(Default)]
pub struct Puppet {
    current: AtomicU32,
    /// Where the task is moved when it has asked next which CPU it is on, unless it may not be moved then.
    pub moves_to: Mutex<Option<u32>>,
    cpus: Vec<PuppetCpu>,
    table: Mutex<BTreeMap<usize, u64>>,
    /// Entries of one root only.
    own_tables: Mutex<BTreeMap<(u64, usize), u64>>,
    /// The space whose tables the entry of a CPU's own root for a region leads to.
    taken: Mutex<BTreeMap<(u64, usize), u64>>,
    pub loads: Log<Load>,
    /// Whether loads keep contract 4.
    pub load_order: Mutex<LoadOrder>,
    /// The table that the top-level entry of a root leads to.
    pub tops: Mutex<BTreeMap<u64, u64>>,
    /// Tables that are no tables any more, and the CPUs that have walked one all the same.
    pub freed_tables: Mutex<Vec<u64>>,
    pub walked_freed: Log<u32>,
    pub trace: Log<TraceEvent>,
    pub flushes: Log<(u32, LocalFlush)>,
    /// Who fetched its instructions anew.
    pub synchronised: Log<u32>,
    /// The target sets.
    pub multicasts: Log<Vec<u32>>,
    /// Who asked for which cache line.
    pub prefetches: Log<(u32, usize)>,
    /// The accepted interrupts: from whom, to whom.
    pub sent: Log<(u32, u32)>,
    /// Refuse this many interrupts before accepting again.
    pub refuse: AtomicUsize,
    /// Refuse those to this CPU, so many.
    pub refuse_to: Mutex<(u32, usize)>,
    /// Whom `flush_remote` takes.
    pub reach: Mutex<Reach>,
    /// Whether spaces have a second root for user mode.
    pub split: AtomicBool,
    /// Whether single pages of the user side can be flushed at once.
    pub flushes_user_side: AtomicBool,
    /// What `flush_remote` was asked for, and for whom.
    pub asked: Log<(FlushRequest, Vec<u32>)>,
    /// What `flush_everywhere` did, unless it refuses.
    pub everywhere: Log<(Asid, FlushRequest)>,
    pub refuses_everywhere: AtomicBool,
    global_tags: Option<GlobalTags>,
    /// Whether a relaxing CPU lets the others take their interrupts.
    pub deliver_on_relax: AtomicBool,
    /// Reports of the watchdog, and what happens at each.
    pub stalls: Log<Stall>,
    at_stall: Mutex<Option<Hook<()>>>,
    /// What happens once when a CPU relaxes next.
    next_relax: Mutex<Option<Once>>,
    next_flush_remote: Mutex<Option<Once>>,
    next_load: Mutex<Option<Once>>,
    relaxed: AtomicUsize,
    /// Time that passed otherwise than by relaxing.
    pub skipped_ns: AtomicUsize,
    /// The space that an NMI asks about, and moments at which it was told to leave user memory alone.
    nmi_space: Mutex<Option<SpaceId>>,
    pub user_access_denied: Log<Moment>,
    /// At such a moment the platform unwinds.
    pub unwinds_at: Mutex<Option<When>>,
    handler: Mutex<Option<Hook<()>>>,
    user_access_ok: Mutex<Option<Hook<bool>>>,
    /// There is no way to flush other CPUs without interrupts.
    pub has_no_back_end: AtomicBool,
    /// What listeners were told: who, what, and what was begun before for the same wait.
    pub told: Log<(u64, FlushRequest, Option<NonZeroU64>)>,
    /// What listeners are to say when they are asked whether they have done, the last first; nothing more: yes.
    pub answers: Mutex<Vec<SecondaryFlush>>,
    /// What they were asked about.
    pub asked_about: Log<u64>,
    /// Listeners that let go of their tables.
    pub released: Log<u64>,
    pub refuses_release: AtomicBool,
    next_told: Mutex<Option<Once>>,
    engine: AtomicUsize,
}

pub type Machine<const N: usize> = Shootdown<Seat<N>>;

/// A puppet as an engine for `N` CPUs sees it.
#[derive(Clone, Copy)]
pub struct Seat<const N: usize>(pub &'static Puppet);

impl<const N: usize> Deref for Seat<N> {
    type Target = &'static Puppet;

    fn deref(&self) -> &&'static Puppet {
        &self.0
    }
}

// SAFETY: one thread plays all CPUs and switches between them only in `as_cpu`, so the current CPU is fixed while a
// CPU has interrupts off except where the engine itself relaxes; flushes drop the entries they name; accepted
// interrupts stay pending until they are taken.
unsafe impl<const N: usize> Platform for Seat<N>
where
    Cpus<N>: Capacity,
{
    type Cpus = Cpus<N>;
    const CONFIG: shootdown::Config = shootdown::Config::FULL.with_quiet(true).with_deaths(true);
    type IrqState = bool;

    fn current_cpu(&self) -> CpuId {
        let here = self.current.load(Relaxed);
        if self.is_preemptible() {
            let to = self.moves_to.lock().unwrap().take();
            self.current.store(to.unwrap_or(here), Relaxed);
        }
        CpuId::new(here)
    }

    fn irq_save(&self) -> bool {
        self.me().irqs_off.swap(true, Relaxed)
    }

    unsafe fn irq_restore(&self, state: bool) {
        self.me().irqs_off.store(state, Relaxed);
    }

    fn preempt_disable(&self) {
        self.me().preempt_count.fetch_add(1, Relaxed);
    }

    unsafe fn preempt_enable(&self) {
        self.me().preempt_count.fetch_sub(1, Relaxed);
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        self.insist_irqs_off("while one is sent");
        let (to, times) = &mut *self.refuse_to.lock().unwrap();
        if *to == target.as_u32() && *times > 0 {
            *times -= 1;
            return Err(IpiRefused);
        }
        let left = self.refuse.load(Relaxed);
        if left > 0 {
            self.refuse.store(left - 1, Relaxed);
            return Err(IpiRefused);
        }
        let route = (self.current_cpu().as_u32(), target.as_u32());
        self.sent.push(route);
        self.cpus[target.index()].interrupted.store(true, Relaxed);
        Ok(())
    }

    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        self.multicasts
            .push(targets.iter().map(CpuId::as_u32).collect());
        targets.iter().try_for_each(|target| self.send_ipi(target))
    }

    fn synchronise_here(&self) {
        let cpu = self.current_cpu().as_u32();
        self.synchronised.push(cpu);
    }

    fn prefetch_write(&self, address: usize) {
        let cpu = self.current_cpu().as_u32();
        self.prefetches.push((cpu, address));
    }

    fn local_flush(&self, operation: LocalFlush) {
        self.insist_irqs_off("during a flush");
        self.flushes.push((self.current_cpu().as_u32(), operation));
        self.nmi(Moment::Flush(operation));
        let mut tlb = self.me().tlb.lock().unwrap();
        match operation {
            LocalFlush::Pages(range, freed) => {
                assert!(range.page_count() <= FLUSH_CEILING_PAGES);
                for page in range.iter_pages() {
                    tlb.remove(&(self.me().tag_of(page), page));
                }
                if freed == FreedTables::Yes {
                    let mut structures = self.me().structures.lock().unwrap();
                    structures.remove(&self.me().tag());
                }
            }
            LocalFlush::Space => self.me().drop_tag(&mut tlb, self.me().tag()),
            LocalFlush::All => {
                tlb.clear();
                self.me().user_tlb.lock().unwrap().clear();
                self.me().structures.lock().unwrap().clear();
            }
        }
        drop(tlb);
        self.nmi(Moment::Flush(operation));
    }

    const HAS_WINDOWS: bool = true;
    const KERNEL_PAGES_ARE_GLOBAL: bool = true;

    unsafe fn copy_shared_top(&self, shared: u64, private: u64, range: FlushRange) {
        self.insist_irqs_off("while a root is copied");
        if private >= OWN_ROOTS {
            let region = self.region_of(range.start());
            assert_eq!(region, self.region_of(range.end() - 1));
            self.taken.lock().unwrap().insert((private, region), shared);
            return;
        }
        let concerns =
            |page: usize| page < WINDOW * PAGE && range.start() <= page && page < range.end();
        let mut tables = self.own_tables.lock().unwrap();
        let entries = tables
            .iter()
            .filter(|((root, page), _)| *root == shared && concerns(*page));
        let entries: Vec<_> = entries
            .map(|((_, page), frame)| ((private, *page), *frame))
            .collect();
        tables.retain(|(root, page), _| *root != private || !concerns(*page));
        tables.extend(entries);
    }

    fn region_of(&self, address: usize) -> usize {
        address / PAGE / REGION
    }

    unsafe fn clear_top(&self, private: u64, range: FlushRange) {
        self.insist_irqs_off("while a root is changed");
        let region = self.region_of(range.start());
        self.taken.lock().unwrap().remove(&(private, region));
    }

    fn splits_tags(&self) -> bool {
        self.split.load(Relaxed)
    }

    /// As x86's INVPCID of single addresses, which leaves entries of other addresses that lead to freed tables.
    fn flush_user_side(&self, asid: Asid, range: FlushRange, freed: FreedTables) -> bool {
        assert!(
            self.splits_tags(),
            "asked for the user side of {asid:?}, which has none"
        );
        let does = self.flushes_user_side.load(Relaxed) && freed == FreedTables::No;
        if does {
            let mut tlb = self.me().user_tlb.lock().unwrap();
            for page in range.iter_pages() {
                tlb.remove(&(asid.as_u16(), page));
            }
        }
        does
    }

    unsafe fn load_root(&self, _: u64) {
        unreachable!("the engine loads roots under tags");
    }

    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        assert_eq!(cpu, self.current_cpu(), "the slots of another CPU");
        &self.cpus[cpu.index()].slots
    }

    fn guest_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        assert_eq!(cpu, self.current_cpu(), "the slots of another CPU");
        &self.cpus[cpu.index()].guest_slots
    }

    unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        let me = self.me();
        self.insist_irqs_off("during a root load");
        assert!(usize::from(asid.as_u16()) <= me.slots.len(), "no such tag");
        let now = self.next_load.lock().unwrap().take();
        if let Some(now) = now {
            now();
        }
        let load = (self.current_cpu().as_u32(), root, asid, entries);
        self.loads.push(load);
        self.nmi(Moment::Load(root));
        // In the order of contract 4, and the processor walks in the middle.
        let drop_tag = || me.drop_tag(&mut me.tlb.lock().unwrap(), asid.as_u16());
        let (drops, order) = (
            entries == TagEntries::Drop,
            *self.load_order.lock().unwrap(),
        );
        if drops && order != LoadOrder::DropsAfter {
            drop_tag();
            self.speculate();
        }
        let was_loaded = me.tag() == asid.as_u16();
        *me.loaded.lock().unwrap() = (root, asid.as_u16());
        self.speculate();
        if drops && (order == LoadOrder::DropsAfter || order == LoadOrder::Right && was_loaded) {
            drop_tag();
        }
        self.speculate();
        self.nmi(Moment::Load(root));
    }

    fn now_ns(&self) -> u64 {
        (self.relaxed.load(Relaxed) + self.skipped_ns.load(Relaxed)) as u64
    }

    fn relax(&self) {
        let turns = self.relaxed.fetch_add(1, Relaxed);
        assert!(turns < 1_000_000, "nobody makes progress");
        let now = self.next_relax.lock().unwrap().take();
        if let Some(now) = now {
            now();
        }
        if self.deliver_on_relax.load(Relaxed) {
            self.deliver_all();
        }
    }

    fn flushes_remotely(&self) -> bool {
        !self.has_no_back_end.load(Relaxed)
    }

    fn flush_remote(&self, targets: &mut RemoteTargets<'_>, request: &FlushRequest) -> RemoteFlush {
        let now = self.next_flush_remote.lock().unwrap().take();
        if let Some(now) = now {
            now();
        }
        self.insist_irqs_off("while other CPUs are flushed");
        let asked = targets.as_set().iter().map(CpuId::as_u32).collect();
        self.asked.push((*request, asked));
        let reach = *self.reach.lock().unwrap();
        self.take(targets, request, reach.at_once);
        match reach.later {
            [] => RemoteFlush::Done,
            _ => RemoteFlush::Unfinished,
        }
    }

    fn finish_remote(&self, targets: &mut RemoteTargets<'_>, request: &FlushRequest) {
        self.insist_irqs_off("while other CPUs are flushed");
        let reach = *self.reach.lock().unwrap();
        assert!(!reach.later.is_empty(), "nothing was begun");
        self.take(targets, request, reach.later);
    }

    fn global_tags(&self) -> GlobalTags {
        self.global_tags.unwrap_or(GlobalTags::NONE)
    }

    fn flush_everywhere(&self, asid: Asid, request: &FlushRequest) -> bool {
        self.insist_irqs_off("while all CPUs are flushed");
        if self.refuses_everywhere.load(Relaxed) {
            return false;
        }
        self.everywhere.push((asid, *request));
        for cpu in &self.cpus {
            cpu.drop_under(asid.as_u16(), request);
        }
        true
    }

    fn begin_secondary(
        &self,
        listener: u64,
        request: &FlushRequest,
        before: Option<NonZeroU64>,
    ) -> Option<NonZeroU64> {
        self.insist_irqs_off("while a listener is told");
        let now = self.next_told.lock().unwrap().take();
        if let Some(now) = now {
            now();
        }
        self.told.push((listener, *request, before));
        // It has nothing to wait for.
        let begun = before.map_or(0, NonZeroU64::get) * 100 + listener;
        NonZeroU64::new(begun).filter(|_| listener != DEAF)
    }

    fn finish_secondary(&self, token: NonZeroU64) -> SecondaryFlush {
        self.asked_about.push(token.get());
        let answer = self.answers.lock().unwrap().pop();
        answer.unwrap_or(SecondaryFlush::Done)
    }

    fn release_secondary(&self, listener: u64) -> Result<(), SecondaryFailed> {
        if self.refuses_release.load(Relaxed) {
            return Err(SecondaryFailed);
        }
        self.released.push(listener);
        Ok(())
    }

    fn on_stall(&self, stall: &Stall) {
        self.stalls.push(*stall);
        let now = *self.at_stall.lock().unwrap();
        if let Some(now) = now {
            now(self);
        }
    }

    fn on_trace(&self, event: TraceEvent) {
        self.trace.push(event);
        self.nmi(Moment::Event(event));
    }
}

/// A listener that begins nothing that takes time.
pub const DEAF: u64 = 99;

/// The tag of global translations, which no root has.
const EVERY_TAG: u16 = u16::MAX;

impl PuppetCpu {
    fn tag(&self) -> u16 {
        self.loaded.lock().unwrap().1
    }

    fn tag_of(&self, address: usize) -> u16 {
        match address / PAGE {
            GLOBAL.. => EVERY_TAG,
            _ => self.tag(),
        }
    }

    /// What a back end does for `request`, and no more than it must.
    fn drop_for(&self, request: &FlushRequest) {
        self.drop_under(self.tag(), request);
    }

    fn drop_under(&self, tag: u16, request: &FlushRequest) {
        let is_user = request.space().is_some();
        let mut structures = self.structures.lock().unwrap();
        let concerns = |of: u16| !is_user || of == tag;
        if request.freed_tables() == FreedTables::Yes {
            structures.retain(|of, _| !concerns(*of));
        }
        for range in request.ranges() {
            let range = range.start()..range.end();
            for tlb in [&self.tlb, &self.user_tlb] {
                let mut tlb = tlb.lock().unwrap();
                tlb.retain(|(of, page), _| !concerns(*of) || !range.contains(page));
            }
        }
    }

    fn drop_tag(&self, tlb: &mut BTreeMap<(u16, usize), u64>, tag: u16) {
        tlb.retain(|(of, _), _| *of != tag);
        self.structures.lock().unwrap().remove(&tag);
    }
}

impl Puppet {
    /// `flush_remote` takes these from now on, all at once.
    pub fn reaches(&self, at_once: &'static [u32]) {
        self.reach.lock().unwrap().at_once = at_once;
    }

    fn take(&self, targets: &mut RemoteTargets<'_>, request: &FlushRequest, reached: &[u32]) {
        if reached == EVERYBODY {
            targets
                .as_set()
                .iter()
                .for_each(|cpu| self.cpu(cpu.as_u32()).drop_for(request));
            return targets.take_all();
        }
        targets.take_if(|cpu| {
            let is_reached = reached.contains(&cpu.as_u32());
            if is_reached {
                self.cpu(cpu.as_u32()).drop_for(request);
            }
            is_reached
        });
    }

    fn me(&self) -> &PuppetCpu {
        self.cpu(self.current.load(Relaxed))
    }

    fn cpu(&self, number: u32) -> &PuppetCpu {
        &self.cpus[number as usize]
    }

    fn insist_irqs_off(&self, when: &str) {
        assert!(self.me().irqs_off.load(Relaxed), "interrupts are on {when}");
    }

    /// NMIs ask about the space with this name from now on.
    pub fn nmis_ask_about(&self, space: SpaceId) {
        *self.nmi_space.lock().unwrap() = Some(space);
    }

    /// An NMI comes, and asks whether it may use user memory.
    fn nmi(&'static self, moment: Moment) {
        let unwinds_at = *self.unwinds_at.lock().unwrap();
        if unwinds_at.is_some_and(|unwinds_at| unwinds_at(moment)) {
            panic!("a method of the platform unwinds");
        }
        let ask = *self.user_access_ok.lock().unwrap();
        if ask.is_some_and(|ask| !ask(self)) {
            self.user_access_denied.push(moment);
        }
    }

    /// Plays CPU `cpu` for the length of `body`.
    pub fn as_cpu<R>(&self, cpu: u32, body: impl FnOnce() -> R) -> R {
        let before = self.current.swap(cpu, Relaxed);
        let result = catch_unwind(AssertUnwindSafe(body));
        self.current.store(before, Relaxed);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Whether the host could take the running task off its CPU now.
    pub fn is_preemptible(&self) -> bool {
        !self.me().irqs_off.load(Relaxed) && self.me().preempt_count.load(Relaxed) == 0
    }

    /// The running task goes on on CPU `cpu`.
    pub fn migrate(&self, cpu: u32) {
        assert!(self.is_preemptible(), "this task may not leave its CPU now");
        self.current.store(cpu, Relaxed);
    }

    /// Has `what` happen at each report of the watchdog.
    pub fn at_stall(&self, what: Hook<()>) {
        *self.at_stall.lock().unwrap() = Some(what);
    }

    /// Has `what` happen when a CPU relaxes next.
    pub fn at_next_relax(&self, what: impl FnOnce() + Send + 'static) {
        *self.next_relax.lock().unwrap() = Some(Box::new(what));
    }

    /// Has `what` happen when a flush next asks for help, which it does between finding its targets and publishing.
    pub fn at_next_flush_remote(&self, what: impl FnOnce() + Send + 'static) {
        *self.next_flush_remote.lock().unwrap() = Some(Box::new(what));
    }

    /// Has `what` happen when a listener is told something next.
    pub fn when_told_next(&self, what: impl FnOnce() + Send + 'static) {
        *self.next_told.lock().unwrap() = Some(Box::new(what));
    }

    /// Has `what` happen when a root is loaded next, before it is.
    pub fn at_next_load(&self, what: impl FnOnce() + Send + 'static) {
        *self.next_load.lock().unwrap() = Some(Box::new(what));
    }

    /// Every CPU but the running one takes its pending interrupt, in ascending order.
    pub fn deliver_all(&'static self) {
        let me = self.current.load(Relaxed);
        for cpu in (0..self.cpus.len() as u32).filter(|cpu| *cpu != me) {
            self.deliver(cpu);
        }
    }

    /// CPU `cpu` takes its pending interrupt if there is one and it has interrupts on; tells whether it did.
    pub fn deliver(&'static self, cpu: u32) -> bool {
        let state = self.cpu(cpu);
        if state.irqs_off.load(Relaxed) || !state.interrupted.swap(false, Relaxed) {
            return false;
        }
        let handler = self
            .handler
            .lock()
            .unwrap()
            .expect("the machine is complete");
        self.as_cpu(cpu, || handler(self));
        true
    }

    /// CPU `cpu` takes an interrupt now, whatever it is doing.
    pub fn interrupt_now(&'static self, cpu: u32) {
        let handler = *self.handler.lock().unwrap();
        self.as_cpu(cpu, || handler.expect("the machine is complete")(self));
    }

    /// An interrupt that was accepted for CPU `cpu` gets lost.
    pub fn lose_interrupt(&self, cpu: u32) {
        self.cpu(cpu).interrupted.store(false, Relaxed);
    }

    /// Whether CPU `cpu` has an interrupt pending.
    pub fn is_interrupted(&self, cpu: u32) -> bool {
        self.cpu(cpu).interrupted.load(Relaxed)
    }

    /// Turns maskable interrupts of the running CPU off or on.
    pub fn set_irqs_off(&self, off: bool) {
        self.me().irqs_off.store(off, Relaxed);
    }

    /// CPU `cpu` takes no interrupts from now on.
    pub fn deafen(&self, cpu: u32) {
        self.as_cpu(cpu, || self.set_irqs_off(true));
    }

    /// It takes them again, at the next chance.
    pub fn hear_again(&self, cpu: u32) {
        self.as_cpu(cpu, || self.set_irqs_off(false));
    }

    pub fn preempt_count(&self, cpu: u32) -> usize {
        self.cpu(cpu).preempt_count.load(Relaxed)
    }

    /// Writes a page-table entry.
    pub fn map(&self, page: usize, frame: u64) {
        self.table.lock().unwrap().insert(page * PAGE, frame);
    }

    /// Writes a page-table entry of one root, which hides that of [`map`](Self::map).
    pub fn map_in(&self, root: u64, page: usize, frame: u64) {
        let entry = (root, page * PAGE);
        self.own_tables.lock().unwrap().insert(entry, frame);
    }

    /// Clears what [`map_in`](Self::map_in) wrote.
    pub fn unmap_in(&self, root: u64, page: usize) {
        let entry = (root, page * PAGE);
        self.own_tables.lock().unwrap().remove(&entry);
    }

    /// What CPU `cpu` translates `page` to, from its TLB or by a walk that it caches.
    ///
    /// # Panics
    /// When it translates it to nothing.
    pub fn access(&self, cpu: u32, page: usize) -> u64 {
        self.translate(cpu, page).expect("the page is mapped")
    }

    /// The same, or `None` for a page fault.
    pub fn translate(&self, cpu: u32, page: usize) -> Option<u64> {
        let cpu = self.cpu(cpu);
        let address = page * PAGE;
        let (root, _) = *cpu.loaded.lock().unwrap();
        let tag = cpu.tag_of(address);
        let region = (root, page / REGION);
        let shared = match root >= OWN_ROOTS {
            true => self.taken.lock().unwrap().get(&region).copied(),
            false => Some(root),
        };
        let own = shared.and_then(|root| {
            let tables = self.own_tables.lock().unwrap();
            tables.get(&(root, address)).copied()
        });
        let walked = own.or_else(|| self.table.lock().unwrap().get(&address).copied());
        let mut tlb = cpu.tlb.lock().unwrap();
        if let Some(cached) = tlb.get(&(tag, address)) {
            return Some(*cached);
        }
        walked.inspect(|frame| {
            tlb.insert((tag, address), *frame);
        })
    }

    /// CPU `cpu` enters user mode by the second root and uses `page` there: what it translates it to. Also tells
    /// what the engine said about the tag's entries.
    pub fn user_access<const N: usize>(
        &self,
        machine: &Machine<N>,
        cpu: u32,
        page: usize,
    ) -> (u64, TagEntries)
    where
        Cpus<N>: Capacity,
    {
        // SAFETY: 1. what follows plays the load.
        let (asid, entries) = self.as_cpu(cpu, || unsafe { machine.user_memory().enter_user() });
        let cpu = self.cpu(cpu);
        let ((root, tag), address) = (*cpu.loaded.lock().unwrap(), page * PAGE);
        assert_eq!(tag, asid.as_u16());
        let mut tlb = cpu.user_tlb.lock().unwrap();
        if entries == TagEntries::Drop {
            tlb.retain(|(of, _), _| *of != tag);
        }
        let walked = self.own_tables.lock().unwrap()[&(root, address)];
        let frame = *tlb.entry((tag, address)).or_insert(walked);
        (frame, entries)
    }

    /// The running CPU enters guest mode.
    pub fn enter_guest(&self, entry: GuestEntry) {
        self.insist_irqs_off("as a guest is entered");
        if entry.entries == TagEntries::Drop {
            let mut tlb = self.me().guest_tlb.lock().unwrap();
            tlb.retain(|(tag, _), _| *tag != entry.asid.as_u16());
        }
    }

    /// What the guest that was entered on the running CPU translates `page` to; it caches that.
    pub fn guest_access(&self, entry: GuestEntry, page: usize) -> u64 {
        let (tag, address) = (entry.asid.as_u16(), page * PAGE);
        let walked = self.own_tables.lock().unwrap()[&(entry.root, address)];
        let mut tlb = self.me().guest_tlb.lock().unwrap();
        *tlb.entry((tag, address)).or_insert(walked)
    }

    /// The page table through which CPU `cpu` walks: the one it has cached, or `linked`, which it caches.
    pub fn walked_table(&self, cpu: u32, linked: u64) -> u64 {
        let cpu = self.cpu(cpu);
        let mut structures = cpu.structures.lock().unwrap();
        *structures.entry(cpu.tag()).or_insert(linked)
    }

    /// The running CPU walks by itself, from what it has cached of the loaded root or else from its top.
    pub fn speculate(&self) {
        let (root, _) = *self.me().loaded.lock().unwrap();
        if let Some(linked) = self.tops.lock().unwrap().get(&root) {
            let cpu = self.current.load(Relaxed);
            let table = self.walked_table(cpu, *linked);
            if self.freed_tables.lock().unwrap().contains(&table) {
                self.walked_freed.push(cpu);
            }
        }
    }

    /// The number of the root that CPU `cpu` has loaded.
    pub fn root_of(&self, cpu: u32) -> u64 {
        self.cpu(cpu).loaded.lock().unwrap().0
    }
}

/// Page tables number `number`.
pub fn tables(number: u64) -> Root {
    // SAFETY: a puppet's roots are numbers.
    unsafe { Root::new(number) }
}

/// The root without a user part.
pub const KERNEL_ROOT: KernelRoot = kernel_tables(99);

/// Another root without a user part.
pub const fn kernel_tables(number: u64) -> KernelRoot {
    // SAFETY: as above.
    unsafe { KernelRoot::new(number) }
}

pub fn cpu(number: u32) -> CpuId {
    CpuId::new(number)
}

pub fn mask<const N: usize>(cpus: impl IntoIterator<Item = u32>) -> CpuMask<Cpus<N>>
where
    Cpus<N>: Capacity,
{
    cpus.into_iter().map(cpu).collect()
}

pub fn pages(first: usize, count: usize) -> FlushRange {
    FlushRange::pages(first * PAGE, count, PageSize::SIZE_4K)
}

/// Whether `misuse` panics.
pub fn refuses<R>(misuse: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(misuse)).is_err()
}

/// A machine with `N` CPUs, none online and without tags. It lives to the end of the process.
pub fn powered_off<const N: usize>() -> &'static Machine<N>
where
    Cpus<N>: Capacity,
{
    tagged::<N>(0)
}

/// The same with `tags` tags on each CPU.
pub fn tagged<const N: usize>(tags: usize) -> &'static Machine<N>
where
    Cpus<N>: Capacity,
{
    with_tags::<N>(tags, None)
}

/// The same with an instruction that flushes all CPUs by the last eight of `tags` tags.
pub fn globally_tagged<const N: usize>(tags: usize) -> &'static Machine<N>
where
    Cpus<N>: Capacity,
{
    let sets: &'static [TagSet] = Box::leak(Box::new([TagSet::new()]));
    let first = Asid::new(tags as u16 - 7);
    with_tags::<N>(tags, Some(GlobalTags::new(first, sets)))
}

fn with_tags<const N: usize>(tags: usize, global_tags: Option<GlobalTags>) -> &'static Machine<N>
where
    Cpus<N>: Capacity,
{
    let cpu = || PuppetCpu {
        slots: (0..tags).map(|_| AsidSlot::new()).collect(),
        guest_slots: (0..GUEST_TAGS).map(|_| AsidSlot::new()).collect(),
        ..PuppetCpu::default()
    };
    let puppet: &'static Puppet = Box::leak(Box::new(Puppet {
        cpus: (0..N).map(|_| cpu()).collect(),
        global_tags,
        deliver_on_relax: AtomicBool::new(true),
        ..Puppet::default()
    }));
    start_engine(puppet)
}

/// A new engine on a machine that had another before, or none.
pub fn start_engine<const N: usize>(puppet: &'static Puppet) -> &'static Machine<N>
where
    Cpus<N>: Capacity,
{
    let machine: &'static Machine<N> = Box::leak(Box::new(Shootdown::new(Seat(puppet))));
    let memory: &'static [_] = (0..N).map(|_| CpuMemory::new()).collect::<Vec<_>>().leak();
    // CPUs come in any order.
    for (cpu, memory) in memory.iter().enumerate().rev() {
        machine.attach(CpuId::new(cpu as u32), std::slice::from_ref(memory));
    }
    puppet
        .engine
        .store(std::ptr::from_ref(machine).expose_provenance(), Relaxed);
    *puppet.handler.lock().unwrap() = Some(|puppet| engine_of::<N>(puppet).handle_ipi());
    *puppet.user_access_ok.lock().unwrap() = Some(|puppet| {
        let space = *puppet.nmi_space.lock().unwrap();
        space.is_none_or(|space| engine_of::<N>(puppet).user_memory().access_ok(space))
    });
    machine
}

/// The engine of a machine that `powered_off::<N>` made.
fn engine_of<const N: usize>(puppet: &Puppet) -> &'static Machine<N>
where
    Cpus<N>: Capacity,
{
    let address = puppet.engine.load(Relaxed);
    // SAFETY: `powered_off` stored it from a `&'static Machine<N>`, and its callers pass the same N.
    unsafe { &*std::ptr::with_exposed_provenance(address) }
}

/// A machine with all of its `N` CPUs online, and an empty record.
pub fn machine<const N: usize>() -> &'static Machine<N>
where
    Cpus<N>: Capacity,
{
    online(powered_off::<N>())
}

/// The same machine with all CPUs online, and an empty record.
pub fn online<const N: usize>(machine: &'static Machine<N>) -> &'static Machine<N>
where
    Cpus<N>: Capacity,
{
    let puppet = *machine.platform();
    for cpu in 0..N as u32 {
        puppet.as_cpu(cpu, || machine.online());
    }
    puppet.trace.take();
    puppet.flushes.take();
    machine
}

/// The same, and its puppet.
pub fn with_puppet<const N: usize>() -> (&'static Machine<N>, &'static Puppet)
where
    Cpus<N>: Capacity,
{
    let machine = machine::<N>();
    (machine, machine.platform().0)
}

/// CPU `number` looks, some time later.
pub fn look_later(machine: &'static Machine<4>, number: u32, later_ns: usize) {
    let puppet = *machine.platform();
    puppet.skipped_ns.fetch_add(later_ns, Relaxed);
    puppet.as_cpu(number, || machine.watch().look());
}

/// A space that, when it is dropped, is left by those who have it loaded.
pub struct Space<const N: usize>(&'static Machine<N>, AddressSpace<Cpus<N>>)
where
    Cpus<N>: Capacity;

impl<const N: usize> Space<N>
where
    Cpus<N>: Capacity,
{
    pub fn new(machine: &'static Machine<N>, root: u64) -> Self {
        Self(machine, AddressSpace::new(machine, tables(root)))
    }
}

impl<const N: usize> Deref for Space<N>
where
    Cpus<N>: Capacity,
{
    type Target = AddressSpace<Cpus<N>>;

    fn deref(&self) -> &AddressSpace<Cpus<N>> {
        &self.1
    }
}

impl<'a, const N: usize> From<&'a Space<N>> for FlushScope<'a, Cpus<N>>
where
    Cpus<N>: Capacity,
{
    fn from(space: &'a Space<N>) -> Self {
        Self::Space(space)
    }
}

impl<const N: usize> Drop for Space<N>
where
    Cpus<N>: Capacity,
{
    fn drop(&mut self) {
        let puppet = self.0.platform();
        for cpu in (0..N as u32).filter(|cpu| puppet.root_of(*cpu) == self.root()) {
            puppet.as_cpu(cpu, || self.0.switch_away(&self.1, KERNEL_ROOT));
        }
    }
}

/// A new space that the CPUs `0..count` have loaded.
pub fn space_on<const N: usize>(machine: &'static Machine<N>, count: u32) -> Space<N>
where
    Cpus<N>: Capacity,
{
    let space = Space::new(machine, 1);
    let puppet = machine.platform();
    for cpu in 0..count {
        puppet.as_cpu(cpu, || machine.switch_to(None, &space));
    }
    puppet.trace.take();
    space
}
