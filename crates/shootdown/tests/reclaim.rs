//! Behaviour of one flush for many spaces, and of a flush that another task waits for. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::reclaim::*;
use shootdown::windows::*;
use shootdown::*;

/// A frame that was mapped, and one that is.
const OLD: u64 = 10;
const NEW: u64 = 11;

/// Has the CPU use pages 0 and 1 of what it has loaded.
fn use_pages(puppet: &Puppet, cpus: impl IntoIterator<Item = u32>) {
    for number in cpus {
        for page in 0..2 {
            puppet.map(page, OLD);
            assert_eq!(puppet.access(number, page), OLD);
        }
    }
}

fn remap(puppet: &Puppet) {
    puppet.map(0, NEW);
    puppet.map(1, NEW);
}

fn all_see(puppet: &Puppet, cpus: impl IntoIterator<Item = u32>, frame: u64) {
    for number in cpus {
        assert_eq!(puppet.access(number, 0), frame, "CPU {number}");
    }
}

type Frames = Vec<ManuallyDrop<u64>>;

fn reclaim(machine: &'static Machine<6>) -> Reclaim<'static, Seat<6>, Frames> {
    Reclaim::new(machine, Frames::new())
}

/// CPUs 1 and 2 have the first space loaded, 3 and 4 the second, 5 the third, and all have used their pages.
fn scene() -> (&'static Machine<6>, &'static Puppet, [Space<6>; 3]) {
    scene_on(machine::<6>())
}

fn scene_on(machine: &'static Machine<6>) -> (&'static Machine<6>, &'static Puppet, [Space<6>; 3]) {
    let puppet = machine.platform().0;
    puppet.has_no_back_end.store(true, Relaxed);
    let spaces = [1, 2, 3].map(|root| Space::new(machine, root));
    for (number, space) in [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)] {
        puppet.as_cpu(number, || machine.switch_to(None, &spaces[space]));
    }
    use_pages(puppet, 1..6);
    puppet.sent.take();
    puppet.flushes.take();
    (machine, puppet, spaces)
}

fn stats(machine: &Machine<6>) -> watch::Stats {
    machine.watch().total_stats()
}

#[test]
fn many_spaces_are_one_request_and_one_interrupt_a_cpu() {
    let (machine, puppet, spaces) = scene();
    let before = stats(machine);
    remap(puppet);
    let mut reclaim = reclaim(machine);
    // A page of two spaces, one of the third, and again one of the first.
    for (space, frame) in [(0, None), (1, Some(OLD)), (2, Some(OLD)), (0, Some(OLD))] {
        reclaim.add(&spaces[space]);
        frame.into_iter().for_each(|frame| reclaim.keep(frame));
    }
    all_see(puppet, 1..6, OLD);
    assert!(puppet.sent.take().is_empty(), "nobody is asked before");
    let frames = reclaim.submit().wait();
    assert_eq!(frames.len(), 3);
    assert_eq!(puppet.sent.take(), [1, 2, 3, 4, 5].map(|to| (0, to)));
    let counted = stats(machine).since(&before);
    assert_eq!((counted.requests_published, counted.remote_flushes), (1, 5));
    // The initiator has nothing loaded.
    let flushes: Vec<_> = puppet.flushes.take();
    assert!(
        flushes
            .iter()
            .eq([1, 2, 3, 4, 5].map(|cpu| (cpu, LocalFlush::Space)).iter())
    );
    all_see(puppet, 1..6, NEW);
}

#[test]
fn nothing_is_no_request() {
    let (machine, puppet, _spaces) = scene();
    assert!(reclaim(machine).submit().wait().is_empty());
    assert!(puppet.flushes.take().is_empty() && puppet.sent.take().is_empty());
}

