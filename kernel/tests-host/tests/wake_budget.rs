//! What threads that wake up may take from those that run.

use std::cell::Cell;

use shootdown::CpuId;
use shootdown_kernel_tests::task::queue::{Claim, Kick, Place, Ready, ReadyQueue};
use shootdown_kernel_tests::task::scheduling::{Priority, SLICE_NS};
use shootdown_kernel_tests::task::wake_budget::{Turn, WakeBudget};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const TICK_NS: u64 = MS;

#[derive(Debug)]
struct Thread {
    turn: Cell<Turn>,
    slice_left_ns: Cell<u64>,
    ran_ns: Cell<u64>,
}

impl Thread {
    fn new() -> Self {
        Self {
            turn: Cell::new(Turn::Regular),
            slice_left_ns: Cell::new(0),
            ran_ns: Cell::new(0),
        }
    }
}

impl Ready for Thread {
    fn priority(&self) -> Priority {
        match self.turn.get() {
            Turn::First => Priority::AWAKE,
            _ => Priority::NORMAL,
        }
    }

    fn may_run_on(&self, _: CpuId) -> bool {
        true
    }

    fn is_on_cpu(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    Ready,
    Yielded,
    Parked,
}

/// One CPU, scheduled as the kernel does it, by its queue, its budget and its turns.
struct Cpu<'a> {
    queue: ReadyQueue<&'a Thread>,
    budget: WakeBudget,
    current: &'a Thread,
    now_ns: u64,
    accounted_ns: u64,
    slice_end_ns: u64,
}

impl<'a> Cpu<'a> {
    fn account(&mut self) {
        let ran_ns = self.now_ns - self.accounted_ns;
        self.accounted_ns = self.now_ns;
        let is_awaited = self.queue.most_urgent().is_some();
        self.current.ran_ns.set(self.current.ran_ns.get() + ran_ns);
        self.budget
            .account(self.current.turn.get(), is_awaited, ran_ns);
    }

    fn reschedule(&mut self, leave: Leave) {
        self.account();
        let slice_is_over = self.now_ns >= self.slice_end_ns;
        let yields = leave == Leave::Yielded;
        let (turn, is_over) = (self.current.turn.get()).look(slice_is_over, yields, &self.budget);
        self.current.turn.set(turn);
        let claim = (leave != Leave::Parked).then(|| Claim {
            priority: self.current.priority(),
            is_over,
        });
        let Some(next) = self.queue.choose(claim) else {
            assert!(leave != Leave::Parked, "somebody never sleeps");
            if is_over {
                self.slice_end_ns = self.now_ns + SLICE_NS;
            }
            return;
        };
        let (place, left_ns) = match is_over {
            true => (Place::Last, 0),
            false => (Place::First, (self.slice_end_ns - self.now_ns).max(1)),
        };
        let left_ns = if leave == Leave::Parked { 0 } else { left_ns };
        self.current.slice_left_ns.set(left_ns);
        if leave != Leave::Parked {
            assert_eq!(self.queue.push(self.current, place), Kick::NotNeeded);
        }
        self.slice_end_ns = self.now_ns
            + match next.slice_left_ns.get() {
                0 => SLICE_NS,
                left_ns => left_ns,
            };
        self.current = next;
    }

    fn tick(&mut self) {
        self.account();
        let is_overdrawn = self.current.turn.get() == Turn::First && !self.budget.allows();
        if self.now_ns >= self.slice_end_ns || is_overdrawn {
            self.reschedule(Leave::Ready);
        }
    }
}

