//! Where the engine meets a host that does what no machine of ours does: roots of its own, panics, a second engine. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::cell::Cell;
use std::mem::{ManuallyDrop, forget};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::{Cpus, guest::*, host_roots::HostRoots, tags::*, watch::TraceEvent, windows::*, *};

/// The host loads a root itself, untagged, as its trampoline does.
fn host_loads(puppet: &'static Puppet, number: u32, root: u64) {
    puppet.as_cpu(number, || {
        let irqs_were_off = Seat::<2>(puppet).irq_save();
        // SAFETY: 1. a puppet's roots are numbers.
        unsafe { Seat::<2>(puppet).load_tagged_root(root, Asid::UNTAGGED, TagEntries::Drop) };
        // SAFETY: 1. saved above.
        unsafe { Seat::<2>(puppet).irq_restore(irqs_were_off) };
    });
}

/// Runs this test again in a process that `body` ends: what it said on stderr. In that process it does not return.
fn ends_the_process(test: &str, body: impl FnOnce()) -> String {
    ends_in_case(test, "", |_| body())
}

/// The same for a case of several.
fn ends_in_case(test: &str, case: &str, body: impl FnOnce(&str)) -> String {
    const CHILD: &str = "SHOOTDOWN_ENDS_THE_PROCESS";
    if let Ok(case) = std::env::var(CHILD) {
        body(&case);
        std::process::exit(0);
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]);
    let output = child.env(CHILD, case).output().unwrap();
    assert!(!output.status.success(), "it ended as if nothing had been");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(!stdout.contains("was freed"), "{stdout}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A frame or a table that says when it is given back.
struct Freed(&'static str);

impl Drop for Freed {
    fn drop(&mut self) {
        println!("{} was freed", self.0);
    }
}

/// CPU 1 starts on the trampoline's root, comes online and goes on there; runs in `space`, and leaves it. Returns what page 3 is, which only
/// the trampoline maps.
fn life(machine: &'static Machine<2>, space: &AddressSpace<Cpus<2>>) -> Option<u64> {
    let puppet = machine.platform().0;
    const TRAMPOLINE: u64 = 50;
    puppet.map_in(TRAMPOLINE, 3, 3);
    host_loads(puppet, 1, TRAMPOLINE);
    puppet.as_cpu(1, || machine.online());
    assert_eq!(puppet.translate(1, 3), Some(3));
    puppet.as_cpu(1, || machine.switch_to(None, space));
    puppet.as_cpu(1, || machine.switch_away(space, KERNEL_ROOT));
    puppet.translate(1, 3)
}

#[test]
fn a_cpu_that_comes_back_keeps_nothing_of_the_root_that_it_started_on() {
    let machine = tagged::<2>(8);
    let puppet = machine.platform().0;
    machine.online();
    let space = AddressSpace::new(machine, tables(1));
    assert_eq!(life(machine, &space), None, "its first life");
    puppet.as_cpu(1, || {
        puppet.set_irqs_off(true);
        machine.offline();
        puppet.set_irqs_off(false);
    });
    assert_eq!(life(machine, &space), None, "its second life");
}

#[test]
fn one_kernel_root_uses_nothing_of_another() {
    let machine = online(tagged::<2>(8));
    let puppet = machine.platform().0;
    let space = AddressSpace::new(machine, tables(1));
    let other = kernel_tables(98);
    puppet.map_in(other.as_u64(), 3, 3);
    for root in [other, KERNEL_ROOT, other] {
        machine.switch_to(None, &space);
        machine.switch_away(&space, root);
        assert_eq!(puppet.root_of(0), root.as_u64());
        let maps = root == other;
        assert_eq!(puppet.translate(0, 3), maps.then_some(3), "{root:?}");
    }
}

/// Firmware, sleep: the host's root leaves nothing in the kernel's, and a flush that comes meanwhile is none of a space that was left.
#[test]
fn a_foreign_root_leaves_nothing_behind() {
    for tags in [0, 8] {
        let machine = online(tagged::<2>(tags));
        let puppet = machine.platform().0;
        puppet.has_no_back_end.store(true, Relaxed);
        let space = Space::new(machine, 1);
        puppet.map_in(1, 0, 10);
        puppet.map_in(98, 3, 3);
        machine.switch_to(None, &space);
        assert_eq!(puppet.access(0, 0), 10);
        machine.switch_away(&space, KERNEL_ROOT);
        machine.host_roots().begin_foreign_root();
        host_loads(puppet, 0, 98);
        assert_eq!(puppet.translate(0, 3), Some(3));
        assert!(!machine.user_memory().access_ok(space.id()));
        puppet.map_in(1, 0, 11);
        puppet.as_cpu(1, || machine.flush(&space, pages(0, 1), FreedTables::No));
        assert_eq!(puppet.sent.take(), [], "the CPU runs in no space");
        machine.host_roots().end_foreign_root(KERNEL_ROOT);
        let last = puppet.loads.take().pop();
        let load = (0, KERNEL_ROOT.as_u64(), Asid::UNTAGGED, TagEntries::Drop);
        assert_eq!(last, Some(load));
        assert_eq!(puppet.translate(0, 3), None, "the kernel has no such page");
        machine.switch_to(None, &space);
        assert_eq!(puppet.access(0, 0), 11, "the flush is complete");
    }
}

/// Kernel pages are flushed on such a CPU too, whose other tags must not keep them.
#[test]
fn a_kernel_flush_reaches_a_cpu_with_a_foreign_root() {
    let machine = online(tagged::<2>(8));
    let puppet = machine.platform().0;
    machine.host_roots().begin_foreign_root();
    host_loads(puppet, 0, 98);
    puppet.map(GLOBAL, 20);
    assert_eq!(puppet.access(0, GLOBAL), 20);
    puppet.map(GLOBAL, 21);
    puppet.as_cpu(1, || {
        machine.flush(FlushScope::Kernel, pages(GLOBAL, 1), FreedTables::No)
    });
    assert_eq!(puppet.access(0, GLOBAL), 21);
    machine.host_roots().end_foreign_root(KERNEL_ROOT);
}

#[test]
fn a_foreign_root_is_begun_without_a_space_and_ended_once() {
    let machine = online(tagged::<2>(8));
    let space = Space::new(machine, 1);
    assert!(refuses(|| machine
        .host_roots()
        .end_foreign_root(KERNEL_ROOT)));
    machine.switch_to(None, &space);
    assert!(refuses(|| machine.host_roots().begin_foreign_root()));
    machine.user_memory().enter_lazy(&space, KERNEL_ROOT);
    assert!(refuses(|| machine.host_roots().begin_foreign_root()));
    machine.switch_away(&space, KERNEL_ROOT);
    machine.host_roots().begin_foreign_root();
    let misuses: [&dyn Fn(); 4] = [
        &|| machine.host_roots().begin_foreign_root(),
        &|| machine.switch_to(None, &space),
        &|| assert!(machine.host_roots().begin_switch(None, Some(&space))),
        &|| machine.offline(),
    ];
    for misuse in misuses {
        assert!(refuses(misuse));
    }
    machine.host_roots().end_foreign_root(KERNEL_ROOT);
    machine.switch_to(None, &space);
}

/// A request for a space that was left may still be on its way.
#[test]
fn a_late_flush_of_a_space_is_answered_on_a_foreign_root() {
    let (machine, puppet) = with_puppet::<2>();
    puppet.has_no_back_end.store(true, Relaxed);
    let space = Space::new(machine, 1);
    machine.switch_to(None, &space);
    puppet.deafen(0);
    let ticket = puppet.as_cpu(1, || {
        machine.submit_flush(&space, pages(0, 1), FreedTables::No)
    });
    machine.switch_away(&space, KERNEL_ROOT);
    machine.host_roots().begin_foreign_root();
    puppet.hear_again(0);
    puppet.deliver(0);
    assert!(ticket.is_done());
    puppet.as_cpu(1, || ticket.wait());
    machine.host_roots().end_foreign_root(KERNEL_ROOT);
}

#[test]
fn a_cpu_that_let_go_loads_the_root_that_it_leaves_for() {
    let (machine, puppet) = with_puppet::<2>();
    let space = AddressSpace::new(machine, tables(1));
    for (leaves_for, loads) in [(KERNEL_ROOT, 1), (kernel_tables(98), 0)] {
        machine.switch_to(None, &space);
        machine.user_memory().enter_lazy(&space, kernel_tables(98));
        puppet.as_cpu(1, || machine.flush(&space, pages(0, 1), FreedTables::Yes));
        assert_eq!(puppet.root_of(0), 98);
        puppet.loads.take();
        machine.switch_away(&space, leaves_for);
        assert_eq!(puppet.root_of(0), leaves_for.as_u64());
        assert_eq!(puppet.loads.take().len(), loads);
    }
}

#[test]
fn an_nmi_before_attach_may_not_use_user_memory() {
    let puppet: &'static Puppet = powered_off::<2>().platform();
    let machine: &'static Machine<2> = Box::leak(Box::new(Shootdown::new(Seat(puppet))));
    machine.attach(cpu(0), Box::leak(Box::new([CpuMemory::new()])));
    let space = AddressSpace::new(machine, tables(1));
    for number in [0, 1] {
        let may = puppet.as_cpu(number, || machine.user_memory().access_ok(space.id()));
        assert!(!may);
    }
    // One that the engine has no room for.
    let small: Machine<1> = Shootdown::new(Seat(puppet));
    assert!(!puppet.as_cpu(1, || small.user_memory().access_ok(space.id())));
    assert!(!puppet.as_cpu(1, || small.poll()));
}

/// Early boot code unmaps too. Once any CPU is online, one without memory cannot ask it.
#[test]
fn a_flush_before_the_engine_has_memory_is_local() {
    let puppet: &'static Puppet = powered_off::<2>().platform();
    let machine: &'static Machine<2> = Box::leak(Box::new(Shootdown::new(Seat(puppet))));
    let flush = || machine.flush(FlushScope::Kernel, pages(GLOBAL, 1), FreedTables::Yes);
    puppet.map(GLOBAL, 20);
    assert_eq!(puppet.access(0, GLOBAL), 20);
    puppet.map(GLOBAL, 21);
    flush();
    assert_eq!(puppet.access(0, GLOBAL), 21);
    assert_eq!(puppet.flushes.take(), [(0, LocalFlush::All)]);
    machine.attach(cpu(1), Box::leak(Box::new([CpuMemory::new()])));
    puppet.as_cpu(1, || machine.online());
    assert!(refuses(flush));
}

/// Cannot be flushed by an engine that knows nothing of its CPUs' roots.
#[test]
fn windows_belong_to_one_engine() {
    let machine = powered_off::<2>();
    let puppet: &'static Puppet = machine.platform();
    let other: &Machine<2> = start_engine(puppet);
    machine.online();
    let space = AddressSpace::new(machine, tables(1));
    let windows = WindowRoot::new(machine, &space, cpu(0), tables(10));
    machine.windows().switch_to(None, &space, &windows);
    assert!(refuses(|| drop(other.windows().pin(&windows))));
    assert!(refuses(|| other.windows().refresh(&space, &windows)));
    assert!(machine.windows().pin(&windows).unwrap().is_loaded());
    // By value: a refusal gives the table back to nobody.
    assert!(refuses(|| other.windows().retire(&space, windows)));
    assert_eq!(puppet.root_of(0), 10);
    forget(space);
}

#[test]
fn windows_that_nobody_loads_are_not_retired_by_another_engine() {
    let machine = powered_off::<2>();
    let other: &Machine<2> = start_engine(machine.platform());
    machine.online();
    let space = AddressSpace::new(machine, tables(1));
    let windows = WindowRoot::new(machine, &space, cpu(0), tables(10));
    // SAFETY: 1. no CPU has the space loaded.
    let retire = || unsafe { other.windows().retire_elsewhere(&space, windows) };
    assert!(refuses(retire));
}

/// Its owner's other fields, the table among them, are not dropped either.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn loaded_windows_are_not_dropped() {
    let stderr = ends_the_process("loaded_windows_are_not_dropped", || {
        let machine = online(tagged::<2>(8));
        let space = ManuallyDrop::new(AddressSpace::new(machine, tables(1)));
        let windows = WindowRoot::new(machine, &space, cpu(0), tables(10));
        machine.windows().switch_to(None, &space, &windows);
        // Its CPU has left it, but is a resident still, and nobody else may say whether it comes back.
        machine.switch_away(&space, KERNEL_ROOT);
        drop((windows, Freed("the table")));
    });
    assert!(stderr.contains("window root dropped"), "{stderr}");
}

#[test]
fn windows_that_were_never_loaded_are_dropped() {
    let machine = online(tagged::<2>(8));
    let space = AddressSpace::new(machine, tables(1));
    drop(WindowRoot::new(machine, &space, cpu(0), tables(10)));
}

/// A panic in a wait, here the engine's own at a mistake of the host's, leaks what the ticket holds.
#[test]
fn a_wait_that_unwinds_gives_nothing_back() {
    for is_dropped in [false, true] {
        let (machine, puppet) = with_puppet::<3>();
        let a = ManuallyDrop::new(AddressSpace::new(machine, tables(1)));
        let b = ManuallyDrop::new(AddressSpace::new(machine, tables(2)));
        for number in [0, 1] {
            puppet.as_cpu(number, || machine.switch_to(None, &a));
        }
        puppet.deafen(1);
        let frame = Rc::new(());
        let flush = machine.submit_flush(&*a, pages(0, 1), FreedTables::No);
        let ticket = flush.hold(frame.clone());
        // It waits between the halves of a switch, and CPU 2 asks for a flush.
        puppet.set_irqs_off(true);
        assert!(machine.host_roots().begin_switch(Some(&a), Some(&b)));
        let other = puppet.as_cpu(2, || {
            machine.submit_flush(&*a, pages(1, 1), FreedTables::No)
        });
        let end = || match is_dropped {
            true => drop(ticket),
            false => drop(ticket.wait()),
        };
        assert!(refuses(end));
        assert_eq!(Rc::strong_count(&frame), 2, "CPU 1 has not flushed");
        forget((other, frame));
    }
}

/// A collection that frees what it has when it is dropped.
struct Owner<'a>(&'a Cell<bool>);