/// Its generation travels, so the flush after it finds no gap.
#[test]
fn one_space_alone_is_an_ordinary_flush_of_it() {
    let (machine, puppet, spaces) = scene();
    remap(puppet);
    let mut reclaim = reclaim(machine);
    (0..3).for_each(|_| reclaim.add(&spaces[0]));
    reclaim.submit().wait();
    assert_eq!(puppet.sent.take(), [(0, 1), (0, 2)]);
    all_see(puppet, 1..3, NEW);
    puppet.flushes.take();
    machine.flush(&spaces[0], pages(0, 1), FreedTables::No);
    let by_page = LocalFlush::Pages(pages(0, 1), FreedTables::No);
    assert_eq!(puppet.flushes.take(), [(1, by_page), (2, by_page)]);
}

/// No generation travels with a flush of many spaces: the next one finds a gap, and drops all.
#[test]
fn what_many_spaces_dropped_is_not_recorded() {
    let (machine, puppet, spaces) = scene();
    let mut reclaim = reclaim(machine);
    spaces.iter().for_each(|space| reclaim.add(space));
    // Another change comes in between, and its flush later.
    remap(puppet);
    let ticket = reclaim.submit();
    puppet.deliver_all();
    use_pages(puppet, 1..6);
    remap(puppet);
    ticket.wait();
    puppet.flushes.take();
    for space in &spaces {
        machine.flush(space, pages(0, 1), FreedTables::No);
    }
    assert_eq!(puppet.flushes.take().len(), 5);
    all_see(puppet, 1..6, NEW);
}

/// Who has another space loaded by then, or none, or is online no more, looks when it comes back.
#[test]
fn who_has_left_looks_when_it_comes_back() {
    let (machine, puppet, spaces) = scene_on(online(tagged::<6>(4)));
    remap(puppet);
    let mut reclaim = reclaim(machine);
    spaces.iter().for_each(|space| reclaim.add(space));
    puppet.as_cpu(1, || machine.switch_to(Some(&spaces[0]), &spaces[1]));
    puppet.as_cpu(2, || machine.switch_away(&spaces[0], KERNEL_ROOT));
    puppet.as_cpu(3, || {
        machine.switch_away(&spaces[1], KERNEL_ROOT);
        machine.offline();
    });
    let before = stats(machine);
    puppet.sent.take();
    reclaim.submit().wait();
    assert_eq!(puppet.sent.take(), [1, 2, 4, 5].map(|to| (0, to)));
    assert_eq!(
        stats(machine).since(&before).flushes_stray,
        2,
        "CPU 2, and the initiator"
    );
    puppet.as_cpu(1, || machine.switch_to(Some(&spaces[1]), &spaces[0]));
    puppet.as_cpu(2, || machine.switch_to(None, &spaces[0]));
    all_see(puppet, [1, 2, 4, 5], NEW);
}

#[test]
fn lazy_and_deferring_cpus_are_left_alone_and_look_later() {
    let (machine, puppet, spaces) = scene();
    machine.set_policy(Policy::BEST.with_deferral(true));
    remap(puppet);
    let mut reclaim = reclaim(machine);
    reclaim.add(&spaces[0]);
    puppet.as_cpu(1, || {
        machine.user_memory().enter_lazy(&spaces[0], KERNEL_ROOT)
    });
    puppet.as_cpu(5, || {
        assert!(machine.user_memory().defer_flushes(&spaces[2]))
    });
    reclaim.add(&spaces[1]);
    reclaim.add(&spaces[2]);
    // The initiator, too.
    puppet.as_cpu(4, || {
        machine.user_memory().enter_lazy(&spaces[1], KERNEL_ROOT)
    });
    puppet.flushes.take();
    puppet.as_cpu(4, || reclaim.submit().wait());
    let told: Vec<_> = puppet.sent.take().iter().map(|route| route.1).collect();
    assert_eq!(told, [2, 3]);
    assert_eq!(puppet.flushes.take().len(), 2);
    puppet.as_cpu(1, || machine.switch_to(Some(&spaces[0]), &spaces[0]));
    puppet.as_cpu(4, || machine.switch_to(Some(&spaces[1]), &spaces[1]));
    puppet.as_cpu(5, || machine.user_memory().catch_up(&spaces[2]));
    all_see(puppet, 1..6, NEW);
}

