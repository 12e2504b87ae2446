//! Behaviour of guests on the puppet machine: who is interrupted for a flush, and what a virtual CPU may keep.

#![cfg(not(loom))]

mod puppet;

use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::*;
use shootdown::{calls::CallData, guest::*, tags::*, watch::*};

const FIRST: u64 = 1;
const SECOND: u64 = 2;

/// A virtual machine with one virtual CPU, and memory of one page.
struct Vm<const N: usize>
where
    Cpus<N>: Capacity,
{
    machine: &'static Machine<N>,
    space: GuestSpace<Cpus<N>>,
    vcpu: Vcpu,
}

impl<const N: usize> Vm<N>
where
    Cpus<N>: Capacity,
{
    fn new(machine: &'static Machine<N>, root: u64) -> Self {
        machine.platform().map_in(root, 0, 10);
        let space = GuestSpace::new(machine, tables(root));
        let vcpu = Vcpu::new(machine, &space);
        Self {
            machine,
            space,
            vcpu,
        }
    }

    /// Runs on CPU `number` for the length of `body`; returns what was to become of what it had cached there.
    fn run_with(
        &mut self,
        number: u32,
        body: impl FnOnce(&GuestSpace<Cpus<N>>, GuestEntry),
    ) -> TagEntries {
        let Self {
            machine,
            space,
            vcpu,
        } = self;
        run(machine, number, space, vcpu, |entry| body(space, entry))
    }

    /// Runs on CPU `number`: what it translates its page to.
    fn run(&mut self, number: u32) -> u64 {
        let puppet = self.machine.platform();
        let mut frame = 0;
        self.run_with(number, |_, entry| frame = puppet.guest_access(entry, 0));
        frame
    }

    /// Gives its page another frame, on CPU `number`.
    fn remap(&self, number: u32) -> FlushTicket<'static, Seat<N>> {
        remap(self.machine, number, &self.space)
    }
}

fn run<const N: usize>(
    machine: &'static Machine<N>,
    number: u32,
    space: &GuestSpace<Cpus<N>>,
    vcpu: &mut Vcpu,
    body: impl FnOnce(GuestEntry),
) -> TagEntries
where
    Cpus<N>: Capacity,
{
    let puppet = machine.platform();
    puppet.as_cpu(number, || {
        let inside = |entry: GuestEntry| {
            puppet.enter_guest(entry);
            body(entry);
            GuestExit::Ran(entry.entries)
        };
        // SAFETY: 1. `body` asks the puppet, and other CPUs use the engine. 2, 3. A puppet's guest does nothing of itself.
        unsafe { space.run(machine, vcpu, inside) }
    })
}

fn remap<const N: usize>(
    machine: &'static Machine<N>,
    number: u32,
    space: &GuestSpace<Cpus<N>>,
) -> FlushTicket<'static, Seat<N>>
where
    Cpus<N>: Capacity,
{
    let puppet = machine.platform();
    puppet.map_in(space.root(), 0, 11);
    puppet.as_cpu(number, || {
        machine.submit_flush(space, FlushRange::WHOLE, FreedTables::No)
    })
}

#[test]
fn a_cpu_that_has_left_is_told_nothing_and_drops_its_tag_as_it_enters_again() {
    let (machine, puppet) = with_puppet::<4>();
    let mut vm = Vm::new(machine, FIRST);
    assert_eq!(vm.run(1), 10);
    let flush = vm.remap(0);
    assert!(flush.is_done());
    assert_eq!(puppet.sent.take(), []);
    assert_eq!(vm.run(1), 11);
    let stats = machine.watch().total_stats();
    assert_eq!(
        (stats.guest_exits, stats.guest_flushes, stats.guest_kicks),
        (2, 1, 0)
    );
}

