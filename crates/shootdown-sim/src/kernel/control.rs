//! Functions that CPUs are asked for wherever they poll, instructions that are fetched anew, and barriers: a task writes a word and reads another task's, without a barrier,
//! beside one that writes its own, has all that run the space issue one, and reads.

use std::cell::RefCell;
use std::sync::atomic::AtomicU64 as CoreU64;

use shootdown::control::Rendezvous;
use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{Capacity, CpuId};

use crate::kernel::World;
use crate::kernel::sightings::Sight;
use crate::kernel::theme::Draw;
use crate::machine::{FailureKind, context};

/// So many tasks' words are read behind a barrier.
const READ: usize = 6;

/// What is shared, but for what tasks share by the engine.
#[derive(Debug)]
pub struct Controls {
    words: Vec<Words>,
    serials: RefCell<u64>,
    quick: RefCell<Vec<Quick>>,
    slow: RefCell<Vec<Slow>>,
}

/// Of one task; only it writes to them.
#[derive(Debug)]
struct Words {
    quick: AtomicU64,
    slow: AtomicU64,
    lent: AtomicU64,
    /// What stands for text that it changes.
    text: AtomicU64,
}

/// A task in a space wrote `serial` to its quick word, and saw this in the slow word `of` another.
#[derive(Clone, Copy, Debug)]
struct Quick {
    space: u64,
    task: usize,
    serial: u64,
    of: usize,
    seen: u64,
}

/// A task wrote `serial` to its slow word, had those that run in a space issue a barrier, and saw these in their quick words.
#[derive(Clone, Debug)]
struct Slow {
    space: u64,
    task: usize,
    serial: u64,
    seen: Vec<u64>,
}

impl Controls {
    pub(super) fn new(tasks: usize) -> Self {
        let words = || Words {
            quick: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            text: AtomicU64::new(0),
        };
        Self {
            words: (0..tasks).map(|_| words()).collect(),
            serials: RefCell::new(0),
            quick: RefCell::default(),
            slow: RefCell::default(),
        }
    }

    /// The text that a task changes, as seen here.
    pub(super) fn text_of(&self, task: usize) -> u64 {
        self.words[task].text.load(Ordering::Relaxed)
    }

    fn next_serial(&self) -> u64 {
        let mut serials = self.serials.borrow_mut();
        *serials += 1;
        *serials
    }
}

impl<C: Capacity> World<C> {
    pub(super) fn control(&self, draw: &mut Draw) {
        match draw.below(8) {
            0 => self.ask_somebody(draw),
            6 => self.meet_others(draw),
            7 => _ = self.engine.control().arrive(),
            1 => self.serialise(draw),
            2 => self.issue_barriers(draw),
            _ => self.write_and_look(draw),
        }
    }

    /// Asks a CPU, perhaps one that spins for a lock that is held here.
    fn ask_somebody(&self, draw: &mut Draw) {
        let target = draw.below(self.numbers.len());
        let (off, locks) = (draw.once_in(4), draw.random.bool());
        let space = self.get_space(draw.place());
        self.with_interrupts(off, || {
            let lock = space.as_ref().map(|space| &space.lock);
            let held = lock.filter(|_| locks).map(|lock| lock.take(&self.engine));
            if held.is_some() {
                self.hardware.saw(Sight::AskedUnderLock);
            }
            self.ask_one(target);
        });
        space.into_iter().for_each(|space| self.put_space(space));
    }

    fn ask_one(&self, index: usize) {
        let target = self.numbers[index];
        let mine = &self.controls.words[context().task()].lent;
        let serial = self.controls.next_serial();
        mine.store(serial, Ordering::Relaxed);
        let function = |cpu: CpuId| {
            if cpu != target || context().cpu() != index {
                context().fail(FailureKind::Other, format!("{cpu} was asked for {target}"));
            }
            if mine.load(Ordering::Relaxed) != serial {
                let message = "who is asked has not seen what was written before";
                context().fail(FailureKind::Other, message.to_owned());
            }
            mine.store(serial + 1, Ordering::Relaxed);
        };
        // SAFETY: 1. it reads and writes two words.
        let asked = unsafe { self.engine.control().ask(target, &function) };
        let due = serial + u64::from(asked.is_ok());
        let found = mine.load(Ordering::Relaxed);
        if found != due {
            let message = format!("{target} was asked ({asked:?}), and left {found}, not {due}");
            context().fail(FailureKind::EarlyReturn, message);
        }
        self.controls.next_serial();
    }

    /// All that were in a stretch have left it, and fetched anew.
    fn serialise(&self, draw: &mut Draw) {
        let wanted = self.some_cpus(draw);
        let known = self.known_stretches(&wanted);
        let count = || context().with(|state| state.synchronised.iter().sum::<u64>());
        let before = count();
        let quiet = self.quiet_among(&wanted);
        let (task, text) = (context().task(), self.controls.next_serial());
        self.controls.words[task]
            .text
            .store(text, Ordering::Relaxed);
        self.engine.control().serialise(&wanted).wait();
        self.owe_fetches(&quiet, (task, text));
        if known.is_empty() {
            return;
        }
        self.hardware.saw(Sight::Serialised);
        // And this one. Who has become quiet meanwhile fetches when it comes back.
        let has_to = |(cpu, _): &&(usize, u64)| !self.quiet.is_quiet(*cpu);
        if count() - before <= known.iter().filter(has_to).count() as u64 {
            let message = format!("not all of {known:?} have fetched anew");
            context().fail(FailureKind::EarlyReturn, message);
        }
    }

