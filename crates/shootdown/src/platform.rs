//! What a kernel or hypervisor provides: one trait, every contract written out.
//!
//! A platform is held by value and used through `&self`. A zero-sized one costs nothing; one with
//! state lets several machines live in one process, as tests do.

use core::fmt::Debug;
use core::num::NonZeroU64;

use crate::capacity::Capacity;
use crate::config::Config;
use crate::cpu::CpuId;
use crate::mask::CpuSet;
use crate::tlb::{
    Asid, AsidSlot, FlushRange, FlushRequest, FreedTables, GlobalTags, RemoteTargets,
    SecondaryFailed, SecondaryFlush, TagEntries,
};
use crate::trace::TraceEvent;
use crate::watchdog::Stall;

/// What a host gives the engine.
///
/// All methods may be called with interrupts on or off, except where they say otherwise. None may
/// sleep, and none may call back into the engine.
///
/// # Safety
/// The engine's promises rest on the implementor's. By writing `unsafe impl` you promise that:
///
/// 1. [`current_cpu`](Self::current_cpu) is the true number of the running CPU, below [`Cpus`](Self::Cpus),
///    and does not change while interrupts are off or preemption is [disabled](Self::preempt_disable).
/// 2. Between [`irq_save`](Self::irq_save) and the matching [`irq_restore`](Self::irq_restore) no code of
///    this CPU runs but the caller's (non-maskable interrupts excepted, and those never enter the engine).
/// 3. After [`local_flush`](Self::local_flush) returns, this CPU uses no translation, and no cached
///    page-table entry, that the operation names and that was established before the call; walks after it see all stores to page
///    tables that this CPU could see before (Arm, RISC-V, LoongArch: the barriers around the instruction are part of it).
/// 4. After [`load_root`](Self::load_root) returns, this CPU uses no non-global translation of any other
///    root, nor one of the new root that was established before the call. After
///    [`load_tagged_root`](Self::load_tagged_root) it uses none but those that were established under the new tag,
///    and with [`TagEntries::Drop`] none of these from before the call; cached page-table entries likewise, and walks as in 3 (with [`TagEntries::Keep`] what became valid may be missing: it faults once more).
///    *During* the call it walks no tables but those of the root before and of the new one: with [`TagEntries::Drop`], a tag that is not loaded is
///    dropped **before** its root is, because what it has cached may lead to tables that are long freed; a tag that is loaded already is dropped
///    after the load too, because what was dropped before comes back in between (Xen: XSA-292). x86 does both in one write of CR3. Where there are no
///    tags (RISC-V without ASIDs): drop, load, drop; the CPU counts as one that walks the tables of both until the call returns.
/// 5. Whatever the engine wrote before [`send_ipi`](Self::send_ipi) is visible to the target when its
///    handler runs (on x86 in x2APIC mode this takes a fence before the ICR write).
/// 6. An accepted interrupt reaches its target once the target enables interrupts, and leads to
///    [`Shootdown::handle_ipi`](crate::Shootdown::handle_ipi) there. Several may merge into one, as long
///    as the handler runs after the last of them was sent: a controller that keeps one bit (RISC-V: SSIP) is acknowledged before
///    the handler looks, never after. A platform that refuses an interrupt to another CPU accepts it when it is sent again, in the end. (Not where
///    the target is in guest mode, and the host does what [`is_in_guest`](crate::control::CpuControl::is_in_guest) says.)
/// 7. A CPU that was [taken](RemoteTargets) executes nothing any more, from the moment when [`flush_remote`](Self::flush_remote) returns
///    [`RemoteFlush::Done`] or [`finish_remote`](Self::finish_remote) returns, before contract 3 holds there for the request, as if
///    [`local_flush`](Self::local_flush) had been called: for every range, under the tag of the loaded root, both its sides if
///    [tags are split](Self::splits_tags); for the kernel's part under every tag, unless its pages are
///    [global](Self::KERNEL_PAGES_ARE_GLOBAL) and no tables were freed. What it executes after that sees what this CPU wrote before.
/// 8. [`splits_tags`](Self::splits_tags), [`asid_slots`](Self::asid_slots), [`flushes_remotely`](Self::flushes_remotely) and
///    [`global_tags`](Self::global_tags) give the same answer as long as the engine lives.
/// 9. No method unwinds: the engine has lent memory to other CPUs, or owes them an answer. One that does all the same gets no frame freed early: what waits is
///    leaked, or the process aborted.
/// 10. [`prefetch_write`](Self::prefetch_write) changes nothing and never faults.
/// 11. Under every root that a CPU has loaded while it is online, the host's own too, all that the engine and its callers lend to other CPUs is mapped, at
///     one address, and is accessed without a fault: the engine, [`CpuMemory`](crate::CpuMemory), [`CallData`](crate::calls::CallData), functions, and the stacks of those
///     who [call](crate::Shootdown::call_many). Other CPUs read and write it in their interrupt.
/// 12. On a CPU that is online only this engine loads roots, tag 0 ([`Asid::UNTAGGED`]) and the tags of [`asid_slots`](Self::asid_slots) are its own, and tags stay
///     switched on; but the host does as it likes with tag 0 between [`begin_foreign_root`](crate::host_roots::HostRoots::begin_foreign_root) and
///     [`end_foreign_root`](crate::host_roots::HostRoots::end_foreign_root), loads what it is told between the halves of a
///     [switch](crate::host_roots::HostRoots::begin_switch), and starts a CPU on a root of its own, which translates nothing globally but what the
///     kernel's roots translate, and that in the same way.
pub unsafe trait Platform: Sync {
    /// How many CPUs the engine has room for: [`Cpus<64>`](crate::Cpus), say.
    type Cpus: Capacity;