/// One that became lazy when it was asked already.
#[test]
fn a_lazy_cpu_that_is_asked_drops_nothing() {
    let (machine, puppet, spaces) = scene();
    let mut reclaim = reclaim(machine);
    spaces.iter().for_each(|space| reclaim.add(space));
    remap(puppet);
    let ticket = reclaim.submit();
    puppet.as_cpu(1, || {
        machine.user_memory().enter_lazy(&spaces[0], KERNEL_ROOT)
    });
    puppet.flushes.take();
    puppet.deliver(1);
    assert!(puppet.flushes.take().is_empty());
    ticket.wait();
    puppet.as_cpu(1, || machine.switch_to(Some(&spaces[0]), &spaces[0]));
    all_see(puppet, 1..6, NEW);
}

#[test]
fn the_initiator_flushes_what_it_has_loaded() {
    let (machine, puppet, spaces) = scene();
    remap(puppet);
    puppet.as_cpu(1, || {
        let mut reclaim = reclaim(machine);
        spaces.iter().for_each(|space| reclaim.add(space));
        let ticket = reclaim.submit();
        all_see(puppet, [1], NEW);
        ticket.wait();
    });
    assert_eq!(puppet.sent.take(), [2, 3, 4, 5].map(|to| (1, to)));
    all_see(puppet, 1..6, NEW);
}

/// It knows nothing of what each CPU has loaded, so it is asked for everything.
#[test]
fn a_back_end_is_asked_for_everything() {
    let (machine, puppet, spaces) = scene();
    puppet.has_no_back_end.store(false, Relaxed);
    puppet.reaches(&[2, 3, 4]);
    remap(puppet);
    let mut reclaim = reclaim(machine);
    spaces.iter().for_each(|space| reclaim.add(space));
    assert!(puppet.asked.take().is_empty());
    reclaim.submit().wait();
    let asked = puppet.asked.take();
    let [(request, ref cpus)] = asked[..] else {
        panic!("asked {asked:?}");
    };
    assert_eq!((request.space(), &cpus[..]), (None, &[1, 2, 3, 4, 5][..]));
    assert!(request.ranges().eq([FlushRange::WHOLE]));
    assert_eq!(puppet.sent.take(), [(0, 1), (0, 5)]);
    all_see(puppet, 1..6, NEW);
}

/// An instruction flushes the space at once, on all CPUs.
#[test]
fn a_space_with_a_global_tag_is_flushed_as_it_is_added() {
    let machine = online(globally_tagged::<6>(12));
    let puppet = machine.platform().0;
    machine.set_policy(Policy::BEST.with_global_tags_from(1));
    let space = space_on(machine, 6);
    use_pages(puppet, 0..6);
    (0..2).for_each(|_| machine.flush(&space, pages(0, 1), FreedTables::No));
    use_pages(puppet, 0..6);
    puppet.everywhere.take();
    puppet.sent.take();
    remap(puppet);
    let mut reclaim = reclaim(machine);
    reclaim.add(&space);
    assert_eq!(puppet.everywhere.take().len(), 1);
    reclaim.submit().wait();
    assert!(puppet.sent.take().is_empty());
    all_see(puppet, 0..6, NEW);
}

#[test]
fn a_cpu_with_its_private_root_loaded_drops_its_pages() {
    let (machine, puppet, spaces) = scene();
    let windows = WindowRoot::new(machine, &spaces[0], cpu(1), tables(50));
    puppet.as_cpu(1, || {
        (machine.windows()).switch_to(Some(&spaces[0]), &spaces[0], &windows);
    });
    use_pages(puppet, [1]);
    remap(puppet);
    let mut reclaim = reclaim(machine);
    spaces.iter().for_each(|space| reclaim.add(space));
    reclaim.submit().wait();
    all_see(puppet, 1..6, NEW);
    puppet.as_cpu(1, || machine.switch_to(Some(&spaces[0]), &spaces[0]));
    puppet.as_cpu(1, || machine.windows().retire(&spaces[0], windows));
}

