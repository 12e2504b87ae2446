//! The queue of ready threads: who goes first, who gives way, and who must be told.

use shootdown::CpuId;
use shootdown_kernel_tests::task::queue::{Claim, Kick, Place, Ready, ReadyQueue};
use shootdown_kernel_tests::task::scheduling::{Priority, Rule, Scheduling};
use std::cell::Cell;

/// A thread that the test can change while it is queued.
#[derive(Debug)]
struct Thread {
    name: u32,
    priority: Cell<Priority>,
    is_on_cpu: Cell<bool>,
    home: Option<CpuId>,
}

impl Ready for Thread {
    fn priority(&self) -> Priority {
        self.priority.get()
    }

    fn may_run_on(&self, cpu: CpuId) -> bool {
        self.home.is_none_or(|home| home == cpu)
    }

    fn is_on_cpu(&self) -> bool {
        self.is_on_cpu.get()
    }
}

type Queue<'a> = ReadyQueue<&'a Thread>;

fn priority(number: u32) -> Priority {
    let rule = [Rule::Normal, Rule::Fifo][usize::from(number != 0)];
    let scheduling = Scheduling::new(rule, number, false);
    scheduling.expect("they go together").priority()
}

fn thread(name: u32, number: u32) -> Thread {
    Thread {
        name,
        priority: Cell::new(priority(number)),
        is_on_cpu: Cell::new(false),
        home: None,
    }
}

fn threads<const N: usize>(all: [(u32, u32); N]) -> [Thread; N] {
    all.map(|(name, number)| thread(name, number))
}

fn claim(number: u32, is_over: bool) -> Option<Claim> {
    Some(Claim {
        priority: priority(number),
        is_over,
    })
}

/// The names in the order in which an idle CPU would run them.
fn drained(queue: &mut Queue<'_>) -> Vec<u32> {
    let order = std::iter::from_fn(|| queue.choose(None));
    order.map(|thread| thread.name).collect()
}

#[test]
fn the_most_urgent_goes_first_and_equals_in_order() {
    let threads = threads([(1, 0), (2, 7), (3, 0), (4, 99), (5, 7)]);
    let mut queue = Queue::new();
    for thread in &threads {
        let _ = queue.push(thread, Place::Last);
    }
    assert_eq!(queue.most_urgent(), Some(priority(99)));
    assert_eq!(drained(&mut queue), [4, 2, 5, 1, 3]);
}

#[test]
fn whoever_was_interrupted_comes_before_its_equals() {
    let threads = threads([(1, 7), (2, 7), (3, 8)]);
    let mut queue = Queue::new();
    let _ = queue.push(&threads[0], Place::Last);
    let _ = queue.push(&threads[1], Place::First);
    let _ = queue.push(&threads[2], Place::Last);
    assert_eq!(drained(&mut queue), [3, 2, 1]);
}

#[test]
fn a_running_thread_gives_way_to_the_more_urgent_only_until_its_turn_is_over() {
    let (equal, higher) = (thread(1, 5), thread(2, 6));
    let mut queue = Queue::new();
    let _ = queue.push(&equal, Place::Last);
    assert!(queue.choose(claim(5, false)).is_none());
    assert_eq!(queue.running(), Some(priority(5)));
    let _ = queue.push(&higher, Place::Last);
    assert_eq!(queue.choose(claim(5, false)).map(|t| t.name), Some(2));
    assert_eq!(queue.running(), Some(priority(6)));
    assert!(queue.choose(claim(6, true)).is_none(), "5 is less than 6");
    assert_eq!(queue.choose(claim(5, true)).map(|t| t.name), Some(1));
}

#[test]
fn a_push_kicks_a_cpu_that_halts_or_runs_something_less_urgent() {
    let (low, high) = (thread(1, 0), thread(2, 50));
    let mut queue = Queue::new();
    // It is on its way to the idle loop, and will look.
    assert!(queue.choose(None).is_none());
    assert_eq!(queue.push(&low, Place::Last), Kick::NotNeeded);
    assert!(!queue.announce_idle());
    assert_eq!(queue.choose(None).map(|t| t.name), Some(1));
    assert!(queue.choose(None).is_none());
    assert!(queue.announce_idle());
    assert_eq!(queue.push(&low, Place::Last), Kick::Needed);
    assert_eq!(queue.choose(None).map(|t| t.name), Some(1));
    // Now it runs a normal thread: another one waits its turn.
    assert_eq!(queue.push(&low, Place::Last), Kick::NotNeeded);
    assert_eq!(queue.push(&high, Place::Last), Kick::Needed);
}

