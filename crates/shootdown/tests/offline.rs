//! Behaviour of CPUs that go offline and come back, on the puppet machine.

#![cfg(not(loom))]

mod puppet;

use puppet::*;
use shootdown::calls::{CallData, CallTicket, NotReady, PostRefused, Wait};
use shootdown::*;
use shootdown::{Cpus, tags::*, watch::*};

#[test]
fn what_was_sent_before_runs_before_the_cpu_is_gone() {
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<4>();
    for _ in 0..2 {
        machine
            .try_post(&CpuMask::only(cpu(1)), |_| RUNS.add())
            .unwrap();
    }
    puppet.as_cpu(1, || machine.offline());
    assert_eq!(RUNS.get(), 2);
    assert!(!machine.ready_cpus().contains(cpu(1)));
    assert!(
        puppet
            .trace
            .take()
            .contains(&TraceEvent::Offline { cpu: cpu(1) })
    );
}

/// Functions that are left run on a target of flushes, as they do everywhere: what they read of the kernel's part is not old.
#[test]
fn what_runs_before_a_cpu_is_gone_misses_no_flush() {
    static RUNS: Count = Count::new();
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| RUNS.add());
    let (machine, puppet) = with_puppet::<3>();
    puppet.map(0, 1);
    assert_eq!(puppet.access(1, 0), 1);
    machine
        .try_post(&CpuMask::only(cpu(1)), move |me| {
            RUNS.add();
            puppet.map(0, 2);
            let flush = puppet.as_cpu(0, || {
                machine.submit_flush(FlushScope::Kernel, pages(0, 1), FreedTables::Yes)
            });
            assert!(machine.poll(), "it spins for a lock of CPU 0's");
            puppet.as_cpu(2, || machine.poll());
            assert!(flush.is_done());
            assert_eq!(puppet.access(1, 0), 2);
            let others = puppet.as_cpu(0, || machine.try_post(&CpuMask::first(3), |_| ()));
            assert_eq!(
                others,
                Ok([cpu(0), cpu(2)].into_iter().collect()),
                "{me} runs what it has"
            );
            let refused = puppet.as_cpu(2, || machine.post_data(me, &DATA));
            assert_eq!(refused, Err(PostRefused::NotReady));
        })
        .unwrap();
    puppet.as_cpu(1, || machine.offline());
    assert_eq!(RUNS.get(), 1);
}

/// What it has posted to itself with interrupts off, too.
#[test]
fn a_cpu_that_leaves_runs_its_posts_to_itself() {
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<2>();
    // Its controller refuses, and does so no more when it has come back.
    *puppet.refuse_to.lock().unwrap() = (1, usize::MAX);
    puppet.as_cpu(1, || {
        puppet.set_irqs_off(true);
        machine
            .try_post(&CpuMask::only(cpu(1)), |_| RUNS.add())
            .unwrap();
        machine.offline();
        assert_eq!(RUNS.get(), 1);
        *puppet.refuse_to.lock().unwrap() = (1, 0);
        machine.online();
        machine.watch().look();
    });
    let is_own = |route: &(u32, u32)| *route == (1, 1);
    assert!(
        !puppet.sent.take().iter().any(is_own),
        "it owes itself none"
    );
}

#[test]
fn a_cpu_that_is_gone_posts_nothing_to_itself() {
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<2>();
    let sent = puppet.as_cpu(1, || {
        machine.offline();
        let sent = machine.try_post(&CpuMask::only(cpu(1)), |_| RUNS.add());
        machine.online();
        sent.unwrap()
    });
    puppet.interrupt_now(1);
    assert_eq!((sent.len(), RUNS.get()), (0, 0));
}

#[test]
fn a_cpu_that_is_gone_is_no_target() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.as_cpu(1, || machine.offline());
    puppet.sent.take();
    let refused = machine.call_one(cpu(1), &|_| unreachable!("it is gone"));
    assert_eq!(refused, Err(NotReady { cpu: cpu(1) }));
    machine.flush(FlushScope::Kernel, pages(0, 1), FreedTables::Yes);
    let reached: Vec<u32> = puppet
        .sent
        .take()
        .into_iter()
        .map(|(_, target)| target)
        .collect();
    assert_eq!(reached, [2, 3]);
}

/// All but one go; nobody is left to wait for.
#[test]
fn all_cpus_may_go_one_after_the_other() {
    let machine = machine::<4>();
    for number in 0..4 {
        machine.platform().as_cpu(number, || machine.offline());
    }
    assert!(machine.ready_cpus().is_empty());
}