#[test]
fn what_is_not_submitted_is_leaked() {
    struct Frame(#[expect(dead_code, reason = "counted")] std::rc::Rc<()>);
    let (machine, _, spaces) = scene();
    let count = std::rc::Rc::new(());
    let mut reclaim = Reclaim::new(machine, Vec::new());
    reclaim.add(&spaces[0]);
    reclaim.keep(Frame(count.clone()));
    drop(reclaim);
    assert_eq!(std::rc::Rc::strong_count(&count), 2);
}

#[test]
fn another_engines_space_is_refused() {
    let (machine, _, _spaces) = scene();
    let (other, _, spaces) = scene();
    assert!(!std::ptr::eq(machine, other));
    assert!(refuses(|| reclaim(machine).add(&spaces[0])));
}

fn is_send<T: Send + Sync>(_: &T) {}

/// Under any policy: what is due on the initiator is done as the flush is handed over.
#[test]
fn a_flush_that_was_handed_over_is_waited_for_anywhere() {
    for policy in [Policy::BEFORE, Policy::BEST] {
        let (machine, puppet, spaces) = scene();
        machine.set_policy(policy);
        remap(puppet);
        let pending = puppet.as_cpu(1, || {
            let ticket = machine.submit_flush(&spaces[0], pages(0, 2), FreedTables::No);
            let pending = ticket.hold(vec![OLD]).hand_over();
            all_see(puppet, [1], NEW);
            pending
        });
        is_send(&pending);
        assert_eq!(puppet.preempt_count(1), 0);
        assert!(!pending.is_done());
        // Its CPU goes.
        puppet.as_cpu(1, || machine.switch_away(&spaces[0], KERNEL_ROOT));
        puppet.as_cpu(1, || machine.offline());
        assert_eq!(puppet.as_cpu(3, || pending.wait()), [OLD]);
        all_see(puppet, [2], NEW);
    }
}

#[test]
fn a_flush_that_was_handed_over_is_waited_for_when_it_is_dropped() {
    let (machine, puppet, spaces) = scene();
    remap(puppet);
    let ticket = machine.submit_flush(&spaces[0], pages(0, 2), FreedTables::No);
    drop(ticket.hand_over());
    all_see(puppet, [1, 2], NEW);
}

/// What a ticket holds, and says as it is freed how often its CPU has flushed.
struct Freed<'a>(&'static Machine<6>, &'a std::cell::Cell<u64>);

impl Drop for Freed<'_> {
    fn drop(&mut self) {
        self.1.set(stats(self.0).local_flushes);
    }
}

/// Under a policy that flushes here after the wait: however the ticket ends, that comes first (I4, I5).
#[test]
fn what_a_ticket_holds_is_freed_when_this_cpu_has_flushed_too() {
    type Held<'a> = FlushTicket<'static, Seat<6>, Freed<'a>>;
    let ends: [fn(Held<'_>); 4] = [
        |ticket| drop(ticket),
        |ticket| drop(ticket.wait()),
        |ticket| drop(ticket.try_wait()),
        |ticket| drop(ticket.hand_over()),
    ];
    for end in ends {
        let (machine, puppet, spaces) = scene();
        machine.set_policy(Policy::BEFORE);
        let flushed = std::cell::Cell::new(0);
        puppet.as_cpu(1, || {
            let before = stats(machine).local_flushes;
            let ticket = machine.submit_flush(&spaces[0], pages(0, 1), FreedTables::Yes);
            end(ticket.hold(Freed(machine, &flushed)));
            assert_eq!(flushed.get(), before + 1);
        });
    }
}

/// What travels names no space: nobody takes it for one.
#[test]
fn a_cpu_without_a_space_answers() {
    let (machine, puppet, spaces) = scene();
    let mut reclaim = reclaim(machine);
    spaces.iter().for_each(|space| reclaim.add(space));
    let ticket = reclaim.submit();
    puppet.as_cpu(1, || machine.switch_away(&spaces[0], KERNEL_ROOT));
    let before = stats(machine);
    puppet.deliver(1);
    assert_eq!(stats(machine).since(&before).flushes_stray, 1);
    ticket.wait();
}