#[test]
fn a_thread_that_becomes_more_urgent_moves_up() {
    let threads = threads([(1, 0), (2, 0)]);
    let mut queue = Queue::new();
    assert!(queue.choose(claim(0, false)).is_none());
    let _ = queue.push(&threads[0], Place::Last);
    let _ = queue.push(&threads[1], Place::Last);
    threads[1].priority.set(priority(3));
    assert_eq!(queue.sort_again(&raw const threads[1]), Some(Kick::Needed));
    assert_eq!(queue.sort_again(&raw const *Box::new(thread(3, 0))), None);
    assert_eq!(drained(&mut queue), [2, 1]);
}

#[test]
fn thieves_take_what_is_urgent_enough_and_may_run_there() {
    let (here, there) = (CpuId::new(0), CpuId::new(1));
    let pinned = Thread {
        home: Some(here),
        ..thread(1, 9)
    };
    let (urgent, leaving, normal) = (thread(2, 9), thread(3, 9), thread(4, 0));
    leaving.is_on_cpu.set(true);
    let mut queue = Queue::new();
    for thread in [&pinned, &leaving, &urgent, &normal] {
        let _ = queue.push(thread, Place::Last);
    }
    let mut steal = |priority| queue.steal_for(there, priority).map(|t| t.name);
    assert_eq!(steal(priority(9)), Some(2));
    assert_eq!(steal(priority(9)), None);
    assert_eq!(steal(Priority::NORMAL), Some(4));
    assert!(queue.remove(&raw const leaving).is_none());
    assert_eq!(queue.remove(&raw const pinned).map(|t| t.name), Some(1));
}

#[test]
fn a_closed_queue_takes_back_only_what_is_still_leaving() {
    let (resting, leaving) = (thread(1, 0), thread(2, 0));
    leaving.is_on_cpu.set(true);
    let mut queue = Queue::new();
    queue.close();
    assert!(!queue.takes(&resting));
    assert!(queue.takes(&leaving));
    queue.reopen();
    assert!(queue.takes(&resting));
}

#[test]
fn rules_go_with_their_priorities_and_survive_as_bits() {
    assert!(Scheduling::new(Rule::Normal, 1, false).is_none());
    assert!(Scheduling::new(Rule::Fifo, 0, false).is_none());
    for number in [100, 127, 128, 200, 256, u32::MAX] {
        assert!(Scheduling::new(Rule::RoundRobin, number, false).is_none());
    }
    for (rule, number) in [(Rule::Normal, 0), (Rule::Fifo, 1), (Rule::RoundRobin, 99)] {
        for resets in [false, true] {
            let scheduling = Scheduling::new(rule, number, resets).expect("they go together");
            assert_eq!(Scheduling::from_bits(scheduling.to_bits()), scheduling);
            let child = [scheduling, Scheduling::NORMAL][usize::from(resets)];
            assert_eq!(scheduling.of_child(), child);
        }
    }
}

#[test]
fn who_has_just_woken_up_goes_before_those_that_take_turns_and_after_urgent_ones() {
    let threads = [thread(1, 0), thread(2, 0), thread(3, 1)];
    threads[1].priority.set(Priority::AWAKE);
    let mut queue = Queue::new();
    assert!(queue.choose(claim(0, false)).is_none());
    assert_eq!(queue.push(&threads[0], Place::Last), Kick::NotNeeded);
    assert_eq!(queue.push(&threads[1], Place::Woken), Kick::Needed);
    assert_eq!(queue.push(&threads[2], Place::Last), Kick::Needed);
    assert_eq!(drained(&mut queue), [3, 2, 1]);
    assert!(!Priority::AWAKE.is_real_time());
    assert_eq!(
        Priority::AWAKE.as_u32(),
        0,
        "to programs it is like the others"
    );
}
