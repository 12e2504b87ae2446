//! [`Bits`]: a design of sixty lines, to measure beside the engine. No kernel's.

use alloc::boxed::Box;

use shootdown::shim::{AtomicU64, Ordering};
#[cfg(feature = "sim")]
use shootdown::shim::{first_name, touches};
use shootdown::{CpuId, CpuMask, Platform};

use crate::CrossCall;
use crate::caller::Caller;
use crate::function::{Borrowed, Place, place};

/// How a target says that it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledgement {
    /// The initiator sets a word before it asks, and the target clears it.
    Cleared,
    /// The target writes the request's number into a word that the initiator only reads.
    Numbered,
}

/// Each initiator has a request, each target a word with a bit for each initiator: whoever finds the word empty interrupts. The target takes all
/// bits at once, and acknowledges each request in a word of its initiator's, apart from the request.
///
/// Weakness: 64 CPUs at most, no hotplug, no nesting, no posting; a request to many takes a locked operation on a line of each.
#[derive(Debug)]
pub struct Bits<P: Platform> {
    platform: P,
    cpus: usize,
    acknowledgement: Acknowledgement,
    /// Whether a target asks for the lines of the initiator that it served last as soon as it is interrupted.
    guesses: bool,
    targets: Box<[Target]>,
    requests: Box<[Request]>,
    /// By initiator, a row each.
    acknowledged: Box<[Words]>,
}

#[derive(Debug)]
#[repr(align(128))]
struct Target {
    asked: AtomicU64,
    /// Its own: whom it served last.
    served: Own,
}

/// A word of one CPU's, on a line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Own(AtomicU64);

#[derive(Debug)]
#[repr(align(128))]
struct Request {
    function: Place,
    number: AtomicU64,
}

#[derive(Debug)]
#[repr(align(128))]
struct Words([AtomicU64; WORDS]);

const WORDS: usize = 16;

impl<P: Platform> Bits<P> {
    /// For CPUs below `cpus`.
    ///
    /// # Panics
    /// With more than 64 CPUs.
    pub fn new(platform: P, cpus: usize, acknowledgement: Acknowledgement, guesses: bool) -> Self {
        assert!(cpus <= 64, "a word has a bit for each CPU");
        let rows = cpus * cpus.div_ceil(WORDS);
        Self {
            platform,
            cpus,
            acknowledgement,
            guesses,
            targets: (0..cpus).map(|_| Target::new()).collect(),
            requests: (0..cpus).map(|_| Request::new()).collect(),
            acknowledged: (0..rows)
                .map(|_| Words([const { AtomicU64::new(0) }; WORDS]))
                .collect(),
        }
    }

    fn acknowledged(&self, initiator: usize, target: CpuId) -> &AtomicU64 {
        let row = initiator * self.cpus.div_ceil(WORDS);
        &self.acknowledged[row + target.index() / WORDS].0[target.index() % WORDS]
    }

    /// Asks for the lines of whoever asked last.
    fn guess(&self, me: CpuId) {
        let served = self.targets[me.index()].served.0.load(Ordering::Relaxed) as usize;
        let lines = [
            core::ptr::from_ref(&self.requests[served]).addr(),
            core::ptr::from_ref(self.acknowledged(served, me)).addr(),
        ];
        (lines.into_iter()).for_each(|line| self.platform.prefetch_write(line));
    }
}

impl Target {
    fn new() -> Self {
        Self {
            asked: AtomicU64::new(0),
            served: Own(AtomicU64::new(0)),
        }
    }
}

impl Request {
    fn new() -> Self {
        Self {
            function: place(),
            number: AtomicU64::new(0),
        }
    }
}

impl<P: Platform> CrossCall<P::Cpus> for Bits<P> {
    fn call(&self, targets: &CpuMask<P::Cpus>, function: &(dyn Fn(CpuId) + Sync)) {
        let caller = Caller::new(&self.platform);
        let (others, is_named) = caller.split(targets);
        let me = caller.me.index();
        let request = &self.requests[me];
        // SAFETY: only this CPU writes here, not preempted, and its last call has been waited for.
        unsafe { request.function.write(Borrowed::new(function)) };
        let done = match self.acknowledgement {
            Acknowledgement::Cleared => {
                for target in others.iter() {
                    self.acknowledged(me, target).store(1, Ordering::Relaxed);
                }
                0
            }
            Acknowledgement::Numbered => {
                let number = request.number.load(Ordering::Relaxed) + 1;
                request.number.store(number, Ordering::Relaxed);
                number
            }
        };
        let mut quiet = CpuMask::<P::Cpus>::EMPTY;
        for target in others.iter() {
            // ORDERING: publishes the request; pairs with the exchange in `handle_ipi`.
            let asked = (self.targets[target.index()].asked).fetch_or(1 << me, Ordering::AcqRel);
            if asked == 0 {
                quiet.insert(target);
            }
        }
        caller.interrupt_all(&quiet);
        caller.run_here(is_named, function);
        for target in others.iter() {
            let word = self.acknowledged(me, target);
            // ORDERING: acquires what the target did.
            caller.wait_until(|| word.load(Ordering::Acquire) == done);
        }
    }

    fn handle_ipi(&self) {
        let me = self.platform.current_cpu();
        if self.guesses {
            self.guess(me);
        }
        let target = &self.targets[me.index()];
        // ORDERING: acquires the requests.
        let mut asked = target.asked.swap(0, Ordering::AcqRel);
        while asked != 0 {
            let initiator = asked.trailing_zeros() as usize;
            asked &= asked - 1;
            let request = &self.requests[initiator];
            // SAFETY: its bit was set: the function is written, and stays until we acknowledge.
            let function = unsafe { request.function.read() };
            let done = match self.acknowledgement {
                Acknowledgement::Cleared => 0,
                Acknowledgement::Numbered => request.number.load(Ordering::Relaxed),
            };
            // SAFETY: 1. the initiator waits for our word.
            unsafe { function.run(me) };
            // ORDERING: publishes what the function did.
            (self.acknowledged(initiator, me)).store(done, Ordering::Release);
            target.served.0.store(initiator as u64, Ordering::Relaxed);
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.targets)
            + size_of_val(&*self.requests)
            + size_of_val(&*self.acknowledged)
    }

    #[cfg(feature = "sim")]
    fn line_name(&self, address: usize) -> Option<&'static str> {
        first_name([
            (touches(&*self.targets, address), "targets"),
            (touches(&*self.requests, address), "requests"),
            (touches(&*self.acknowledged, address), "acknowledgements"),
        ])
    }
}