    /// What the engine is built with, once and for all.
    const CONFIG: Config = Config::PLAIN;

    /// What [`irq_save`](Self::irq_save) remembers, such as the interrupt flag.
    type IrqState: Copy + Debug;

    /// The running CPU. With interrupts and preemption on, the answer may be stale at once.
    fn current_cpu(&self) -> CpuId;

    /// Disables maskable interrupts on this CPU and returns whether they were on. Nests. Neither this nor [`irq_restore`](Self::irq_restore) need be a
    /// barrier for the compiler (Rust: `asm!` without `nomem`): the engine has one behind it, and one before that.
    fn irq_save(&self) -> Self::IrqState;

    /// Puts back what [`irq_save`](Self::irq_save) returned, on the same CPU.
    ///
    /// # Safety
    /// 1. `state` is what the matching `irq_save` returned on this CPU. The engine calls this; others might turn interrupts on where it has them off.
    unsafe fn irq_restore(&self, state: Self::IrqState);

    /// Forbids that the running task leaves this CPU. Nests. A host that never preempts kernel code
    /// does nothing here. Used only under policies that do not [wait preemptibly](crate::Policy::waits_preemptibly) or flush here
    /// last, and by [`pin`](crate::windows::Windows::pin).
    fn preempt_disable(&self);

    /// Undoes one [`preempt_disable`](Self::preempt_disable). Interrupts in any state, which may be another one than at the disabling: with interrupts
    /// off it must not reschedule, but leave that to their enabling.
    ///
    /// # Safety
    /// 1. There was a `preempt_disable` that this undoes. The engine calls this; others might undo the engine's.
    unsafe fn preempt_enable(&self);

    /// Sends the engine's interrupt to `target`, which is online; this CPU too: for what it posts to itself, and to look again. Called with
    /// interrupts off. It must not wait for the target, also not until that has taken its last interrupt (LoongArch: the blocking bit of the send
    /// register stays clear): two CPUs that send to each other would wait for ever, and only [`look`](crate::watch::Watcher::look) on a third would say so.
    ///
    /// # Errors
    /// [`IpiRefused`] when the interrupt could not be queued; the engine tries again, and reports to
    /// [`on_stall`](Self::on_stall) if that takes long. An interrupt to this CPU itself is asked for again when it polls, waits or
    /// [looks](crate::watch::Watcher::look): a platform whose controller cannot interrupt its own CPU refuses, and calls that from its timer tick.
    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused>;

    /// Drops translations of this CPU alone. Called with interrupts off.
    fn local_flush(&self, operation: LocalFlush);

    /// Makes the root with value `root` the page-table root of this CPU. Called with interrupts off.
    ///
    /// # Safety
    /// 1. `root` is the value of a [`Root`](crate::Root) or a [`KernelRoot`](crate::KernelRoot) whose tables are in place until another is loaded. Only the engine
    ///    knows that, and calls this.
    unsafe fn load_root(&self, root: u64);

    /// Whether all translations of the kernel's part are global: under every tag, and dropped under every tag by one
    /// [`LocalFlush::Pages`]. Then a flush of kernel pages leaves other tags what they hold, unless tables were freed.
    const KERNEL_PAGES_ARE_GLOBAL: bool = false;