#[test]
fn a_virtual_cpu_that_enters_again_keeps_what_it_has_cached() {
    let (machine, _) = with_puppet::<4>();
    let mut vm = Vm::new(machine, FIRST);
    assert_eq!(vm.run_with(1, |_, _| ()), TagEntries::Drop);
    assert_eq!(vm.run_with(1, |_, _| ()), TagEntries::Keep);
    let stats = machine.watch().stats(cpu(1));
    assert_eq!((stats.tags_taken, stats.tags_kept), (1, 1));
}

#[test]
fn a_flush_is_complete_when_the_cpus_in_guest_mode_have_left() {
    let (machine, puppet) = with_puppet::<4>();
    let (mut vm, mut other) = (Vm::new(machine, FIRST), Vm::new(machine, SECOND));
    let mut elsewhere = Vcpu::new(machine, &vm.space);
    run(machine, 3, &vm.space, &mut elsewhere, |_| ());
    let mut flush = None;
    other.run_with(2, |_, _| {
        vm.run_with(1, |space, entry| {
            assert_eq!(puppet.guest_access(entry, 0), 10);
            flush = Some(remap(machine, 0, space));
            puppet.deliver_all();
            assert!(!flush.as_ref().unwrap().is_done(), "it has not left");
        });
    });
    let flush = flush.unwrap();
    assert!(!flush.is_done(), "it has not answered");
    assert_eq!(puppet.sent.take(), [(0, 1)]);
    assert!(puppet.deliver(1));
    assert!(flush.is_done());
    assert_eq!(vm.run(1), 11);
    let stats = machine.watch().stats(cpu(0));
    assert_eq!(
        (stats.guest_flushes, stats.guest_kicks),
        (1, 1),
        "of the two that have run it"
    );
}

#[test]
fn a_flush_leaves_other_guests_what_they_have_cached() {
    let (machine, _) = with_puppet::<4>();
    let (mut vm, mut other) = (Vm::new(machine, FIRST), Vm::new(machine, SECOND));
    vm.run(1);
    other.run(1);
    vm.remap(0).wait();
    assert_eq!(other.run_with(1, |_, _| ()), TagEntries::Keep);
    assert_eq!(vm.run_with(1, |_, _| ()), TagEntries::Drop);
}

/// What the guest flushed meanwhile, it flushed elsewhere.
#[test]
fn a_virtual_cpu_that_ran_elsewhere_finds_nothing_from_before() {
    let (machine, _) = with_puppet::<4>();
    let mut vm = Vm::new(machine, FIRST);
    vm.run(1);
    assert_eq!(vm.run_with(2, |_, _| ()), TagEntries::Drop);
    assert_eq!(vm.run_with(1, |_, _| ()), TagEntries::Drop);
    assert_eq!(vm.run_with(1, |_, _| ()), TagEntries::Keep);
    vm.vcpu.drop_translations();
    assert_eq!(vm.run_with(1, |_, _| ()), TagEntries::Drop);
    let stats = machine.watch().stats(cpu(1));
    let (kept, dropped) = (stats.tags_kept, stats.tags_dropped);
    assert_eq!((stats.tags_taken, kept, dropped), (1, 1, 2));
}

/// What the guest flushed meanwhile, it flushed under the tag that it had meanwhile.
#[test]
fn a_virtual_cpu_that_ran_under_another_tag_finds_nothing_from_before() {
    let (machine, _) = with_puppet::<4>();
    let mut vm = Vm::new(machine, FIRST);
    let run = |vm: &mut Vm<4>, tags| {
        machine.set_policy(machine.policy().with_tags(tags));
        let mut asid = Asid::UNTAGGED;
        let entries = vm.run_with(1, |_, entry| asid = entry.asid);
        (asid, entries)
    };
    let (usual, _) = run(&mut vm, Tags::All);
    assert_eq!(run(&mut vm, Tags::None), (Asid::UNTAGGED, TagEntries::Drop));
    assert_eq!(run(&mut vm, Tags::All), (usual, TagEntries::Drop));
    assert_eq!(run(&mut vm, Tags::All), (usual, TagEntries::Keep));
}