impl<T> Extend<T> for Owner<'_> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, frames: I) {
        frames.into_iter().for_each(forget);
    }
}

impl Drop for Owner<'_> {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// The same in the submission at the end of a guard: what was unlinked is leaked.
#[test]
fn a_guard_whose_submission_unwinds_gives_nothing_back() {
    let (machine, puppet) = with_puppet::<2>();
    let space = Space::new(machine, 1);
    puppet.as_cpu(1, || machine.switch_to(None, &space));
    let (frame, is_freed) = (Rc::new(()), Cell::new(false));
    let free = |_: Owner<'_>| is_freed.set(true);
    let mut tables = machine.guard(&space, (), Owner(&is_freed), free);
    tables.unlinked_page(0, PageSize::SIZE_4K, frame.clone());
    puppet.at_next_flush_remote(|| panic!("a method of the platform unwinds"));
    assert!(refuses(|| drop(tables)));
    assert!(!is_freed.get());
    assert_eq!(Rc::strong_count(&frame), 2, "CPU 1 has not flushed");
    puppet.set_irqs_off(false);
}

/// Other CPUs run a function that lies on the caller's stack: a call does not unwind from where it is published to where it is done.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_call_whose_wait_unwinds_ends_the_process() {
    let stderr = ends_the_process("a_call_whose_wait_unwinds_ends_the_process", || {
        let (machine, puppet) = with_puppet::<2>();
        puppet.at_next_relax(|| panic!("a method of the platform unwinds"));
        let lent = Freed("what the function uses");
        let run = |_: CpuId| assert_eq!(lent.0.len(), 22);
        machine.call_one(cpu(1), &run).unwrap();
    });
    assert!(stderr.contains("has lent its function"), "{stderr}");
}

