//! [`Series`]: Linux's flush as the series of 2019 has it (T1), or without one of its small patches.

use alloc::boxed::Box;

use shootdown::shim::{AtomicU64, Ordering};
#[cfg(feature = "sim")]
use shootdown::shim::{first_name, touches};
use shootdown::{CpuId, CpuMask, Platform};

use crate::CrossCall;
use crate::caller::Caller;
use crate::function::{Borrowed, Place, place};

/// What is as it was before the series.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Without {
    /// Nothing.
    Nothing,
    /// Patch 7: an initiator's masks (`cfd_data`), which nobody else uses, have a line of their own as if they were shared.
    PrivateMasks,
    /// Patch 8: whether a CPU is lazy, which every initiator reads, lies beside the generation that the CPU records at each flush (`cpu_tlbstate`).
    PrivateState,
    /// Patch 9: bits of masks that nobody else sees are cleared by locked operations.
    PlainBits,
    /// Patch 12: what is to be flushed is written into a line of the CPU (`flush_tlb_info`), not onto the stack, before it is copied into the message.
    InfoOnStack,
    /// What its cover letter names for two threads: the message to a lone target (`csd`) lies on the initiator's stack.
    MessageOffStack,
}

/// [Linux's queues](crate::CallQueues) with what a flush has around them: the initiator describes it, reads who is lazy, makes masks, and copies the description
/// into the message (patch 10); each target records the generation. Targets do not acknowledge early (patch 11): `function` is its caller's.
#[derive(Debug)]
pub struct Series<P: Platform> {
    platform: P,
    without: Without,
    cpus: Box<[Cpu]>,
    /// One for each pair of CPUs.
    messages: Box<[Line<Message>]>,
}

/// A line, and the pair of lines that some processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

type Words = [AtomicU64; 4];

#[derive(Debug)]
struct Cpu {
    /// The address of the newest message; 0 for none.
    queue: Line<AtomicU64>,
    /// Whether it is lazy: written by itself, read by all.
    shared: Line<AtomicU64>,
    /// Two masks, its generation, and whether it is lazy if that is not in `shared`.
    own: Line<Words>,
    masks: Line<Words>,
    info: Line<Words>,
}

/// In [`Cpu::own`].
const GENERATION: usize = 2;
const LAZY: usize = 3;

/// Half of it is Linux's, and as much its alignment; half is what patch 10 adds.
#[derive(Debug)]
#[repr(C, align(32))]
struct Message {
    locked: AtomicU64,
    /// As in [`Cpu::queue`].
    next: AtomicU64,
    function: Place,
    info: Words,
}

fn words() -> Words {
    [const { AtomicU64::new(0) }; 4]
}

impl Cpu {
    fn new() -> Self {
        Self {
            queue: Line(AtomicU64::new(0)),
            shared: Line(AtomicU64::new(0)),
            own: Line(words()),
            masks: Line(words()),
            info: Line(words()),
        }
    }
}

impl Message {
    fn new() -> Self {
        Self {
            locked: AtomicU64::new(0),
            next: AtomicU64::new(0),
            function: place(),
            info: words(),
        }
    }
}

impl<P: Platform> Series<P> {
    /// For CPUs below `cpus`.
    pub fn new(platform: P, cpus: usize, without: Without) -> Self {
        Self {
            platform,
            without,
            cpus: (0..cpus).map(|_| Cpu::new()).collect(),
            messages: (0..cpus * cpus).map(|_| Line(Message::new())).collect(),
        }
    }

    fn is_lazy(&self, cpu: CpuId) -> bool {
        let cpu = &self.cpus[cpu.index()];
        let word = match self.without {
            Without::PrivateState => &cpu.own.0[LAZY],
            _ => &cpu.shared.0,
        };
        word.load(Ordering::Relaxed) != 0
    }

    /// Clears a bit of a mask that nobody else sees.
    fn clear(&self, mask: &AtomicU64, cpu: CpuId) {
        let bits = !(1 << (cpu.index() % 64));
        match self.without {
            Without::PlainBits => {
                mask.fetch_and(bits, Ordering::Relaxed);
            }
            _ => mask.store(mask.load(Ordering::Relaxed) & bits, Ordering::Relaxed),
        }
    }