/// What its tags held belongs to an earlier life.
#[test]
fn a_cpu_that_comes_back_keeps_no_tag() {
    let machine = online(tagged::<1>(8));
    let puppet = machine.platform();
    let space = Space::new(machine, 1);
    puppet.map_in(space.root(), 0, 10);
    machine.switch_to(None, &space);
    assert_eq!(puppet.access(0, 0), 10);
    machine.switch_away(&space, kernel_tables(0));
    machine.offline();
    // The hardware forgets generations, not translations: a flush in between is the host's to remember.
    machine.online();
    machine.switch_to(None, &space);
    let loads = puppet.loads.take();
    assert_eq!(loads.last().map(|load| load.3), Some(TagEntries::Drop));
    assert_eq!(machine.watch().stats(cpu(0)).tags_kept, 0);
}

#[test]
fn a_cpu_that_came_back_is_a_target_again() {
    let (machine, puppet) = with_puppet::<2>();
    puppet.as_cpu(1, || machine.offline());
    puppet.map(0, 1);
    assert_eq!(puppet.access(1, 0), 1);
    puppet.as_cpu(1, || machine.online());
    puppet.map(0, 2);
    machine.flush(FlushScope::Kernel, pages(0, 1), FreedTables::Yes);
    assert_eq!(puppet.access(1, 0), 2);
    assert_eq!(machine.call_one(cpu(1), &|_| ()), Ok(()));
}

/// The only other holder of a space goes offline while the initiator, who has seen it in the set, waits for a slot.
#[test]
fn a_cpu_that_leaves_while_the_initiator_waits_for_a_slot_is_not_waited_for() {
    let (machine, puppet) = with_puppet::<2>();
    let space: &'static AddressSpace<Cpus<2>> = Box::leak(Box::new(Space::new(machine, 1)));
    puppet.as_cpu(1, || machine.switch_to(None, space));
    let one_page = pages(0, 1);
    let calls: Vec<_> = (0..3)
        .map(|_| machine.submit(&CpuMask::only(cpu(1)), |_| (), Wait::Done))
        .collect();
    let flush = machine.submit_flush(space, one_page, FreedTables::No);
    puppet.at_next_relax(move || {
        puppet.as_cpu(1, || {
            machine.switch_away(space, kernel_tables(0));
            machine.offline();
            // It is halted.
            puppet.set_irqs_off(true);
        });
    });
    machine.flush(space, one_page, FreedTables::No);
    assert_eq!(machine.watch().stats(cpu(0)).slots_exhausted, 1);
    assert!(!machine.ready_cpus().contains(cpu(1)));
    assert!(flush.is_done() && calls.iter().all(CallTicket::is_done));
}

/// A CPU that is not online is not asked by those that leave: it looks for its targets again when nobody can leave any more.
#[test]
fn who_is_not_online_does_not_wait_for_a_cpu_that_left_meanwhile() {
    let machine = puppet::powered_off::<2>();
    let puppet = machine.platform();
    puppet.as_cpu(1, || machine.online());
    let space: &'static AddressSpace<Cpus<2>> = Box::leak(Box::new(Space::new(machine, 1)));
    puppet.as_cpu(1, || machine.switch_to(None, space));
    puppet.at_next_flush_remote(move || {
        puppet.as_cpu(1, || {
            machine.switch_away(space, kernel_tables(0));
            machine.offline();
        });
    });
    puppet.at_next_relax(|| panic!("it waits for a CPU that is gone"));
    let one_page = pages(0, 1);
    machine.flush(space, one_page, FreedTables::No);
    assert!(!machine.ready_cpus().contains(cpu(1)));
}

/// Which CPU a call for any of several goes to is decided when there is a slot for it, not before.
#[test]
fn a_call_for_any_cpu_avoids_the_one_that_left_while_it_waited_for_a_slot() {
    let (machine, puppet) = with_puppet::<3>();
    let calls: Vec<_> = (0..3)
        .map(|_| machine.submit(&CpuMask::only(cpu(1)), |_| (), Wait::Done))
        .collect();
    puppet.at_next_relax(move || {
        puppet.as_cpu(1, || {
            machine.offline();
            puppet.set_irqs_off(true);
        });
    });
    let targets = [cpu(1), cpu(2)].into_iter().collect();
    let chosen = machine.call_many(CallTargets::AnyOf(&targets), &|me| assert_eq!(me, cpu(2)));
    assert_eq!(chosen, CpuMask::only(cpu(2)));
    assert_eq!(machine.watch().stats(cpu(0)).slots_exhausted, 1);
    assert!(calls.iter().all(CallTicket::is_done));
}