/// The same before the wait: its interrupt is refused, and the turn that follows unwinds.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_call_whose_submission_unwinds_ends_the_process() {
    let stderr = ends_the_process("a_call_whose_submission_unwinds_ends_the_process", || {
        let (machine, puppet) = with_puppet::<2>();
        puppet.refuse.store(1, Relaxed);
        puppet.at_next_relax(|| panic!("a method of the platform unwinds"));
        let lent = Freed("what the function uses");
        let run = |_: CpuId| assert_eq!(lent.0.len(), 22);
        let _ = machine.call_many_with(&mask([1]), &run, || ());
    });
    assert!(stderr.contains("has lent its function"), "{stderr}");
}

/// A platform that unwinds in the middle of a load, or of a flush that was acknowledged, leaves a CPU of which nobody knows what it still uses.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_load_or_a_flush_that_unwinds_ends_the_process() {
    let play = |case: &str| {
        let (machine, puppet) = with_puppet::<2>();
        puppet.has_no_back_end.store(true, Relaxed);
        let space = ManuallyDrop::new(Space::new(machine, 1));
        puppet.as_cpu(1, || machine.switch_to(None, &space));
        *puppet.unwinds_at.lock().unwrap() = Some(match case {
            "load" => |moment| matches!(moment, Moment::Load(_)),
            "flush" => |moment| matches!(moment, Moment::Flush(_)),
            _ => |moment| matches!(moment, Moment::Event(TraceEvent::FlushStarted { .. })),
        });
        // Where the host catches it, the CPU goes on, and the frame is free.
        let _ = catch_unwind(AssertUnwindSafe(|| match case {
            "load" => puppet.as_cpu(1, || machine.switch_away(&space, KERNEL_ROOT)),
            _ => {
                let flush = machine.submit_flush(&**space, pages(0, 1), FreedTables::No);
                drop(flush.hold(Freed("a frame")));
            }
        }));
        std::process::exit(0);
    };
    for (case, why) in [
        ("load", "a load of a root unwound"),
        ("flush", "a flush unwound"),
        ("trace", "a responder unwound"),
    ] {
        let test = "a_load_or_a_flush_that_unwinds_ends_the_process";
        let stderr = ends_in_case(test, case, play);
        assert!(stderr.contains(why), "{case}: {stderr}");
    }
}

