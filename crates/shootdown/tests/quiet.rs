//! Behaviour of quiet CPUs. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use puppet::{
    Count, GLOBAL, KERNEL_ROOT, Machine, Moment, Puppet, cpu, mask, pages, tables, with_puppet,
};
use shootdown::calls::{CallData, PostRefused, Wait};
use shootdown::guest::{GuestExit, GuestSpace, Vcpu};
use shootdown::*;

/// A page of the kernel.
const PAGE_OF_KERNEL: usize = GLOBAL + 1;
const PAGE: FlushRange = FlushRange::pages(PAGE_OF_KERNEL * puppet::PAGE, 1, PageSize::SIZE_4K);

fn enter_quiet(machine: &Machine<4>) {
    // SAFETY: 1. and 2. the puppet uses nothing of the kernel meanwhile, but where a test shows what it would find.
    unsafe { machine.control().enter_quiet() };
}

fn leave_quiet(machine: &Machine<4>) -> bool {
    machine.control().leave_quiet()
}

/// CPU 3 is quiet, and has cached a page of the kernel.
fn quiet_cpu() -> (&'static Machine<4>, &'static Puppet) {
    let (machine, puppet) = with_puppet::<4>();
    puppet.map(PAGE_OF_KERNEL, 1);
    puppet.access(3, PAGE_OF_KERNEL);
    puppet.as_cpu(3, || enter_quiet(machine));
    puppet.flushes.take();
    (machine, puppet)
}

fn remap(machine: &Machine<4>, puppet: &Puppet, frame: u64, freed: FreedTables) {
    puppet.map(PAGE_OF_KERNEL, frame);
    machine.flush(FlushScope::Kernel, pages(PAGE_OF_KERNEL, 1), freed);
}

#[test]
fn flushes_of_the_kernel_pass_it_by_and_it_drops_all_when_it_comes_back() {
    let (machine, puppet) = quiet_cpu();
    for frame in [2, 3] {
        remap(machine, puppet, frame, FreedTables::No);
    }
    assert!(!puppet.is_interrupted(3));
    assert_eq!(machine.watch().stats(cpu(0)).quiet_skipped, 2);
    assert_eq!(puppet.access(3, PAGE_OF_KERNEL), 1);
    assert!(puppet.as_cpu(3, || leave_quiet(machine)));
    assert_eq!(puppet.access(3, PAGE_OF_KERNEL), 3);
    let of_it =
        |flushes: Vec<(u32, LocalFlush)>| flushes.into_iter().filter(|(cpu, _)| *cpu == 3).count();
    assert_eq!(of_it(puppet.flushes.take()), 1);
    assert!(
        !puppet.as_cpu(3, || leave_quiet(machine)),
        "it is in the kernel"
    );
    // Nothing has passed it by: also not what it served itself, in the kernel or in user mode.
    remap(machine, puppet, 4, FreedTables::No);
    puppet.as_cpu(3, || enter_quiet(machine));
    remap(machine, puppet, 5, FreedTables::Yes);
    assert_eq!(of_it(puppet.flushes.take()), 2);
    puppet.as_cpu(3, || leave_quiet(machine));
    assert!(puppet.flushes.take().is_empty());
    assert_eq!(puppet.access(3, PAGE_OF_KERNEL), 5);
}

/// Where it has served a flush and missed the one before, it drops all.
#[test]
fn a_flush_that_it_serves_hides_none_that_it_has_missed() {
    let (machine, puppet) = quiet_cpu();
    remap(machine, puppet, 2, FreedTables::No);
    machine.flush(
        FlushScope::Kernel,
        pages(PAGE_OF_KERNEL + 1, 1),
        FreedTables::Yes,
    );
    assert_eq!(puppet.access(3, PAGE_OF_KERNEL), 1);
    puppet.as_cpu(3, || leave_quiet(machine));
    assert_eq!(puppet.access(3, PAGE_OF_KERNEL), 2);
}

/// Each alone: what interrupts it once need not do so again.
#[test]
fn all_that_concerns_more_than_the_kernel_interrupts_it() {
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| ());
    type Act = fn(&'static Machine<4>, &AddressSpace<Cpus<4>>);
    fn kernel(machine: &'static Machine<4>, ranges: FlushRanges, freed: FreedTables) {
        std::mem::forget(machine.submit_flush(FlushScope::Kernel, ranges, freed));
    }
    let acts: [(bool, Act); 10] = [
        (false, |machine, _| {
            kernel(machine, PAGE.into(), FreedTables::No)
        }),
        (false, |machine, _| {
            kernel(machine, FlushRanges::WHOLE, FreedTables::No)
        }),
        (false, |machine, _| {
            _ = machine.control().kick(&mask([1, 3]))
        }),
        (false, |machine, _| {
            _ = machine.control().serialise(&mask([1, 3]))
        }),
        (true, |machine, _| {
            kernel(machine, PAGE.into(), FreedTables::Yes)
        }),
        (true, |machine, _| {
            kernel(machine, FlushRanges::from(PAGE).strict(), FreedTables::No)
        }),
        (true, |machine, space| {
            std::mem::forget(machine.submit_flush(space, pages(0, 1), FreedTables::No));
        }),
        (true, |machine, space| _ = machine.control().barrier(space)),
        (true, |machine, _| {
            _ = machine.submit(&mask([3]), |_| (), Wait::None)
        }),
        (true, |machine, _| {
            assert_eq!(machine.post_data(cpu(3), &DATA), Ok(()))
        }),
    ];
    for (at, (interrupts, act)) in acts.into_iter().enumerate() {
        let (machine, puppet) = with_puppet::<4>();
        let space = AddressSpace::new(machine, tables(1));
        puppet.as_cpu(3, || machine.switch_to(None, &space));
        puppet.as_cpu(3, || enter_quiet(machine));
        act(machine, &space);
        assert_eq!(puppet.is_interrupted(3), interrupts, "{at}");
        puppet.as_cpu(3, || {
            assert!(leave_quiet(machine));
            machine.handle_ipi();
            machine.switch_away(&space, KERNEL_ROOT);
        });
    }
}