    /// What `cpu` remembers of its hardware tags: the slot with index `i` belongs to tag `i + 1`. As many as the
    /// host wants to use; [`Tags`](crate::tags::Tags) says what numbers are worth. None, the default, is a machine
    /// without tags. Called on `cpu` with interrupts off.
    ///
    /// Part of contract 4: always the same slots for a CPU, no other CPU's, no other engine's at the same time, and
    /// the hardware has all these tags.
    #[inline]
    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        let _ = cpu;
        &[]
    }

    /// Makes the root with value `root` the page-table root of this CPU, under tag `asid`. Called with interrupts off, for every load
    /// of a root. Override it together with [`asid_slots`](Self::asid_slots); `asid` is always
    /// [`Asid::UNTAGGED`] where there are none.
    ///
    /// # Safety
    /// 1. As [`load_root`](Self::load_root).
    #[inline]
    unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        let _ = (asid, entries);
        // SAFETY: duty 1.
        unsafe { self.load_root(root) };
    }

    /// Whether spaces may have [windows](crate::windows::WindowRoot), for which the platform provides
    /// [`copy_shared_top`](Self::copy_shared_top). Without them they cost nothing.
    const HAS_WINDOWS: bool = false;

    /// Makes those top-level entries of the private root `private` that translate `range` equal those of `shared`, as
    /// they are when it is called or later; windows' entries stay as they are, and the kernel's may. Called on the CPU of `private`,
    /// the only one that writes there, with interrupts off, also by a responder (I9): reads (Acquire, for what
    /// the entry leads to) and stores of single entries, no lock, no allocation, no panic.
    ///
    /// Part of contract 4, with [`HAS_WINDOWS`](Self::HAS_WINDOWS): entries of windows are empty in every other root.
    ///
    /// # Safety
    /// 1. Both are values of [`Root`](crate::Root)s whose tables are in place, `private` that of a [`WindowRoot`](crate::windows::WindowRoot) of this CPU in
    ///    the space of `shared`. The engine calls this.
    unsafe fn copy_shared_top(&self, shared: u64, private: u64, range: FlushRange) {
        let _ = (shared, private, range);
    }

    /// In which [region](crate::reach::Region) of a space `address` is: the number of its entry on the lowest private level, counted from the lowest address. Addresses in
    /// order are in regions in order. An answer beyond the space's regions means the last.
    #[inline]
    fn region_of(&self, address: usize) -> usize {
        let _ = address;
        0
    }

    /// Clears those entries of the private root `private` that translate `range`, which is in one [region](crate::reach::Region). Called as
    /// [`copy_shared_top`](Self::copy_shared_top), which for such a root copies only what is in the range, behind a full barrier (x86: and an LFENCE, for walks are ordered
    /// by that and not by the barrier).
    ///
    /// # Safety
    /// 1. `private` is the value of a [`Root`](crate::Root) whose table is in place, that of a [`ReachRoot`](crate::reach::ReachRoot) of this CPU. The engine calls this.
    unsafe fn clear_top(&self, private: u64, range: FlushRange) {
        let _ = (private, range);
        unimplemented!("CONFIG has with_reach, but the platform no clear_top");
    }

    /// Whether each space has a second root for user mode, under a second tag that belongs to the first
    /// (page-table isolation). Then the host asks [`enter_user`](crate::user_memory::UserMemory::enter_user) each time before it
    /// loads one.
    #[inline]
    fn splits_tags(&self) -> bool {
        false
    }

    /// Drops `range` of the user side of `asid`, which is loaded, at once; true
    /// if it did. If not, [`enter_user`](crate::user_memory::UserMemory::enter_user) has the whole user side dropped.
    /// With [`FreedTables::Yes`] cached page-table entries go too, those of other addresses that lead to them as well: x86's INVPCID of single addresses
    /// leaves entries of other addresses, so return false there. Called with interrupts off.
    #[inline]
    fn flush_user_side(&self, asid: Asid, range: FlushRange, freed: FreedTables) -> bool {
        let _ = (asid, range, freed);
        false
    }

    /// Nanoseconds on a clock that does not run backwards on one CPU. It may be coarse, begin anywhere, go round, and differ
    /// between CPUs: that costs the order of calls, never a call.
    fn now_ns(&self) -> u64;

    /// Sends the engine's interrupt to every CPU of `targets`, none of which is this one. Called with
    /// interrupts off. Override it where the hardware can multicast.
    ///
    /// # Errors
    /// [`IpiRefused`] when any interrupt could not be queued. The engine then asks for each by [`send_ipi`](Self::send_ipi) until it
    /// was accepted (a second interrupt is harmless).
    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        targets.iter().try_for_each(|target| self.send_ipi(target))
    }

    /// One turn of a spin loop: the processor's pause hint.
    #[inline]
    fn relax(&self) {
        core::hint::spin_loop();
    }

    /// A hint: the cache line at `address`, which other CPUs write too, is about to be written here (x86:
    /// PREFETCHW). It may do nothing, and must not fault.
    #[inline]
    fn prefetch_write(&self, address: usize) {
        let _ = address;
    }

    /// This CPU executes no instruction from here on that it fetched or decoded before: x86 SERIALIZE, or a write of CR2; Arm `ISB`; RISC-V `FENCE.I`;
    /// LoongArch `IBAR 0`. Called with interrupts off, before this CPU answers a [`serialise`](crate::control::CpuControl::serialise); nothing rests on how it takes
    /// interrupts or returns from them. Without it that panics.
    fn synchronise_here(&self) {
        unimplemented!("serialise needs Platform::synchronise_here");
    }

    /// Whether there is a way to flush other CPUs without interrupting them ([`flush_remote`](Self::flush_remote)). Without it nothing
    /// below is called, and it costs nothing.
    #[inline]
    fn flushes_remotely(&self) -> bool {
        false
    }

    /// Flushes other CPUs without interrupting them, and takes those from `targets`: by a hypercall, firmware, an instruction that
    /// broadcasts, or a hypervisor that flushes a virtual CPU before it runs again. The engine interrupts the rest, for the same request:
    /// who takes none has done nothing, so a failure is never a local-only flush. Called with interrupts off, after the page-table
    /// change and a full barrier; once a request at most. Not asked where each CPU has to do more than drop translations (freed tables
    /// of a space with windows); and if tables are freed, CPUs that are just loading a root are interrupted, whatever it takes.
    ///
    /// A request for the kernel's part with the [whole](FlushRange::WHOLE) range is one for everything: user translations of the loaded root, and of both its sides, too.
    ///
    /// Interrupts that are off on a target do not keep a back end from flushing it: code that walks page tables with interrupts off needs
    /// another protection for tables that are freed.
    #[inline]
    fn flush_remote(&self, targets: &mut RemoteTargets<'_>, request: &FlushRequest) -> RemoteFlush {
        let _ = (targets, request);
        RemoteFlush::Done
    }

    /// Waits until what [`flush_remote`](Self::flush_remote) began on this CPU is done, and takes the CPUs that it has reached. Called
    /// after [`RemoteFlush::Unfinished`], with interrupts off since then; the engine has flushed this CPU in between. The wait is as short as
    /// an instruction (x86: TLBSYNC; Arm: DSB); what takes longer is given up, and interrupted.
    #[inline]
    fn finish_remote(&self, targets: &mut RemoteTargets<'_>, request: &FlushRequest) {
        let _ = (targets, request);
    }

    /// Tags that mean the same on every CPU, for spaces that many CPUs have loaded: [`flush_everywhere`](Self::flush_everywhere) drops what
    /// all CPUs hold under one of them. [`GlobalTags::NONE`], the default, where there is no such instruction. Asked where
    /// [`flushes_remotely`](Self::flushes_remotely).
    ///
    /// Part of contract 4: always the same tags, and the hardware has all of them; CPUs with fewer [slots](Self::asid_slots) keep less.
    #[inline]
    fn global_tags(&self) -> GlobalTags {
        GlobalTags::NONE
    }

    /// Drops on every CPU, this one too, what it has cached under the global tag `asid` of what `request` names, whether it has the tag loaded or
    /// not; both sides if [tags are split](Self::splits_tags). Contract 7 holds for all CPUs when it returns true. False if it did nothing:
    /// the engine sends interrupts. Called with interrupts off, after the page-table change and a full barrier, for user spaces only.
    ///
    /// The wait at the end is this CPU's (x86: TLBSYNC; Arm: DSB), so it is part of it.
    #[inline]
    fn flush_everywhere(&self, asid: Asid, request: &FlushRequest) -> bool {
        let _ = (asid, request);
        false
    }

    /// The tables that `listener` translates by were changed as `request` says: have it begin to drop that ([`SecondaryTlbs`](crate::secondary::SecondaryTlbs)). Returns what
    /// [`finish_secondary`](Self::finish_secondary) is to be asked with; `None` if there is nothing more to wait for, as where only freed tables matter and none were.
    /// `before` was returned by an earlier call for the same wait, perhaps for another listener, and is not asked about if this returns something: that stands for both.
    ///
    /// Called with interrupts off, under the host's locks, behind the count of the change and a full barrier; for each flush, also one that no other CPU need hear
    /// of. It must not wait; a lock that it takes is spun for with [`poll`](crate::Shootdown::poll), and held with interrupts off. Part of contract 7: after
    /// [`Done`](SecondaryFlush::Done) nothing that was named is used or walked.
    #[cold]
    fn begin_secondary(
        &self,
        listener: u64,
        request: &FlushRequest,
        before: Option<NonZeroU64>,
    ) -> Option<NonZeroU64> {
        let _ = (listener, request, before);
        unimplemented!("CONFIG has with_secondary, but the platform no begin_secondary")
    }

    /// Whether what [`begin_secondary`](Self::begin_secondary) began is done. Called by the waiter, in its context, on any CPU, until it is not
    /// [`Busy`](SecondaryFlush::Busy), also when nobody listens any more: `token` must mean something until it was [`Done`](SecondaryFlush::Done), or for ever. It does not spin for a device, and says
    /// [`Failed`](SecondaryFlush::Failed) when that has had its time. Unlike other methods this one may use the engine as the waiter might: flush a guest, say.
    #[cold]
    fn finish_secondary(&self, token: NonZeroU64) -> SecondaryFlush {
        let _ = token;
        unimplemented!("CONFIG has with_secondary, but the platform no finish_secondary")
    }

    /// The tables that `listener` translates by are about to be freed: have it let go of their root, drop all, and wait until it has. Called in the context of
    /// [`release`](crate::secondary::SecondaryTlbs::release). Until that has returned other CPUs may begin to tell the listener of flushes: free what its name means afterwards.
    ///
    /// # Errors
    /// [`SecondaryFailed`] where it does not answer.
    #[cold]
    fn release_secondary(&self, listener: u64) -> Result<(), SecondaryFailed> {
        let _ = listener;
        unimplemented!("CONFIG has with_secondary, but the platform no release_secondary")
    }

    /// What `cpu` remembers of the tags that virtual CPUs run under, apart from those of [`asid_slots`](Self::asid_slots) (SVM: ASIDs; VMX: VPIDs):
    /// the slot with index `i` belongs to tag `i + 1`. None, the default, has every entry drop what guests have cached. Called on `cpu` with
    /// interrupts off. Part of contract 4 as those.
    #[inline]
    fn guest_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        let _ = cpu;
        &[]
    }

    /// A wait, or a called function, has taken longer than [`set_stall_ns`](crate::watch::Watcher::set_stall_ns) allows. Called by the waiter, in
    /// its context, by [`look`](crate::watch::Watcher::look), or by [`poll`](crate::Shootdown::poll) inside the function; the wait goes on afterwards. It may print, or stop the machine, but take no lock: the waiter may hold it, and one that polls calls
    /// back into the engine. It must not unwind, because what the waiter lent to the target is still lent. The default does nothing.
    #[cold]
    fn on_stall(&self, stall: &Stall) {
        let _ = stall;
    }

    /// Observes the engine. The default does nothing and compiles to nothing. Called with interrupts in
    /// any state, also on the responder path: it must neither lock, allocate nor panic.
    #[inline(always)]
    fn on_trace(&self, event: TraceEvent) {
        let _ = event;
    }
}