/// A collection of one.
struct One(Option<ManuallyDrop<Rc<()>>>);

impl Extend<ManuallyDrop<Rc<()>>> for One {
    fn extend<I: IntoIterator<Item = ManuallyDrop<Rc<()>>>>(&mut self, frames: I) {
        for frame in frames {
            assert!(self.0.is_none(), "the collection is full");
            self.0 = Some(frame);
        }
    }
}

/// One that is full, or takes only what it likes: what it drops is leaked, because another CPU still uses it.
#[test]
fn a_collection_that_panics_gives_nothing_back() {
    let (machine, puppet) = with_puppet::<2>();
    let space = Space::new(machine, 1);
    puppet.as_cpu(1, || machine.switch_to(None, &space));
    let (frame, freed) = (Rc::new(()), Cell::new(0));
    let free = |one: One| freed.set(one.0.map(ManuallyDrop::into_inner).into_iter().count());
    let mut tables = machine.guard(&space, (), One(None), free);
    tables.unlinked_page(0, PageSize::SIZE_4K, frame.clone());
    let extend = || tables.unlinked_page(PAGE, PageSize::SIZE_4K, frame.clone());
    assert!(refuses(extend));
    assert_eq!(Rc::strong_count(&frame), 3, "nobody has flushed");
    drop(tables);
    let both = LocalFlush::Pages(pages(0, 2), FreedTables::No);
    assert!(puppet.flushes.take().contains(&(1, both)));
    assert_eq!((freed.get(), Rc::strong_count(&frame)), (1, 2));
}