    /// Has CPUs come together, perhaps for a shorter time than they take to come. The function runs on each once a step, or nowhere, and nowhere before all are done with
    /// the step before.
    fn meet_others(&self, draw: &mut Draw) {
        let wanted = self.some_cpus(draw);
        let steps = 1 + draw.below(3) as u32;
        let limit_ns = draw.one_of(&[0, 20, 1000, u64::MAX]);
        let mut how = Rendezvous::within(limit_ns).with_steps(steps);
        if draw.once_in(4) {
            how = how.without_flushes();
        }
        // Nobody has to come to one of threads, and on a clock that stands still its time is never over.
        if draw.once_in(4) && (limit_ns == 0 || limit_ns < u64::MAX && self.clock_goes_on()) {
            how = how.of_threads();
        }
        let off = draw.once_in(4);
        // Not of the machine: they are what is checked.
        let ran: [CoreU64; 4] = Default::default();
        let first = CoreU64::new(0);
        let function = |_: CpuId, step: u32| {
            let step = step as usize;
            if step > 0 {
                let before = ran[step - 1].load(Ordering::Relaxed);
                let all = first.swap(before, Ordering::Relaxed);
                if all != 0 && all != before {
                    let message = format!("{before} CPUs had ended a step, and {all} one");
                    context().fail(FailureKind::EarlyReturn, message);
                }
            }
            ran[step].fetch_add(1, Ordering::Relaxed);
            context().work(1);
        };
        context().tell(|| format!("calls {wanted:?} together: {how:?}"));
        let control = self.engine.control();
        let met = self.with_interrupts(off, || {
            // SAFETY: 1. it counts.
            unsafe { control.rendezvous(how, &wanted, &function) }
        });
        context().tell(|| format!("has called them together: {met:?}"));
        let sight = match met {
            Ok(()) => Sight::Met,
            Err(_) => Sight::MeetingGivenUp,
        };
        self.hardware.saw(sight);
        let counts = ran.map(CoreU64::into_inner);
        let [one, ..] = counts;
        let is_right = |(step, count): (usize, &u64)| match met.is_ok() && step < steps as usize {
            true => *count == one && one > 0,
            false => *count == 0,
        };
        if !counts.iter().enumerate().all(is_right) {
            let message = format!("a rendezvous ({met:?}) has run as often as {counts:?}");
            context().fail(FailureKind::EarlyReturn, message);
        }
    }

    fn clock_goes_on(&self) -> bool {
        let before = context().clock_ns();
        (0..64).for_each(|_| context().work(1));
        context().clock_ns() != before
    }

    fn issue_barriers(&self, draw: &mut Draw) {
        let Some(space) = self.get_space(draw.place()) else {
            return;
        };
        let (controls, task) = (&self.controls, context().task());
        let serial = controls.next_serial();
        controls.words[task].slow.store(serial, Ordering::Relaxed);
        let off = draw.once_in(4);
        let barrier = || self.engine.control().barrier(&space.context()).wait();
        self.with_interrupts(off, barrier);
        let read = |words: &Words| words.quick.load(Ordering::Relaxed);
        let slow = Slow {
            space: space.number,
            task,
            serial,
            seen: controls.words.iter().take(READ).map(read).collect(),
        };
        context().tell(|| format!("has had barriers issued: {slow:?}"));
        let quick = controls.quick.borrow();
        quick.iter().for_each(|quick| self.judge(quick, &slow));
        controls.slow.borrow_mut().push(slow);
        drop(quick);
        self.put_space(space);
    }

    /// What a thread of the space that is loaded here does, without a barrier.
    fn write_and_look(&self, draw: &mut Draw) {
        self.wake();
        context().preempt_disable();
        self.write_and_look_here(draw);
        context().preempt_enable();
    }

    /// The same without help of the kernel.
    pub(super) fn write_and_look_here(&self, draw: &mut Draw) {
        let of = draw.below(self.controls.words.len().min(READ));
        let delays = draw.once_in(3);
        let me = context().cpu();
        let space = self.current[me].borrow().clone();
        let space = space.filter(|_| !self.is_lazy[me].get() && self.online[me].get());
        if let Some(space) = space {
            let (controls, task) = (&self.controls, context().task());
            let serial = controls.next_serial();
            controls.words[task].quick.store(serial, Ordering::Relaxed);
            if delays {
                context().work(1);
            }
            let seen = controls.words[of].slow.load(Ordering::Relaxed);
            let quick = Quick {
                space: space.number,
                task,
                serial,
                of,
                seen,
            };
            context().tell(|| format!("has looked: {quick:?}"));
            let slow = controls.slow.borrow();
            slow.iter().for_each(|slow| self.judge(&quick, slow));
            controls.quick.borrow_mut().push(quick);
        }
    }

    /// One of the two has seen the other.
    fn judge(&self, quick: &Quick, slow: &Slow) {
        let is_pair = quick.space == slow.space && quick.of == slow.task;
        let Some(seen) = slow.seen.get(quick.task).filter(|_| is_pair) else {
            return;
        };
        match (*seen < quick.serial, quick.seen < slow.serial) {
            (true, true) => {
                let message = format!("each has missed the other: {quick:?}, {slow:?}");
                context().fail(FailureKind::EarlyReturn, message);
            }
            (false, true) => self.hardware.saw(Sight::BarrierNeeded),
            _ => {}
        }
    }
}