/// An interrupt could not be queued now; sending it again may work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpiRefused;

/// What [`Platform::local_flush`] drops, always for the running CPU, the loaded root and its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalFlush {
    /// Every translation, global ones too, of every page in the range. With [`FreedTables::Yes`] also every cached page-table
    /// entry that a walk to them uses (x86: INVLPG drops them while EFER.TCE is clear; where it may be
    /// set, on AMD's processors, CR3 is loaded with itself, too; RISC-V: SFENCE.VMA with an address orders leaf entries only, so it
    /// takes one without). The range has at most [`FLUSH_CEILING_PAGES`](crate::flushes::FLUSH_CEILING_PAGES) pages.
    Pages(FlushRange, FreedTables),
    /// Every non-global translation and cached page-table entry of the loaded root. Asked for where user pages exceed the ceiling, the gaps between merged ranges
    /// counted; where earlier changes may not be flushed here (if it is one, [`Pages`](Self::Pages) with [`FreedTables::Yes`] may do); and for what passed this CPU by.
    Space,
    /// Every translation and cached page-table entry, global ones too, of every root and every tag. Asked for where kernel pages exceed the ceiling, and when
    /// the CPU comes online.
    All,
}

/// Whether [`Platform::flush_remote`] has still to be [finished](Platform::finish_remote).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteFlush {
    /// Every target that was taken has dropped what the request names, or will before it executes anything.
    Done,
    /// More targets are being flushed, which only this CPU can wait for.
    Unfinished,
}