/// A guest that ran may have flushed here what it has cached elsewhere, also if the host's function unwinds afterwards.
#[test]
fn a_run_that_unwinds_counts() {
    let (machine, puppet) = with_puppet::<2>();
    let space = GuestSpace::new(machine, tables(1));
    let mut vcpu = Vcpu::new(machine, &space);
    let mut run = |number: u32, unwinds: bool| {
        let mut entries = None;
        let ran = catch_unwind(AssertUnwindSafe(|| {
            puppet.as_cpu(number, || {
                let run = |entry: GuestEntry| {
                    puppet.enter_guest(entry);
                    entries = Some(entry.entries);
                    assert!(!unwinds, "behind the exit");
                    GuestExit::Ran(())
                };
                // SAFETY: 1. to 3. of a puppet.
                unsafe { space.run(machine, &mut vcpu, run) }
            });
        }));
        assert_eq!(ran.is_err(), unwinds);
        entries.unwrap()
    };
    assert_eq!(
        [0, 0].map(|number| run(number, false)),
        [TagEntries::Drop, TagEntries::Keep]
    );
    run(1, true);
    assert_eq!(run(0, false), TagEntries::Drop, "it has been elsewhere");
    assert_eq!(run(0, false), TagEntries::Keep);
    run(0, true);
    assert_eq!(
        run(0, false),
        TagEntries::Drop,
        "it may have flushed anything"
    );
}

/// A batch is flushed for the space whose frames it has, or not at all.
#[test]
fn a_batch_is_submitted_for_its_own_space() {
    let (machine, puppet) = with_puppet::<2>();
    let [a, b] = [1, 2].map(|root| Space::new(machine, root));
    let guest = GuestSpace::new(machine, tables(3));
    let frame = Rc::new(());
    let with = |mut batch: FlushBatch<Rc<()>, 1>| {
        batch.page(0, PageSize::SIZE_4K, frame.clone()).unwrap();
        batch
    };
    assert!(refuses(
        || machine.submit_batch(&b, with(FlushBatch::new(&a)))
    ));
    assert!(refuses(
        || machine.submit_batch(&b, with(FlushBatch::kernel()))
    ));
    assert!(refuses(
        || machine.submit_batch(FlushScope::Kernel, with(FlushBatch::new(&a)))
    ));
    assert!(refuses(
        || machine.submit_batch(&guest, with(FlushBatch::new(&a)))
    ));
    assert_eq!(Rc::strong_count(&frame), 5, "leaked");
    assert_eq!(puppet.sent.take(), []);
    drop(machine.submit_batch(&a, with(FlushBatch::new(&a))));
    drop(machine.submit_batch(FlushScope::Kernel, with(FlushBatch::kernel())));
    drop(machine.submit_batch(&guest, with(FlushBatch::new(&guest))));
    assert_eq!(Rc::strong_count(&frame), 5);
    forget(frame);
}

#[test]
fn a_guard_of_a_guest_frees_when_the_guest_has_left() {
    let (machine, puppet) = with_puppet::<2>();
    let space = GuestSpace::new(machine, tables(1));
    let mut vcpu = Vcpu::new(machine, &space);
    let free = |frames: Vec<_>| {
        assert_eq!(frames, [ManuallyDrop::new(7)]);
        // CPU 1 has answered the kick outside of the guest.
        assert!(!puppet.is_interrupted(1));
    };
    let is_unlocked = Rc::new(());
    let lock = is_unlocked.clone();
    let unlink = |_: GuestEntry| {
        puppet.as_cpu(0, || {
            let mut tables = machine.guard(&space, lock, Vec::new(), free);
            tables.unlinked_page(0, PageSize::SIZE_4K, 7u64);
            // Held beyond the run: the wait is for this CPU.
            ManuallyDrop::new(tables)
        })
    };
    let tables = puppet.as_cpu(1, || {
        // SAFETY: 1. to 3. of a puppet.
        unsafe { space.run(machine, &mut vcpu, |entry| GuestExit::Ran(unlink(entry))) }
    });
    assert_eq!(Rc::strong_count(&is_unlocked), 2);
    drop(ManuallyDrop::into_inner(tables));
    assert_eq!(Rc::strong_count(&is_unlocked), 1);
    assert_eq!(machine.watch().total_stats().guest_flushes, 1);
    let nothing = machine.guard(&space, (), (), |()| ());
    drop(nothing);
    assert_eq!(
        machine.watch().total_stats().guest_flushes,
        1,
        "nothing was changed"
    );
}