/// A platform may refuse interrupts to a CPU that has left for ever: nobody needs them.
#[test]
fn a_target_that_leaves_is_not_interrupted_for_ever() {
    static RUNS: Count = Count::new();
    static DATA: CallData<fn(CpuId)> = CallData::new(count);
    fn count(_: CpuId) {
        RUNS.add();
    }
    let post: [fn(&Machine<3>); 3] = [
        |machine| _ = machine.try_post(&CpuMask::only(cpu(1)), count).unwrap(),
        |machine| {
            _ = machine
                .try_post(&[cpu(1), cpu(2)].into_iter().collect(), count)
                .unwrap()
        },
        |machine| {
            assert!(machine.post_data(cpu(1), &DATA).is_ok());
            assert_eq!(machine.watch().stats(cpu(0)).ipis_sent, 0, "none was taken");
        },
    ];
    for (post, runs) in post.into_iter().zip([1, 2, 1]) {
        let machine = machine::<3>();
        let puppet = machine.platform().0;
        *puppet.refuse_to.lock().unwrap() = (1, usize::MAX);
        puppet.at_next_relax(move || {
            puppet.as_cpu(1, || {
                // CPU 0 has interrupts off, and serves flushes where it is refused; it has not interrupted CPU 2 yet.
                let answer = move || {
                    assert!(puppet.as_cpu(0, || machine.poll()));
                    puppet.as_cpu(2, || machine.poll());
                };
                puppet.at_next_relax(move || {
                    answer();
                    puppet.at_next_relax(answer);
                });
                machine.offline();
            });
        });
        post(machine);
        puppet.deliver(2);
        assert_eq!(RUNS.take(), runs);
        assert!(!machine.ready_cpus().contains(cpu(1)));
    }
}

/// Found by the fuzzer: the function spins for a lock, which a CPU that is not online holds while it publishes a flush.
#[test]
fn who_is_not_online_publishes_while_a_cpu_that_leaves_runs_its_functions() {
    static RUNS: Count = Count::new();
    let machine = puppet::powered_off::<3>();
    let puppet = machine.platform().0;
    for number in [1, 2] {
        puppet.as_cpu(number, || machine.online());
    }
    let flush = move |_| {
        RUNS.add();
        puppet.at_next_relax(|| panic!("it waits for the CPU that leaves"));
        let ticket = puppet.as_cpu(0, || {
            machine.submit_flush(FlushScope::Kernel, pages(0, 1), FreedTables::No)
        });
        // It spins for the lock, and is a target of flushes.
        puppet.at_next_relax(move || assert!(puppet.as_cpu(2, || machine.poll())));
        puppet.as_cpu(0, || ticket.wait());
    };
    puppet.as_cpu(1, || {
        machine.try_post(&CpuMask::only(cpu(2)), flush).unwrap()
    });
    puppet.as_cpu(2, || machine.offline());
    assert_eq!(RUNS.get(), 1);
}

/// It does not come back with its doorbell held: nobody would interrupt it.
#[test]
fn a_cpu_that_leaves_lets_its_doorbell_go() {
    let (machine, puppet) = with_puppet::<2>();
    puppet.as_cpu(1, || {
        machine.poll_idle(|_| {
            // As a CPU that dies in its idle task, and is started again elsewhere.
            machine.offline();
            machine.online();
            puppet.sent.take();
            puppet.as_cpu(0, || {
                machine.try_post(&CpuMask::only(cpu(1)), |_| ()).unwrap()
            });
            assert_eq!(puppet.sent.take(), [(0, 1)]);
        });
    });
}

/// A host's locks poll, and are taken before there is any memory.
#[test]
fn a_cpu_without_memory_may_poll() {
    let puppet = *machine::<2>().platform();
    let engine: Shootdown<_> = Shootdown::new(puppet);
    assert!(!engine.poll());
    engine.watch().look();
}

#[test]
fn misuse_is_refused() {
    let (machine, puppet) = with_puppet::<2>();
    let space = Space::new(machine, 1);
    machine.switch_to(None, &space);
    assert!(refuses(|| machine.offline()), "a space is loaded");
    machine.user_memory().enter_lazy(&space, kernel_tables(0));
    assert!(refuses(|| machine.offline()), "lazily");
    machine.switch_away(&space, kernel_tables(0));
    puppet.set_irqs_off(false);
    puppet.as_cpu(1, || machine.offline());
    assert!(refuses(|| puppet.as_cpu(1, || machine.offline())), "twice");
    assert!(
        machine
            .call_one(cpu(0), &|_| assert!(refuses(|| machine.offline())))
            .is_ok(),
        "inside a called function"
    );
}

/// CPU 0 leaves as the others do: who is not online sends nothing meanwhile.
#[test]
fn nobody_that_is_not_online_posts_while_cpu_0_leaves() {
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| ());
    static REFUSED: Count = Count::new();
    let (machine, puppet) = with_puppet::<4>();
    puppet.as_cpu(3, || machine.offline());
    puppet.at_next_relax(move || {
        let posted = puppet.as_cpu(3, || machine.post_data(cpu(1), &DATA));
        assert_eq!(posted, Err(PostRefused::Busy));
        REFUSED.add();
    });
    machine.offline();
    assert_eq!(REFUSED.get(), 1);
    let posted = puppet.as_cpu(3, || machine.post_data(cpu(1), &DATA));
    assert_eq!(posted, Ok(()));
}