#[test]
fn virtual_cpus_of_one_guest_have_tags_of_their_own() {
    let (machine, _) = with_puppet::<4>();
    let mut vm = Vm::new(machine, FIRST);
    let mut second = Vcpu::new(machine, &vm.space);
    let (mut tags, mut third) = (Vec::new(), Vcpu::new(machine, &vm.space));
    vm.run_with(1, |_, entry| tags.push(entry.asid));
    for vcpu in [&mut second, &mut third] {
        let entries = run(machine, 1, &vm.space, vcpu, |entry| tags.push(entry.asid));
        assert_eq!(entries, TagEntries::Drop);
    }
    assert_ne!(tags[0], tags[1]);
    assert_eq!(vm.run_with(1, |_, _| ()), TagEntries::Drop, "taken");
}

#[test]
fn what_was_not_entered_has_dropped_nothing() {
    let (machine, puppet) = with_puppet::<4>();
    let mut vm = Vm::new(machine, FIRST);
    assert_eq!(vm.run(1), 10);
    vm.remap(0).wait();
    let Vm { space, vcpu, .. } = &mut vm;
    puppet.as_cpu(1, || {
        // SAFETY: 1 to 3. It is not entered.
        unsafe { space.run(machine, vcpu, |_| GuestExit::NotEntered(())) }
    });
    assert_eq!(vm.run(1), 11);
}

#[test]
fn a_cpu_that_comes_online_again_keeps_nothing_of_guests() {
    let (machine, puppet) = with_puppet::<4>();
    let mut vm = Vm::new(machine, FIRST);
    vm.run(1);
    puppet.as_cpu(1, || machine.offline());
    puppet.as_cpu(1, || machine.online());
    assert_eq!(vm.run_with(1, |_, _| ()), TagEntries::Drop);
}

#[test]
fn guest_tags_of_a_cpu_belong_to_one_engine() {
    let (machine, _) = with_puppet::<1>();
    let second: &Machine<1> = start_engine(machine.platform());
    let online = std::panic::AssertUnwindSafe(|| second.online());
    assert!(std::panic::catch_unwind(online).is_err());
    assert!(second.ready_cpus().is_empty());
}

#[test]
fn frames_come_back_when_the_guest_has_left() {
    let (machine, puppet) = with_puppet::<4>();
    let mut vm = Vm::new(machine, FIRST);
    let mut ticket = None;
    vm.run_with(1, |space, _| {
        let mut batch = FlushBatch::<u64, 4>::new(space);
        puppet.as_cpu(0, || {
            let empty = machine.submit_batch(space, FlushBatch::<u64, 4>::new(space));
            assert!(empty.is_done());
            assert_eq!(puppet.sent.take(), [], "nothing was changed");
            batch.page(0, PageSize::SIZE_4K, 10).unwrap();
            ticket = Some(machine.submit_batch(space, batch));
        });
        assert!(!ticket.as_ref().unwrap().is_done());
    });
    puppet.deliver(1);
    assert!(ticket.as_ref().unwrap().is_done());
    assert_eq!(ticket.unwrap().wait().collect::<Vec<_>>(), [10]);
}

#[test]
fn a_panic_leaves_guest_mode() {
    let (machine, puppet) = with_puppet::<4>();
    let mut vm = Vm::new(machine, FIRST);
    assert!(refuses(|| vm.run_with(1, |_, _| panic!("by the host"))));
    assert!(vm.remap(0).is_done());
    assert_eq!(puppet.sent.take(), []);
    assert_eq!(vm.run(1), 11);
}