/// What becomes of a thread that runs `burst_ns` and sleeps `pause_ns`, or yields where that is 0, for two seconds, beside `hogs` that never sleep:
/// how long it ran, and how long the others.
fn shares(hogs: usize, burst_ns: u64, pause_ns: u64) -> (u64, u64) {
    let sleeper = Thread::new();
    let hogs: Vec<Thread> = (0..hogs).map(|_| Thread::new()).collect();
    let mut cpu = Cpu {
        queue: ReadyQueue::new(),
        budget: WakeBudget::full(),
        current: &hogs[0],
        now_ns: 0,
        accounted_ns: 0,
        slice_end_ns: SLICE_NS,
    };
    cpu.queue.reserve(hogs.len() + 1);
    let runs = Claim {
        priority: Priority::NORMAL,
        is_over: false,
    };
    assert!(cpu.queue.choose(Some(runs)).is_none());
    for hog in &hogs[1..] {
        let _ = cpu.queue.push(hog, Place::Last);
    }
    let (mut wakes_ns, mut until_ns) = (Some(0), burst_ns);
    while cpu.now_ns < 2_000 * MS {
        let runs = core::ptr::eq(cpu.current, &sleeper);
        let tick_ns = (cpu.now_ns / TICK_NS + 1) * TICK_NS;
        let mut next_ns = tick_ns.min(wakes_ns.unwrap_or(u64::MAX));
        if runs {
            next_ns = next_ns.min(cpu.now_ns + until_ns - sleeper.ran_ns.get());
        }
        cpu.now_ns = next_ns;
        if runs && sleeper.ran_ns.get() + (cpu.now_ns - cpu.accounted_ns) == until_ns {
            until_ns += burst_ns;
            if pause_ns == 0 {
                cpu.reschedule(Leave::Yielded);
            } else {
                wakes_ns = Some(cpu.now_ns + pause_ns);
                cpu.reschedule(Leave::Parked);
            }
        } else if wakes_ns == Some(cpu.now_ns) {
            wakes_ns = None;
            sleeper.turn.set(Turn::of_woken(&cpu.budget));
            if cpu.queue.push(&sleeper, Place::Woken) == Kick::Needed {
                cpu.reschedule(Leave::Ready);
            }
        }
        if cpu.now_ns == tick_ns {
            cpu.tick();
        }
    }
    let others = hogs.iter().map(|hog| hog.ran_ns.get()).sum();
    (sleeper.ran_ns.get(), others)
}

const BURSTS: [u64; 9] = [
    20 * US,
    100 * US,
    300 * US,
    900 * US,
    MS,
    2 * MS,
    5 * MS,
    9_900 * US,
    SLICE_NS - 1,
];

/// One that sleeps a moment after each burst, and others that never do: whatever the burst, half the time for it and no more.
#[test]
fn woken_threads_take_no_more_than_half() {
    for hogs in [1, 2, 5] {
        for burst in BURSTS {
            for pause in [US, 100 * US] {
                let (woken, others) = shares(hogs, burst, pause);
                assert!(
                    woken <= others + 3 * SLICE_NS,
                    "{hogs} hogs, bursts of {burst} ns, {pause} ns asleep: {woken} of {others}"
                );
            }
            let (woken, others) = shares(hogs, burst, US);
            assert!(
                woken * (hogs as u64 + 1) >= others,
                "{hogs} hogs, bursts of {burst} ns: {woken} of {others}, less than by turns"
            );
        }
    }
}

/// Who sleeps longer than it runs is never kept waiting: it gets all that it asks for.
#[test]
fn who_sleeps_more_than_it_runs_goes_first_always() {
    for burst in BURSTS {
        let (woken, others) = shares(1, burst, 2 * burst);
        let asked = (woken + others) / 3;
        assert!(
            woken + SLICE_NS >= asked,
            "bursts of {burst} ns: {woken}, asked for {asked}"
        );
    }
}

/// Who gives way by itself takes turns, as one that never sleeps.
#[test]
fn who_yields_gains_nothing() {
    for burst in BURSTS {
        let (yields, others) = shares(1, burst, 0);
        assert!(
            yields <= others + 3 * SLICE_NS,
            "bursts of {burst} ns: {yields} of {others}"
        );
    }
}

/// Whole slices make a thread that wakes up one of those that run; it gets a little more than they do.
#[test]
fn who_takes_whole_slices_gains_little() {
    for burst in [15 * MS, 25 * MS, 100 * MS] {
        let (woken, others) = shares(1, burst, US);
        assert!(
            woken * 2 <= others * 3,
            "bursts of {burst} ns: {woken} of {others}"
        );
    }
}

#[test]
fn who_takes_nothing_from_anybody_pays_nothing() {
    let budget = WakeBudget::full();
    budget.account(Turn::First, false, 100 * SLICE_NS);
    assert!(budget.allows(), "nobody waited");
    budget.account(Turn::First, true, u64::MAX);
    assert!(!budget.allows());
    budget.account(Turn::Regular, false, SLICE_NS);
    assert!(!budget.allows(), "a slice is owed, and no more");
    budget.account(Turn::Regular, false, 1);
    assert!(budget.allows());
}

/// Or several that wake up together would each have a slice before the others.
#[test]
fn who_goes_first_gives_way_when_the_budget_is_used_up() {
    let budget = WakeBudget::full();
    let look = |turn: Turn| turn.look(false, false, &budget);
    assert_eq!(look(Turn::First), (Turn::First, false));
    budget.account(Turn::First, true, SLICE_NS);
    assert_eq!(look(Turn::First), (Turn::Woken, true));
    for turn in [Turn::Regular, Turn::Woken] {
        assert_eq!(look(turn), (turn, false), "it takes its turn");
    }
}

#[test]
fn a_turn_is_kept_as_a_word() {
    for turn in [Turn::Regular, Turn::Woken, Turn::First] {
        assert_eq!(Turn::from_u8(turn as u8), turn);
    }
}