/// Break before make, and page sizes that must not meet: CPU 1 has let go before the new entry is written.
#[test]
fn a_strict_flush_is_acknowledged_when_it_is_done() {
    for policy in [Policy::BEST, Policy::PUBLISHED, Policy::BEFORE] {
        let (machine, puppet) = with_puppet::<2>();
        puppet.has_no_back_end.store(true, Relaxed);
        machine.set_policy(policy);
        let space = Space::new(machine, 1);
        puppet.as_cpu(1, || machine.switch_to(None, &space));
        puppet.trace.take();
        let large = FlushRange::pages(0, 1, PageSize::SIZE_2M);
        machine.flush(&space, FlushRanges::from(large).strict(), FreedTables::No);
        let flush = LocalFlush::Pages(large, FreedTables::No);
        assert_eq!(puppet.flushes.take(), [(1, flush)]);
        let trace = puppet.trace.take();
        let at = |wanted: fn(&TraceEvent) -> Option<CpuId>| {
            let position = trace.iter().position(|event| wanted(event) == Some(cpu(1)));
            position.expect("it happened")
        };
        let answered = at(|event| match event {
            TraceEvent::Acknowledged { cpu, .. } => Some(*cpu),
            _ => None,
        });
        let flushed = at(|event| match event {
            TraceEvent::FlushFinished { cpu, .. } => Some(*cpu),
            _ => None,
        });
        assert!(flushed < answered, "{policy:?}");
    }
}

/// It holds what must not be held beside the new entry, though it uses nothing; and it need not let go of the space.
#[test]
fn a_strict_flush_reaches_lazy_and_deferring_cpus() {
    let (machine, puppet) = with_puppet::<3>();
    puppet.has_no_back_end.store(true, Relaxed);
    machine.set_policy(Policy::BEST.with_deferral(true));
    let space = Space::new(machine, 1);
    for number in [1, 2] {
        puppet.as_cpu(number, || machine.switch_to(None, &space));
    }
    puppet.as_cpu(1, || machine.user_memory().enter_lazy(&space, KERNEL_ROOT));
    assert!(puppet.as_cpu(2, || machine.user_memory().defer_flushes(&space)));
    puppet.flushes.take();
    machine.flush(&space, pages(0, 1), FreedTables::No);
    assert_eq!(puppet.flushes.take(), []);
    let mut ranges = FlushRanges::from(pages(0, 1)).strict();
    ranges.add(pages(9, 1));
    assert!(ranges.is_strict());
    machine.flush(&space, ranges, FreedTables::No);
    let mut flushed: Vec<u32> = puppet.flushes.take().iter().map(|(cpu, _)| *cpu).collect();
    flushed.dedup();
    assert_eq!(flushed, [1, 2]);
    assert_eq!([1, 2].map(|number| puppet.root_of(number)), [1, 1]);
}

/// What is merged into a batch or a guard keeps its strictness, in the request too.
#[test]
fn strictness_travels() {
    let (machine, puppet) = with_puppet::<2>();
    let space = Space::new(machine, 1);
    puppet.as_cpu(1, || machine.switch_to(None, &space));
    let strict = || FlushRanges::from(pages(3, 1)).strict();
    let is_last_strict = || {
        let (request, _) = puppet.asked.take().pop().unwrap();
        format!("{request:?}").contains("strict")
    };
    let mut batch = FlushBatch::<(), 1>::new(&space);
    batch.range(pages(1, 1));
    assert!(!batch.ranges().is_strict());
    batch.range(strict());
    batch.range(FlushRange::WHOLE);
    assert!(batch.ranges().is_strict() && batch.ranges().is_whole());
    drop(machine.submit_batch(&space, batch));
    assert!(is_last_strict());
    for is_strict in [false, true] {
        let mut tables = machine.guard(&space, (), (), |()| ());
        tables.changed(pages(1, 1));
        if is_strict {
            tables.changed(strict());
        }
        drop(tables);
        assert_eq!(is_last_strict(), is_strict);
    }
}

/// What a tag that was not loaded has cached may lead to freed tables, so it goes before the root is loaded. A tag that is loaded caches again what was
/// dropped before. The engine can do no more than say so: a platform in another order walks a freed table.
#[test]
fn a_load_drops_a_tag_before_its_root_can_be_walked() {
    for (order, walks_freed) in [(LoadOrder::Right, false), (LoadOrder::DropsAfter, true)] {
        let machine = online(tagged::<1>(8));
        let puppet = machine.platform().0;
        *puppet.load_order.lock().unwrap() = order;
        puppet.tops.lock().unwrap().extend([(1, 11), (2, 22)]);
        let [a, b] = [1, 2].map(|root| Space::new(machine, root));
        machine.switch_to(None, &a);
        machine.switch_to(Some(&a), &b);
        puppet.tops.lock().unwrap().insert(1, 12);
        machine.flush(&a, FlushRange::WHOLE, FreedTables::Yes);
        puppet.freed_tables.lock().unwrap().push(11);
        machine.switch_to(Some(&b), &a);
        assert_eq!(
            !puppet.walked_freed.take().is_empty(),
            walks_freed,
            "{order:?}"
        );
    }
}