    /// Queues a message; tells whether the queue was empty.
    fn push(&self, message: &Message, target: CpuId) -> bool {
        let queue = &self.cpus[target.index()].queue.0;
        let address = core::ptr::from_ref(message).expose_provenance() as u64;
        let mut first = queue.load(Ordering::Relaxed);
        loop {
            message.next.store(first, Ordering::Relaxed);
            // ORDERING: publishes the message; pairs with the exchange in `handle_ipi`.
            match queue.compare_exchange(first, address, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return first == 0,
                Err(seen) => first = seen,
            }
        }
    }
}

impl<P: Platform> CrossCall<P::Cpus> for Series<P> {
    fn call(&self, targets: &CpuMask<P::Cpus>, function: &(dyn Fn(CpuId) + Sync)) {
        let caller = Caller::new(&self.platform);
        let (others, is_named) = caller.split(targets);
        let me = &self.cpus[caller.me.index()];
        let generation = me.own.0[GENERATION].load(Ordering::Relaxed) + 1;
        let on_stack = words();
        let info = match self.without {
            Without::InfoOnStack => &me.info.0,
            _ => &on_stack,
        };
        for (word, value) in info.iter().zip(generation..) {
            word.store(value, Ordering::Relaxed);
        }
        let mut busy = CpuMask::<P::Cpus>::EMPTY;
        others
            .iter()
            .filter(|target| !self.is_lazy(*target))
            .for_each(|target| {
                busy.insert(target);
            });
        let masks = match self.without {
            Without::PrivateMasks => &me.masks.0,
            _ => &me.own.0,
        };
        masks[0].store(busy.as_set().words()[0], Ordering::Relaxed);
        masks[1].store(0, Ordering::Relaxed);
        let lone = Message::new();
        let message_for = |target: CpuId| match self.without {
            Without::MessageOffStack if busy.len() == 1 => &lone,
            _ => &self.messages[target.index() * self.cpus.len() + caller.me.index()].0,
        };
        let mut quiet = CpuMask::<P::Cpus>::EMPTY;
        for target in busy.iter() {
            let message = message_for(target);
            message.locked.store(1, Ordering::Relaxed);
            // SAFETY: only this CPU writes here, not preempted, and its last call has been waited for.
            unsafe { message.function.write(Borrowed::new(function)) };
            for (to, from) in message.info.iter().zip(info) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            if self.push(message, target) {
                quiet.insert(target);
                masks[1].store(quiet.as_set().words()[0], Ordering::Relaxed);
            }
        }
        // Whether these are all others, and then again in the interrupt controller's driver.
        let all_others = AtomicU64::new(!0);
        self.clear(&all_others, caller.me);
        self.clear(&all_others, caller.me);
        caller.interrupt_all(&quiet);
        caller.run_here(is_named, function);
        me.own.0[GENERATION].store(generation, Ordering::Relaxed);
        for target in busy.iter() {
            let message = message_for(target);
            // ORDERING: acquires what the target did.
            caller.wait_until(|| message.locked.load(Ordering::Acquire) == 0);
        }
    }

    fn handle_ipi(&self) {
        let me = self.platform.current_cpu();
        let cpu = &self.cpus[me.index()];
        // ORDERING: acquires the messages.
        let mut next = cpu.queue.0.swap(0, Ordering::AcqRel);
        while next != 0 {
            let message = core::ptr::with_exposed_provenance::<Message>(next as usize);
            // SAFETY: it was in our queue: its initiator, on whose stack it may lie, waits until we unlock it.
            let message = unsafe { &*message };
            next = message.next.load(Ordering::Relaxed);
            let generation = message.info[0].load(Ordering::Relaxed);
            // SAFETY: as above: the function is written, and stays.
            let function = unsafe { message.function.read() };
            // SAFETY: 1. the initiator waits for the lock.
            unsafe { function.run(me) };
            cpu.own.0[GENERATION].store(generation, Ordering::Relaxed);
            // ORDERING: publishes what the function did.
            message.locked.store(0, Ordering::Release);
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.cpus) + size_of_val(&*self.messages)
    }

    #[cfg(feature = "sim")]
    fn line_name(&self, address: usize) -> Option<&'static str> {
        first_name([
            (touches(&*self.messages, address), "messages"),
            (touches(&*self.cpus, address), "queues and states"),
        ])
    }
}
