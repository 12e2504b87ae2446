//! Guests: nested page tables, and the CPUs that run on them.
//!
//! A virtual machine's memory is translated by tables of the host, its nested page tables. What a processor caches of them it uses in guest
//! mode only: not while it runs the host, not under another tag. So a CPU that has left guest mode is told nothing; it compares generations
//! when it enters again, and has its tag dropped if there was a flush since. One that is in guest mode is interrupted, which makes it leave.
//! Either way a flush is complete only when no CPU can run on the old translations (Xen: `guest_flush_tlb_mask` sent, and did not wait,
//! before the series of April 2026).
//!
//! Order: a CPU says that it is in guest mode, full barrier, reads the generation, enters (I2). An initiator changes the tables, counts a
//! generation, full barrier, reads who is in guest mode (I1). Interrupts are off from the first of these until the CPU has left: it answers only
//! when it has.
//!
//! A tag belongs to a virtual CPU on one CPU, because what the guest itself flushes, it flushes where it runs: under the tag that it has then.
//! One that has run elsewhere in between has its tag dropped (Linux: `pre_svm_run`, `vmx_vcpu_load_vmcs`), also if that was another tag of the
//! same CPU, to which a change of the policy leads.

use crate::atomic_mask::AtomicCpuMask;
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::handle::CpuControl;
use crate::mask::CpuMask;
use crate::memory::Here;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering, Padded, fence};
use crate::tlb::vcpu::{GuestEntry, GuestExit, Vcpu};
use crate::tlb::{FlushRequest, FlushTicket, GlobalTags, Listener, Root, Slots, SpaceId, TlbGen};

/// A virtual machine's memory: its nested page tables, their generation, and the CPUs that it has run on.
///
/// It may move in memory, and be dropped when no virtual CPU runs; then its tables may be freed.
#[derive(Debug)]
pub struct GuestSpace<C: Capacity> {
    pub(super) id: SpaceId,
    root: Root,
    pub(super) listener: Listener,
    generation: Padded<AtomicU64>,
    /// Where it has ever run; whether it does now says the CPU's own mark, which costs no line that all of them write.
    visited: Padded<AtomicCpuMask<C>>,
}

impl<C: Capacity> GuestSpace<C> {
    /// A virtual machine that has not run yet, whose nested page tables `root` leads to (SVM: nCR3; VMX: the EPT pointer). Any context; does not block.
    pub fn new<P: Platform<Cpus = C>>(engine: &Shootdown<P>, root: Root) -> Self {
        Self {
            id: engine.fresh_space_id(),
            root,
            listener: Listener::new(),
            generation: Padded(AtomicU64::new(1)),
            visited: Padded(AtomicCpuMask::new()),
        }
    }

    /// The name by which requests and traces know it.
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// The value of the root that its virtual CPUs run on.
    pub fn root(&self) -> u64 {
        self.root.as_u64()
    }

    /// The CPUs that it has run on.
    pub fn cpus(&self) -> CpuMask<C> {
        self.visited.0.load(Ordering::Relaxed)
    }

    /// Runs `vcpu`, which is one of this guest, on this CPU: `enter` enters guest mode as it is told, and comes back when the guest is left. Interrupts are off
    /// until then, and as they were before afterwards: what made the guest leave is served there. Preemption in any state.
    ///
    /// # Safety
    /// 1. `enter` enters guest mode at most once, on [`GuestEntry::root`] and under [`GuestEntry::asid`], after having dropped what is cached under it
    ///    if [`GuestEntry::entries`] says so, guest-virtual translations too; it says truly whether it has. It calls nothing of the engine but
    ///    [`has_work`](CpuControl::has_work), and [`enter_quiet`](CpuControl::enter_quiet) and [`leave_quiet`](CpuControl::leave_quiet) around the guest.
    /// 2. An interrupt of the engine that is pending, or comes, ends guest mode, and stays pending until `enter` has returned; or the host does what
    ///    [`is_in_guest`](CpuControl::is_in_guest) says.
    /// 3. The processor uses nothing cached under the tag, and walks no tables of `root`, outside of `enter`; and enters them in no other way.
    ///
    /// # Panics
    /// When the guest is another engine's, `vcpu` another guest's, or the CPU is not online, is in guest mode already, or would get no interrupt there:
    /// inside a called function, and while a [`PollIdle`](crate::calls::PollIdle) lives.
    #[track_caller]
    pub unsafe fn run<P: Platform<Cpus = C>, R>(
        &self,
        engine: &Shootdown<P>,
        vcpu: &mut Vcpu,
        enter: impl FnOnce(GuestEntry) -> GuestExit<R>,
    ) -> R {
        engine.check_owner(self.id);
        assert!(vcpu.guest == self.id, "the virtual CPU is another guest's");
        let (_irq, here) = engine.stay();
        engine.forbid_in_walk(here);
        let me = here.cpu;
        assert!(
            engine.is_ready(me),
            "{me} enters a guest before it is online"
        );
        assert!(
            here.lazy.guest() == SpaceId::KERNEL,
            "{me} is in a guest already"
        );
        assert!(
            !here.in_function.get() && !here.inbox.is_held(me),
            "{me} enters a guest where no interrupt would end it: inside a called function, or polling"
        );
        if !self.visited.0.contains(me, Ordering::Relaxed) {
            self.visited.0.insert(me, Ordering::Relaxed);
        }
        here.lazy.set_guest(self.id);
        let in_guest = InGuest(here);
        // ORDERING: store CPU bit and mark / load generation, against bump / load CPU set and marks in `submit_guest_flush`: either the
        // initiator interrupts us, or we see its generation and, by its Release, its change.
        fence(Ordering::SeqCst);
        // ORDERING: acquires the changes counted so far; pairs with the bump.
        let generation = TlbGen::from_raw(self.generation.0.load(Ordering::Acquire));
        let (slots, age) = (engine.guest_slots(me), vcpu.age(generation));
        let choice = slots.choose(engine.policy(), vcpu.name, age, &here.tlb.turn);
        here.counters.count_tag(choice.why);
        let asid = choice.asid;
        let entry = GuestEntry {
            root: self.root(),
            asid,
            entries: choice.entries,
        };
        // Until it has come back: if the host's function unwinds, the guest may have run, and nothing that it has cached anywhere counts.
        vcpu.drop_translations();
        let exit = enter(entry);
        vcpu.moves -= 1;
        drop(in_guest);
        match exit {
            GuestExit::NotEntered(result) => result,
            GuestExit::Ran(result) => {
                here.counters.guest_exits.add(1);
                // What it has cached under another tag, or elsewhere, has missed what the guest flushed here.
                vcpu.moves += u64::from(vcpu.last != Some((me, asid)));
                vcpu.last = Some((me, asid));
                // I3: the generation was read before the tag was dropped, or is that of the tag.
                slots.leave(asid, vcpu.name, vcpu.age(generation), false);
                result
            }
        }
    }
}