/// The same of a tag that is loaded: tag 0, where roots have no other.
#[test]
fn a_load_drops_a_loaded_tag_after_its_root_too() {
    for (order, walks_freed) in [(LoadOrder::Right, false), (LoadOrder::DropsBefore, true)] {
        let machine = machine::<1>();
        let puppet = machine.platform().0;
        *puppet.load_order.lock().unwrap() = order;
        puppet.tops.lock().unwrap().extend([(1, 11), (2, 22)]);
        let [a, b] = [1, 2].map(|root| Space::new(machine, root));
        machine.switch_to(None, &a);
        machine.switch_to(Some(&a), &b);
        // Nobody has `a` loaded.
        machine.flush(&a, FlushRange::WHOLE, FreedTables::Yes);
        puppet.freed_tables.lock().unwrap().push(11);
        puppet.speculate();
        assert_eq!(
            !puppet.walked_freed.take().is_empty(),
            walks_freed,
            "{order:?}"
        );
    }
}

/// One that is just loading a root may have kept what it loads, and holds the old entry until it has looked: no back end takes it.
#[test]
fn a_strict_flush_leaves_no_joining_cpu_to_a_back_end() {
    for (strict, sent) in [(false, 0), (true, 1)] {
        let machine = online(tagged::<2>(8));
        let puppet = machine.platform().0;
        let space: &'static Space<2> = Box::leak(Box::new(space_on(machine, 2)));
        let other = Space::new(machine, 7);
        puppet.as_cpu(1, || machine.switch_to(Some(space), &other));
        puppet.reaches(EVERYBODY);
        let ranges = FlushRanges::from(pages(0, 1));
        let ranges = if strict { ranges.strict() } else { ranges };
        puppet.as_cpu(1, || {
            puppet.at_next_load(move || {
                // It cannot wait in here.
                forget(puppet.as_cpu(0, || machine.submit_flush(space, ranges, FreedTables::No)));
            });
            machine.switch_to(Some(&other), space);
        });
        assert_eq!(puppet.sent.take().len(), sent);
        puppet.deliver_all();
    }
}

/// A trace says which space is loaded, also where none is.
#[test]
fn the_name_of_no_space_is_no_space() {
    let machine = online(tagged::<2>(8));
    let puppet = machine.platform().0;
    let space = Space::new(machine, 1);
    machine.switch_to(None, &space);
    puppet.trace.take();
    machine.switch_away(&space, KERNEL_ROOT);
    let last = puppet
        .trace
        .take()
        .into_iter()
        .rev()
        .find_map(|event| match event {
            TraceEvent::Switched { space, .. } => Some(space),
            _ => None,
        });
    let id = last.unwrap();
    machine.host_roots().begin_foreign_root();
    assert!(
        !machine.user_memory().access_ok(id),
        "{id:?}, on a foreign root"
    );
    machine.host_roots().end_foreign_root(KERNEL_ROOT);
}

/// An engine on which the CPU is not online loads a root, where another one has a space loaded.
#[test]
fn an_engine_that_is_not_online_loads_no_root() {
    let machine = online(tagged::<2>(8));
    let puppet = machine.platform().0;
    puppet.has_no_back_end.store(true, Relaxed);
    let other: &Machine<2> = Box::leak(Box::new(Shootdown::new(Seat(puppet))));
    other.attach(cpu(0), Box::leak(Box::new([CpuMemory::new()])));
    let space = ManuallyDrop::new(AddressSpace::new(machine, tables(1)));
    machine.switch_to(None, &space);
    puppet.map_in(1, 0, 10);
    assert_eq!(puppet.access(0, 0), 10);
    let _ = refuses(|| {
        other.host_roots().begin_foreign_root();
        other.host_roots().end_foreign_root(KERNEL_ROOT);
    });
    assert_eq!(
        puppet.root_of(0),
        1,
        "the space of the engine that is online"
    );
}

/// A refused attach keeps nothing.
#[test]
fn memory_that_was_refused_is_not_lost() {
    let puppet: &'static Puppet = powered_off::<2>().platform();
    let machine: &'static Machine<2> = Box::leak(Box::new(Shootdown::new(Seat(puppet))));
    machine.attach(cpu(0), Box::leak(Box::new([CpuMemory::new()])));
    let memory: &'static CpuMemory<Seat<2>> = Box::leak(Box::new(CpuMemory::new()));
    assert!(refuses(
        || machine.attach(cpu(0), std::slice::from_ref(memory))
    ));
    assert!(!refuses(
        || machine.attach(cpu(1), std::slice::from_ref(memory))
    ));
}

/// What a root of the host's had mapped globally is gone when it is over.
#[test]
fn a_foreign_root_leaves_no_global_translations() {
    for tags in [0, 8] {
        let machine = online(tagged::<2>(tags));
        let puppet = machine.platform().0;
        puppet.map(GLOBAL, 20);
        puppet.map_in(98, GLOBAL, 66);
        machine.host_roots().begin_foreign_root();
        host_loads(puppet, 0, 98);
        assert_eq!(puppet.access(0, GLOBAL), 66);
        machine.host_roots().end_foreign_root(KERNEL_ROOT);
        assert_eq!(
            puppet.access(0, GLOBAL),
            20,
            "tags {tags}: the kernel's own page"
        );
    }
}