/// A virtual CPU that owns its core: a flush of its guest has it leave, and a kick does not.
#[test]
fn a_flush_of_its_guest_interrupts_it() {
    let (machine, puppet) = with_puppet::<4>();
    let guest = GuestSpace::new(machine, tables(2));
    let mut vcpu = Vcpu::new(machine, &guest);
    let enter = |_| {
        enter_quiet(machine);
        puppet.as_cpu(0, || {
            _ = machine.control().kick(&mask([3]));
            assert!(!puppet.is_interrupted(3));
            let flush = machine.submit_flush(&guest, pages(0, 1), FreedTables::No);
            assert!(puppet.is_interrupted(3) && !flush.is_done());
            std::mem::forget(flush);
        });
        assert!(leave_quiet(machine));
        GuestExit::Ran(())
    };
    // SAFETY: 1. to 3. it enters nothing.
    puppet.as_cpu(3, || unsafe { guest.run(machine, &mut vcpu, enter) });
    assert!(puppet.deliver(3));
}

#[test]
fn text_that_was_changed_is_fetched_when_it_comes_back() {
    let (machine, puppet) = quiet_cpu();
    puppet.as_cpu(0, || machine.control().serialise(&mask([1, 3])).wait());
    assert_eq!(puppet.synchronised.take(), [0, 1]);
    puppet.as_cpu(3, || leave_quiet(machine));
    assert_eq!(puppet.synchronised.take(), [3]);
    assert!(puppet.flushes.take().is_empty());
}

#[test]
fn deferrable_data_wait_for_it_and_others_take_them_along() {
    static RAN: Count = Count::new();
    type Data = CallData<fn(CpuId)>;
    static FIRST: Data = CallData::new(|_| RAN.add());
    static SECOND: Data = CallData::new(|_| RAN.add());
    let (machine, puppet) = quiet_cpu();
    let post = |data| machine.control().post_deferrable(cpu(3), data);
    assert_eq!(post(&FIRST), Ok(()));
    assert_eq!(post(&FIRST), Err(PostRefused::Busy));
    assert!(!puppet.is_interrupted(3));
    puppet.as_cpu(3, || leave_quiet(machine));
    assert!(puppet.is_interrupted(3), "it interrupts itself");
    puppet.deliver_all();
    assert_eq!(RAN.take(), 1);
    // In the kernel it is interrupted.
    assert_eq!(post(&FIRST), Ok(()));
    assert!(puppet.deliver(3));
    puppet.as_cpu(3, || enter_quiet(machine));
    assert_eq!(post(&FIRST), Ok(()));
    assert!(!puppet.is_interrupted(3));
    assert_eq!(machine.post_data(cpu(3), &SECOND), Ok(()));
    assert!(puppet.deliver(3));
    assert_eq!(RAN.take(), 3);
}

/// One that comes in an NMI finds the CPU on its way in, and has all dropped before it uses anything.
#[test]
fn an_nmi_on_the_way_in_makes_good_itself() {
    static HAS_COME: AtomicBool = AtomicBool::new(false);
    let (machine, puppet) = quiet_cpu();
    remap(machine, puppet, 2, FreedTables::No);
    machine.control().serialise(&mask([3])).wait();
    *puppet.unwinds_at.lock().unwrap() = Some(|moment| {
        if matches!(moment, Moment::Flush(LocalFlush::All)) && !HAS_COME.swap(true, Relaxed) {
            NMI.with(|nmi| nmi.take().expect("set below")());
        }
        false
    });
    thread_local! {
        static NMI: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
    }
    NMI.set(Some(Box::new(move || {
        assert!(!leave_quiet(machine), "the CPU is on its way in");
        assert_eq!(puppet.access(3, PAGE_OF_KERNEL), 2);
        assert_eq!(puppet.synchronised.take().last(), Some(&3));
    })));
    assert!(puppet.as_cpu(3, || leave_quiet(machine)));
    assert!(HAS_COME.load(Relaxed));
}

/// A CPU that goes offline waits for no quiet one.
#[test]
fn a_cpu_goes_offline_without_it() {
    let (machine, puppet) = quiet_cpu();
    puppet.deafen(3);
    puppet.as_cpu(1, || machine.offline());
    assert!(!puppet.is_interrupted(3));
    assert_eq!(machine.ready_cpus(), mask([0, 2, 3]));
}
