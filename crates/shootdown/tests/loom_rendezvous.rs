//! loom models of rendezvous: all are inside before anybody begins a step, and nobody uses what was lent when the initiator goes on.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom_machine::*;
use shootdown::Cpus;
use shootdown::control::Rendezvous;
use shootdown::*;

/// Plain memory: loom finds who uses it at the same time.
struct Page(loom::cell::UnsafeCell<u64>);

// SAFETY: loom watches it.
unsafe impl Sync for Page {}
// SAFETY: as above.
unsafe impl Send for Page {}

impl Page {
    fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(0))
    }

    fn write(&self) {
        // SAFETY: the cell is alive.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }

    fn read(&self) -> u64 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }
}

fn all<const N: usize>() -> CpuMask<Cpus<N>>
where
    Cpus<N>: Capacity,
{
    (0..N as u32).map(cpu).collect()
}

/// Each CPU writes its own page in the first step, and reads all in the second; what it wrote to is the initiator's. How many CPUs have.
fn meet<const N: usize>(machine: &Machine<N>, how: Rendezvous) -> Option<usize>
where
    Cpus<N>: Capacity,
{
    let pages: [Page; N] = std::array::from_fn(|_| Page::new());
    let ran = AtomicUsize::new(0);
    let function = |cpu: CpuId, step: u32| match step {
        0 => pages[cpu.index()].write(),
        _ => {
            assert!(pages.iter().all(|page| page.read() == 1));
            ran.fetch_add(1, Ordering::Relaxed);
        }
    };
    // SAFETY: 1. it reads and writes pages.
    let met = unsafe {
        machine
            .control()
            .rendezvous(how.with_steps(2), &all(), &function)
    };
    pages.iter().for_each(Page::write);
    let ran = ran.load(Ordering::Relaxed);
    if met.is_err() {
        assert_eq!(
            ran, 0,
            "a function has run, and the rendezvous was given up"
        );
    }
    met.is_ok().then_some(ran)
}

const PATIENT: Rendezvous = Rendezvous::within(u64::MAX);

#[test]
fn steps_begin_when_all_have_ended_the_one_before() {
    check(3, || {
        let machine = online_machine::<2>();
        let done = flag();
        let other = idler(&machine, 1, move || done.load(Ordering::Acquire));
        assert_eq!(meet(&machine, PATIENT), Some(2));
        tell(&machine, 1, done);
        other.join().unwrap();
    });
}

#[test]
fn two_initiators_take_turns_and_come_to_each_other() {
    two_wait_for_each_other(online_machine, |machine, _| {
        assert_eq!(meet(machine, PATIENT), Some(2));
    });
}

/// Whoever comes late leaves, and uses nothing that was lent.
#[test]
fn one_that_is_given_up_has_run_nowhere() {
    check(2, || {
        let machine = online_machine::<2>();
        let done = flag();
        let other = idler(&machine, 1, move || done.load(Ordering::Acquire));
        let _ = meet(&machine, Rendezvous::within(0));
        let _ = meet(&machine, Rendezvous::within(0));
        tell(&machine, 1, done);
        other.join().unwrap();
    });
}

/// It takes part, or comes online when all is over.
#[test]
fn a_cpu_that_comes_online_takes_part_or_waits() {
    check(3, || {
        let machine = machine::<2>();
        machine.online();
        let (done, page) = (flag(), Arc::new(Page::new()));
        let other = {
            let page = page.clone();
            on_cpu(&machine, 1, move |machine| {
                machine.online();
                // What a rendezvous writes that does not know this CPU.
                let _ = page.read();
                idle_until(machine, || done.load(Ordering::Acquire));
            })
        };
        let of_all = |cpu: CpuId, _: u32| {
            if cpu.index() == 0 {
                page.write();
            }
        };
        // SAFETY: 1. it writes to a page.
        unsafe { machine.control().rendezvous(PATIENT, &all(), &of_all) }.unwrap();
        tell(&machine, 1, done);
        other.join().unwrap();
    });
}