/// An interrupt between the halves of a switch is a mistake that panics; nothing is given back early all the same.
#[test]
fn an_interrupt_between_the_halves_frees_no_frame_early() {
    let (machine, puppet) = with_puppet::<2>();
    puppet.has_no_back_end.store(true, Relaxed);
    let a = ManuallyDrop::new(AddressSpace::new(machine, tables(1)));
    let b = ManuallyDrop::new(AddressSpace::new(machine, tables(2)));
    machine.switch_to(None, &a);
    puppet.map_in(1, 0, 10);
    assert_eq!(puppet.access(0, 0), 10);
    assert!(machine.host_roots().begin_switch(Some(&a), Some(&b)));
    puppet.map_in(1, 0, 11);
    let mut batch = FlushBatch::<_, 1>::new(&*a);
    batch.page(0, PageSize::SIZE_4K, 10u64).unwrap();
    let ticket = puppet.as_cpu(1, || machine.submit_batch(&*a, batch));
    assert!(refuses(|| puppet.deliver(0)));
    assert!(
        !ticket.is_done() || puppet.access(0, 0) == 11,
        "the frame comes back, and CPU 0 uses it"
    );
    forget(ticket);
}

/// Pages below 4 KiB are everything, in a flush of windows too.
#[test]
fn a_window_flush_of_a_part_of_a_page_drops_the_page() {
    let machine = online(tagged::<2>(8));
    let puppet = machine.platform().0;
    let a = ManuallyDrop::new(AddressSpace::new(machine, tables(1)));
    let w = ManuallyDrop::new(WindowRoot::new(machine, &a, cpu(0), tables(10)));
    machine.windows().switch_to(None, &a, &w);
    puppet.map_in(10, WINDOW, 5);
    assert_eq!(puppet.access(0, WINDOW), 5);
    puppet.map_in(10, WINDOW, 6);
    let part = FlushRange::new(
        WINDOW * PAGE + 8,
        WINDOW * PAGE + 16,
        PageSize::from_shift(3),
    );
    machine.windows().pin(&w).unwrap().flush(part);
    assert_eq!(puppet.access(0, WINDOW), 6);
}

/// A private root whose load was refused may be dropped.
#[test]
fn windows_whose_load_was_refused_were_never_loaded() {
    let machine = online(tagged::<2>(8));
    let a = AddressSpace::new(machine, tables(1));
    let windows = WindowRoot::new(machine, &a, cpu(0), tables(10));
    let b = AddressSpace::new(machine, tables(2));
    assert!(refuses(|| machine.windows().switch_to(
        Some(&b),
        &a,
        &windows
    )));
    drop(windows);
}

/// Whether a type can be cloned, or a function be called by safe code: what is true is an inherent method, which hides the other one.
mod probe {
    use super::*;

    pub struct Of<T>(pub T);
    pub struct Type<T>(pub std::marker::PhantomData<T>);

    pub trait Otherwise {
        fn is_clone(&self) -> bool {
            false
        }
        fn is_safe(&self) -> bool {
            false
        }
    }
    impl<T> Otherwise for Of<T> {}
    impl<T> Otherwise for Type<T> {}

    impl<T: Clone> Type<T> {
        pub fn is_clone(&self) -> bool {
            true
        }
    }

    type Spaces<'a> = Option<&'a AddressSpace<Cpus<2>>>;

    /// Whose methods they are.
    pub type Roots = HostRoots<'static, Seat<2>>;

    impl<F: Fn(Roots, Spaces<'_>, Spaces<'_>) -> R, R> Of<(F, R)> {
        pub fn is_safe(&self) -> bool {
            true
        }
    }
}

#[test]
fn a_root_moves_and_halves_are_vouched_for() {
    use probe::*;
    use std::marker::PhantomData;
    assert!(Type(PhantomData::<KernelRoot>).is_clone());
    assert!(!Type(PhantomData::<Root>).is_clone());
    assert!(Of((Roots::begin_switch, true)).is_safe());
    assert!(!Of((Roots::end_switch, ())).is_safe());
}

/// What a section protects is read as long as it lasts; a section that is over before it seems so, or on another CPU, or behind its function, protects nothing.
#[test]
fn a_section_of_a_walk_that_does_not_end_by_itself_ends_the_process() {
    let test = "a_section_of_a_walk_that_does_not_end_by_itself_ends_the_process";
    for case in ["outer first", "elsewhere", "left behind"] {
        let said = ends_in_case(test, case, |case| {
            let (machine, puppet) = with_puppet::<2>();
            let space: &'static Space<2> = Box::leak(Box::new(space_on(machine, 2)));
            let walk = || machine.user_memory().walk(space);
            match case {
                "outer first" => {
                    let (outer, _inner) = (walk(), walk());
                    drop(outer);
                }
                "elsewhere" => {
                    let section = walk();
                    puppet.as_cpu(1, || drop(section));
                }
                _ => {
                    let function = |_| std::mem::forget(walk());
                    let _ = machine.call_one(CpuId::new(1), &function);
                }
            }
        });
        let words = match case {
            "left behind" => "has left a walk",
            _ => "a section of a walk does not end by itself",
        };
        assert!(said.contains(words), "{case}: {said}");
    }
}