#[test]
fn misuse_panics() {
    let (machine, puppet) = with_puppet::<4>();
    let (mut vm, mut other) = (Vm::new(machine, FIRST), Vm::new(machine, SECOND));
    let foreign = Vm::new(with_puppet::<4>().0, FIRST);
    assert!(refuses(|| run(
        machine,
        1,
        &other.space,
        &mut vm.vcpu,
        |_| ()
    )));
    assert!(refuses(|| run(
        machine,
        1,
        &foreign.space,
        &mut vm.vcpu,
        |_| ()
    )));
    assert!(refuses(|| machine.submit_flush(
        &foreign.space,
        FlushRange::WHOLE,
        FreedTables::No
    )));
    vm.run_with(1, |space, _| {
        assert!(refuses(|| other.run(1)), "a guest inside a guest");
        assert!(refuses(|| machine.submit_flush(
            space,
            FlushRange::WHOLE,
            FreedTables::No
        )));
        assert!(refuses(|| machine.offline()));
    });
    puppet.as_cpu(1, || {
        machine.poll_idle(|_| assert!(refuses(|| vm.run(1)), "no interrupt would be sent"));
        let ran = machine.call_many(&mask([1]), &|_| {
            assert!(refuses(|| Vm::new(machine, FIRST).run(1)))
        });
        assert!(ran.contains(cpu(1)));
    });
    puppet.as_cpu(2, || machine.offline());
    assert!(refuses(|| vm.run(2)), "not online");
}

/// Of itself, before the host has flushed anything.
#[test]
fn a_virtual_cpu_may_drop_all_as_often_as_its_guest_asks() {
    let (machine, _) = with_puppet::<2>();
    let mut vm = Vm::new(machine, FIRST);
    vm.run(1);
    for _ in 0..3 {
        assert_eq!(vm.run_with(1, |_, _| ()), TagEntries::Keep);
        vm.vcpu.drop_translations();
        assert_eq!(vm.run_with(1, |_, _| ()), TagEntries::Drop);
    }
}

/// It neither polls nor is halted, and no interrupt of its got lost.
#[test]
fn a_stall_says_that_its_target_is_in_guest_mode() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    let mut vm = Vm::new(machine, FIRST);
    let mut flush = None;
    vm.run_with(1, |_, _| {
        let submit = || machine.submit_flush(FlushScope::Kernel, pages(GLOBAL, 1), FreedTables::No);
        flush = Some(puppet.as_cpu(0, submit));
        for other in [2, 3] {
            puppet.deliver(other);
        }
        for _ in 0..8 {
            puppet.skipped_ns.fetch_add(1000, Relaxed);
            puppet.as_cpu(2, || machine.watch().look());
        }
    });
    flush.unwrap().wait();
    let stall = puppet.stalls.take()[0];
    assert_eq!((stall.target, stall.doing), (cpu(1), Activity::Guest));
    let text = stall.to_string();
    assert!(text.contains(" to flush, which is in guest mode"), "{text}");
}

/// By inbox, ring, or list of posted data.
#[test]
fn who_asks_is_told_where_a_guest_runs_and_whether_something_waits() {
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| ());
    let (machine, puppet) = with_puppet::<4>();
    let (control, target) = (machine.control(), mask([1]));
    let mut vm = Vm::new(machine, FIRST);
    let requests: [&dyn Fn(); 3] = [
        &|| _ = control.kick(&target),
        &|| {
            machine.set_policy(Policy::BEST.with_broadcast_from(1));
            _ = control.kick(&target);
        },
        &|| assert_eq!(machine.post_data(cpu(1), &DATA), Ok(())),
    ];
    for request in requests {
        vm.run_with(1, |_, _| {
            assert_eq!(
                [1, 0, 9].map(|number| control.is_in_guest(cpu(number))),
                [true, false, false]
            );
            assert!(!control.has_work());
            puppet.as_cpu(0, request);
            assert!(control.has_work());
        });
        assert!(!control.is_in_guest(cpu(1)));
        puppet.as_cpu(1, || {
            assert!(control.has_work());
            machine.handle_ipi();
            assert!(!control.has_work());
        });
    }
}