impl<C: Capacity> GuestSpace<C> {
    /// Counts one change to the nested tables (the middle of I1).
    pub(super) fn bump(&self) -> TlbGen {
        // ORDERING: Release publishes the change to who acquires this generation.
        TlbGen::from_raw(self.generation.0.fetch_add(1, Ordering::Release) + 1)
    }
}

impl<C: Capacity> Drop for GuestSpace<C> {
    /// # Panics
    /// When somebody [listens](crate::secondary::SecondaryTlbs): its tables must not be freed yet. As for an [`AddressSpace`](crate::AddressSpace).
    fn drop(&mut self) {
        self.listener.must_be_gone();
    }
}

/// The CPU is in guest mode; when this is dropped, it has left.
struct InGuest<'a, P: Platform>(Here<'a, P>);

impl<P: Platform> Drop for InGuest<'_, P> {
    fn drop(&mut self) {
        self.0.lazy.set_guest(SpaceId::KERNEL);
    }
}

impl<P: Platform> CpuControl<'_, P> {
    /// Whether `cpu` is inside [`GuestSpace::run`]: for hosts whose guests hold the interrupts of their CPU, so that the engine's does not end guest mode. Any context, NMI
    /// handlers too; does not block. On another CPU the answer may be old, and that is enough for a host that does all of this:
    ///
    /// 1. [`Platform::send_ipi`], and [`send_ipi_mask`](Platform::send_ipi_mask) for each target, asks. Yes: it sends what always ends guest mode (x86: an NMI), and need not lead to
    ///    [`handle_ipi`](Shootdown::handle_ipi). No: it sends the engine's interrupt.
    /// 2. The `enter` of `run` asks [`has_work`](Self::has_work) first, and enters only if there is none. What comes behind that question, an NMI too, ends guest mode (SVM: CLGI comes
    ///    before).
    /// 3. Behind each `run` the host asks `has_work` again, before it enters any guest, and calls `handle_ipi` if there is any. Interrupts are off from before `run` until then.
    ///
    /// An interrupt whose request was served by a poll meanwhile may come when the guest runs. It is the guest's then, which has to ignore its vector.
    pub fn is_in_guest(self, cpu: CpuId) -> bool {
        // ORDERING: publish / read mark, against store mark / look for requests in `has_work`: either we see that the CPU enters, or has not left, or it finds
        // what we have published.
        fence(Ordering::SeqCst);
        let memory = self.0.attached(cpu);
        memory.is_some_and(|memory| memory.lazy.guest() != SpaceId::KERNEL)
    }

    /// Whether something has come for this CPU that it has not taken, whether its interrupt has come or not: see [`is_in_guest`](Self::is_in_guest). Interrupts are off, also
    /// inside [`GuestSpace::run`]; does not block. It may say yes where [`handle_ipi`](Shootdown::handle_ipi) finds nothing to do yet.
    pub fn has_work(self) -> bool {
        let cpu = self.0.platform.current_cpu();
        // ORDERING: as in `is_in_guest`.
        fence(Ordering::SeqCst);
        let memory = self.0.attached(cpu);
        memory.is_some_and(|memory| self.0.has_come(cpu, memory))
    }
}

impl<P: Platform> Shootdown<P> {
    pub(super) fn guest_slots(&self, me: CpuId) -> Slots<'_> {
        Slots::new(self.platform.guest_slots(me), GlobalTags::NONE)
    }

    /// No virtual CPU of `guest` runs on translations from before its last generation once the ticket is done. After the barrier of I1.
    #[track_caller]
    pub(super) fn submit_guest_flush(&self, guest: &GuestSpace<P::Cpus>) -> FlushTicket<'_, P> {
        let (irq, here) = self.stay();
        assert!(
            here.lazy.guest() == SpaceId::KERNEL,
            "{} flushes a guest inside GuestSpace::run",
            here.cpu
        );
        let runs_it = |cpu: &CpuId| self.state(*cpu).lazy.guest() == guest.id;
        let running: CpuMask<P::Cpus> = guest.cpus().iter().filter(runs_it).collect();
        here.counters.guest_flushes.add(1);
        here.counters.guest_kicks.add(running.len() as u64);
        drop(irq);
        if running.is_empty() {
            return FlushTicket::done(self);
        }
        let kick = self.publish_kick(Some(&running), FlushRequest::leave(guest.id));
        FlushTicket::new(self, kick, None)
    }
}
