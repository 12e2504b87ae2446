//! Behaviour of TLB coherence, on the puppet machine.

#![cfg(not(loom))]

mod puppet;

use shootdown::Cpus;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::flushes::FLUSH_CEILING_PAGES;
use shootdown::watch::*;
use shootdown::*;

const POLICIES: [Policy; 3] = [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST];

/// Position of an event in a trace.
fn position(trace: &[TraceEvent], wanted: TraceEvent) -> usize {
    trace
        .iter()
        .position(|event| *event == wanted)
        .unwrap_or_else(|| panic!("{wanted:?} in {trace:?}"))
}

fn flush_finished(number: u32, space: &AddressSpace<Cpus<4>>) -> TraceEvent {
    TraceEvent::FlushFinished {
        cpu: cpu(number),
        space: space.id(),
    }
}

const ACKNOWLEDGED: TraceEvent = TraceEvent::Acknowledged {
    cpu: CpuId::new(1),
    initiator: CpuId::new(0),
};

/// After a flush returns no CPU uses the old translation, whatever the policy, size and machine.
fn no_cpu_keeps_a_flushed_translation<const N: usize>()
where
    Cpus<N>: Capacity,
{
    for policy in POLICIES {
        for count in [1, 33, 34] {
            let (machine, puppet) = with_puppet::<N>();
            machine.set_policy(policy);
            let space = space_on(machine, N as u32);
            (0..count).for_each(|page| puppet.map(page, 1));
            for number in 0..N as u32 {
                (0..count).for_each(|page| assert_eq!(puppet.access(number, page), 1));
            }
            (0..count).for_each(|page| puppet.map(page, 2));
            machine.flush(&space, pages(0, count), FreedTables::No);
            for number in 0..N as u32 {
                (0..count).for_each(|page| assert_eq!(puppet.access(number, page), 2));
            }
            let flushes = puppet.flushes.take();
            assert_eq!(flushes.len(), N, "one flush a CPU");
            let partial = flushes
                .iter()
                .all(|(_, flush)| matches!(flush, LocalFlush::Pages(..)));
            assert_eq!(partial, count <= FLUSH_CEILING_PAGES);
        }
    }
}

#[test]
fn no_cpu_keeps_a_flushed_translation_at_any_size() {
    no_cpu_keeps_a_flushed_translation::<1>();
    // Minutes under Miri.
    if !cfg!(miri) {
        no_cpu_keeps_a_flushed_translation::<4>();
        no_cpu_keeps_a_flushed_translation::<64>();
        no_cpu_keeps_a_flushed_translation::<256>();
    }
}

/// Freed tables without a range: everything is dropped (I10), of a space and of the kernel's part. A range without pages is nothing.
#[test]
fn tables_without_a_range_flush_everything() {
    let machine = machine::<2>();
    let space = space_on(machine, 2);
    let puppet = machine.platform().0;
    for freed in [FreedTables::No, FreedTables::Yes] {
        let expected = if freed == FreedTables::Yes { 2 } else { 0 };
        machine.flush(&space, FlushRange::EMPTY, freed);
        assert_eq!(puppet.flushes.take().len(), expected, "{freed:?}");
        machine.flush(FlushScope::Kernel, FlushRange::EMPTY, freed);
        assert_eq!(puppet.flushes.take().len(), expected, "{freed:?}");
    }
}

#[test]
fn cpus_without_the_space_are_left_alone() {
    let machine = machine::<4>();
    let space = space_on(machine, 2);
    machine.flush(&space, pages(0, 1), FreedTables::No);
    assert_eq!(machine.watch().total_stats().ipis_sent, 1);
    assert_eq!(machine.watch().stats(cpu(1)).remote_flushes, 1);
    machine
        .platform()
        .as_cpu(1, || machine.switch_away(&space, kernel_tables(0)));
    machine.flush(&space, pages(0, 1), FreedTables::Yes);
    assert_eq!(machine.watch().total_stats().ipis_sent, 1, "it has left");
}

#[test]
fn an_initiator_without_the_space_flushes_nothing_here() {
    let (machine, puppet) = with_puppet::<4>();
    let space = space_on(machine, 2);
    puppet.as_cpu(3, || machine.flush(&space, pages(0, 1), FreedTables::No));
    let flushed: Vec<u32> = puppet.flushes.take().iter().map(|(cpu, _)| *cpu).collect();
    assert_eq!(flushed, [0, 1]);
}

#[test]
fn under_before_the_local_flush_comes_last() {
    let (machine, puppet) = with_puppet::<4>();
    machine.set_policy(Policy::BEFORE);
    let space = space_on(machine, 2);
    let ticket = machine.submit_flush(&space, pages(0, 1), FreedTables::No);
    assert_eq!(
        puppet.preempt_count(0),
        1,
        "preemption stays off until the wait"
    );
    assert!(!ticket.is_done());
    ticket.wait();
    assert_eq!(puppet.preempt_count(0), 0);
    let trace = puppet.trace.take();
    let [remote, ack, local] = [
        flush_finished(1, &space),
        ACKNOWLEDGED,
        flush_finished(0, &space),
    ]
    .map(|event| position(&trace, event));
    assert!(remote < ack && ack < local, "{trace:?}");
    let stats = machine.watch().total_stats();
    assert_eq!(
        (
            stats.early_acks,
            stats.flushes_overlapped,
            stats.shared_lines_read
        ),
        (0, 0, 2)
    );
}

#[test]
fn concurrent_policies_flush_here_before_the_acknowledgement_arrives() {
    for policy in [Policy::PUBLISHED, Policy::BEST] {
        let machine = machine::<4>();
        machine.set_policy(policy);
        let space = space_on(machine, 2);
        machine.flush(&space, pages(0, 1), FreedTables::No);
        let trace = machine.platform().trace.take();
        let [local, ack, remote] = [
            flush_finished(0, &space),
            ACKNOWLEDGED,
            flush_finished(1, &space),
        ]
        .map(|event| position(&trace, event));
        assert!(local < ack && ack < remote, "{trace:?}");
        let stats = machine.watch().total_stats();
        assert_eq!(
            (
                stats.early_acks,
                stats.flushes_overlapped,
                stats.shared_lines_read
            ),
            (1, 1, 1)
        );
    }
}

#[test]
fn freed_tables_and_kernel_ranges_are_acknowledged_after_the_flush() {
    let machine = machine::<4>();
    let space = space_on(machine, 2);
    machine.flush(&space, pages(0, 512), FreedTables::Yes);
    let trace = machine.platform().trace.take();
    assert!(position(&trace, flush_finished(1, &space)) < position(&trace, ACKNOWLEDGED));
    machine.flush(FlushScope::Kernel, pages(0, 1), FreedTables::Yes);
    assert_eq!(machine.watch().total_stats().early_acks, 0);
}

#[test]
fn user_memory_is_out_of_bounds_between_acknowledgement_and_flush() {
    let (machine, puppet) = with_puppet::<4>();
    let space = space_on(machine, 2);
    puppet.nmis_ask_about(space.id());
    machine.flush(&space, pages(0, 1), FreedTables::No);
    let started = TraceEvent::FlushStarted {
        cpu: cpu(1),
        space: space.id(),
    };
    let denied = puppet.user_access_denied.take();
    assert_eq!(
        denied,
        [
            Moment::Event(ACKNOWLEDGED),
            Moment::Event(started),
            Moment::Flush(LocalFlush::Pages(pages(0, 1), FreedTables::No)),
            Moment::Flush(LocalFlush::Pages(pages(0, 1), FreedTables::No)),
            Moment::Event(flush_finished(1, &space)),
        ],
        "from acknowledgement to flush"
    );
    machine.flush(&space, pages(0, 1), FreedTables::Yes);
    assert!(
        puppet.user_access_denied.take().is_empty(),
        "flushed before acknowledging"
    );
}

#[test]
fn freed_tables_without_a_range_flush_everything() {
    let (machine, puppet) = with_puppet::<4>();
    let space = space_on(machine, 1);
    machine.flush(&space, pages(0, 0), FreedTables::No);
    assert!(puppet.flushes.take().is_empty(), "nothing changed");
    machine.flush(&space, pages(0, 0), FreedTables::Yes);
    assert_eq!(puppet.flushes.take(), [(0, LocalFlush::Space)]);
}

/// Flushes that one interrupt finds are one; page by page if no change is missing before the last, or one whose request is still to come, the policy allows
/// that, and the target has not served three requests since its own last one.
#[test]
fn a_gap_in_generations_makes_a_full_flush() {
    let page = |page, freed| LocalFlush::Pages(pages(page, 1), freed);
    // A change that is missing may have replaced a table.
    let (plain, overtaking) = (
        |number| page(number, FreedTables::No),
        |number| page(number, FreedTables::Yes),
    );
    let (best, space) = (Policy::BEST, LocalFlush::Space);
    let in_order = best.with_out_of_order(false);
    for (policy, missing, order, dropped) in [
        (best, 0, [3, 4], vec![plain(0), plain(1)]),
        (best, 0, [4, 3], vec![overtaking(1), plain(0)]),
        (in_order, 0, [4, 3], vec![space]),
        (best, 1, [3, 4], vec![overtaking(0), overtaking(1)]),
        (in_order, 1, [3, 4], vec![space, plain(1)]),
        (best, 2, [3, 4], vec![space, plain(1)]),
    ] {
        let (machine, puppet) = with_puppet::<8>();
        machine.set_policy(policy);
        let space_of_all: &'static Space<8> = Box::leak(Box::new(space_on(machine, 2)));
        let submit = move |initiator, page| {
            puppet.as_cpu(initiator, || {
                machine.submit_flush(space_of_all, pages(page, 1), FreedTables::No)
            })
        };
        let is_covered = dropped.contains(&space);
        let expected = dropped.clone();
        let both_flush = move || {
            // A responder finds that of CPU 3 first.
            let tickets = [(order[0], 0), (order[1], 1)].map(|(cpu, page)| submit(cpu, page));
            for cpu in [1, 0] {
                puppet.as_cpu(2, || puppet.deliver(cpu));
                let flushes = puppet.flushes.take();
                assert!(flushes.iter().all(|(flushed, _)| *flushed == cpu));
                let flushes: Vec<_> = flushes.iter().map(|(_, flush)| *flush).collect();
                assert_eq!(flushes, expected, "{missing} missing, {order:?}");
                let covered = machine.watch().stats(CpuId::new(cpu)).flushes_covered;
                assert_eq!(covered, 2 - expected.len() as u64);
            }
            drop(tickets);
        };
        // CPU 5, or 5 and 6, have changed their pages, and are about to say so.
        match missing {
            0 => both_flush(),
            1 => {
                puppet.at_next_flush_remote(both_flush);
                submit(5, 5).wait();
            }
            _ => {
                puppet.at_next_flush_remote(move || {
                    puppet.at_next_flush_remote(both_flush);
                    submit(6, 6).wait();
                });
                submit(5, 5).wait();
            }
        }
        puppet.deliver_all();
        let late = match is_covered {
            true => vec![],
            false => [1, 0].repeat(missing),
        };
        let flushes = puppet.flushes.take();
        assert!(flushes.iter().all(|(_, flush)| *flush == plain(5)));
        let mut cpus: Vec<_> = flushes.iter().map(|(cpu, _)| *cpu).collect();
        cpus.sort_unstable_by(|one, other| other.cmp(one));
        assert_eq!(cpus, late, "what was dropped whole is covered");
        // Nothing is missing any more.
        submit(3, 0).wait();
        puppet.deliver_all();
        let flushes = puppet.flushes.take();
        assert!(flushes.iter().all(|(_, flush)| *flush == plain(0)));
        assert_eq!(flushes.len(), 2);
    }
}

/// The change that is missing may have put a large page in the place of small ones, which are cached still: a flush of that page does not overtake it.
#[test]
fn a_flush_of_a_large_page_overtakes_nothing() {
    let large = FlushRange::pages(0, 1, PageSize::SIZE_2M);
    for (range, dropped) in [
        (
            pages(0, 1),
            LocalFlush::Pages(pages(0, 1), FreedTables::Yes),
        ),
        (large, LocalFlush::Space),
    ] {
        let (machine, puppet) = with_puppet::<4>();
        let space: &'static Space<4> = Box::leak(Box::new(space_on(machine, 2)));
        let flush = move |initiator, range| {
            puppet.as_cpu(initiator, || machine.flush(space, range, FreedTables::No));
        };
        puppet.at_next_flush_remote(move || {
            flush(3, range);
            let mut flushes = puppet.flushes.take();
            flushes.sort_by_key(|(cpu, _)| *cpu);
            assert_eq!(flushes, [(0, dropped), (1, dropped)]);
        });
        flush(2, pages(9, 1));
    }
}

#[test]
fn a_request_that_a_switch_has_overtaken_does_nothing() {
    let machine = machine::<4>();
    let space = space_on(machine, 2);
    let ticket = machine.submit_flush(&space, pages(0, 1), FreedTables::No);
    machine.platform().as_cpu(1, || {
        machine.switch_away(&space, kernel_tables(0));
        machine.switch_to(None, &space);
    });
    ticket.wait();
    assert_eq!(machine.watch().stats(cpu(1)).flushes_covered, 1);
    assert_eq!(machine.watch().stats(cpu(1)).remote_flushes, 0);
}

#[test]
fn a_request_for_a_space_that_was_left_does_nothing() {
    let machine = machine::<4>();
    let space = space_on(machine, 2);
    let ticket = machine.submit_flush(&space, pages(0, 1), FreedTables::No);
    machine
        .platform()
        .as_cpu(1, || machine.switch_away(&space, kernel_tables(0)));
    ticket.wait();
    assert_eq!(machine.watch().stats(cpu(1)).flushes_stray, 1);
    assert_eq!(machine.watch().stats(cpu(1)).remote_flushes, 0);
}

#[test]
fn flushes_come_before_functions_in_the_same_interrupt() {
    let (machine, puppet) = with_puppet::<4>();
    let space = space_on(machine, 2);
    machine.try_post(&CpuMask::only(cpu(1)), |_| ()).unwrap();
    let ticket = puppet.as_cpu(3, || {
        machine.submit_flush(&space, pages(0, 1), FreedTables::No)
    });
    puppet.deliver(1);
    let trace = puppet.trace.take();
    let function = TraceEvent::FunctionStarted {
        cpu: cpu(1),
        initiator: cpu(0),
    };
    assert!(
        position(&trace, flush_finished(1, &space)) < position(&trace, function),
        "{trace:?}"
    );
    puppet.as_cpu(3, || drop(ticket));
}

/// A responder looks for flushes between functions that take long, and meets a new function: that one waits, and is not lost. A few
/// short functions go first.
#[test]
fn a_function_found_beside_a_flush_runs_later() {
    static RUNS: Count = Count::new();
    static FLUSHES_BEFORE: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    for (function_ns, flushes_before) in [(4000, [0, 1, 1]), (1000, [0, 0, 0])] {
        let (machine, puppet) = with_puppet::<8>();
        let target = CpuMask::only(cpu(1));
        for initiator in [2, 3, 4] {
            let function = move |_| {
                let flushes = machine.watch().stats(cpu(1)).remote_flushes;
                FLUSHES_BEFORE.lock().unwrap().push(flushes);
                puppet.skipped_ns.fetch_add(function_ns, Relaxed);
                if initiator == 2 {
                    puppet.as_cpu(5, || {
                        machine
                            .try_post(&CpuMask::only(CpuId::new(1)), |_| RUNS.add())
                            .unwrap();
                    });
                    // A ticket that is forgotten loses its wait and nothing else.
                    puppet.as_cpu(6, || {
                        std::mem::forget(machine.submit_flush(
                            FlushScope::Kernel,
                            pages(0, 1),
                            FreedTables::Yes,
                        ));
                    });
                }
            };
            puppet.as_cpu(initiator, || machine.try_post(&target, function).unwrap());
        }
        assert!(puppet.deliver(1));
        assert_eq!(FLUSHES_BEFORE.lock().unwrap().split_off(0), flushes_before);
        assert_eq!(RUNS.get(), 0, "not in the same interrupt");
        assert!(puppet.deliver(1), "an interrupt is on its way");
        assert_eq!(
            (RUNS.take(), machine.watch().stats(cpu(1)).remote_flushes),
            (1, 1)
        );
        puppet.deliver_all();
    }
}

#[test]
fn a_flush_finds_a_slot_when_functions_occupy_all_of_theirs() {
    let (machine, puppet) = with_puppet::<4>();
    let space = space_on(machine, 2);
    puppet.deliver_on_relax.store(false, Relaxed);
    while machine.try_post(&CpuMask::only(cpu(2)), |_| ()).is_ok() {}
    let ticket = machine.submit_flush(&space, pages(0, 1), FreedTables::No);
    puppet.deliver(1);
    assert!(ticket.is_done());
    drop(ticket);
    puppet.deliver(2);
}

#[test]
fn kernel_ranges_reach_every_online_cpu_and_global_pages() {
    let machine = powered_off::<4>();
    let puppet = machine.platform().0;
    for number in [0, 1, 3] {
        puppet.as_cpu(number, || machine.online());
    }
    puppet.flushes.take();
    machine.flush(FlushScope::Kernel, pages(7, 2), FreedTables::Yes);
    machine.flush(FlushScope::Kernel, FlushRange::WHOLE, FreedTables::Yes);
    let flushes = puppet.flushes.take();
    for number in [0, 1, 3] {
        let own: Vec<_> = flushes
            .iter()
            .filter(|(cpu, _)| *cpu == number)
            .map(|(_, flush)| *flush)
            .collect();
        assert_eq!(
            own,
            [
                LocalFlush::Pages(pages(7, 2), FreedTables::Yes),
                LocalFlush::All
            ]
        );
    }
}

#[test]
fn large_pages_are_dropped_at_their_stride() {
    let (machine, puppet) = with_puppet::<4>();
    let space = space_on(machine, 1);
    puppet.flushes.take();
    let range = FlushRange::pages(0, 3, PageSize::SIZE_2M);
    machine.flush(&space, range, FreedTables::No);
    assert_eq!(
        puppet.flushes.take(),
        [(0, LocalFlush::Pages(range, FreedTables::No))]
    );
    assert_eq!(machine.watch().stats(cpu(0)).pages_flushed, 3);
}

#[test]
fn a_platform_that_flushes_others_itself_needs_no_interrupt() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.reaches(EVERYBODY);
    let space = space_on(machine, 4);
    puppet.map(0, 1);
    (0..4).for_each(|number| assert_eq!(puppet.access(number, 0), 1));
    puppet.map(0, 2);
    machine.flush(&space, pages(0, 1), FreedTables::No);
    (0..4).for_each(|number| assert_eq!(puppet.access(number, 0), 2));
    let stats = machine.watch().total_stats();
    assert_eq!((stats.ipis_sent, stats.cpus_taken), (0, 3));
    machine.flush(&space, pages(1, 2), FreedTables::Yes);
    machine.flush(FlushScope::Kernel, pages(5, 1), FreedTables::Yes);
    let told: Vec<_> = puppet
        .asked
        .take()
        .iter()
        .map(|(request, _)| {
            let generation = request.generation().as_u64();
            let tables = request.freed_tables();
            let range = request.ranges().next().expect("one");
            (request.space(), generation, range, tables)
        })
        .collect();
    let user = Some(space.id());
    assert_eq!(
        told,
        [
            (user, 2, pages(0, 1), FreedTables::No),
            (user, 3, pages(1, 2), FreedTables::Yes),
            (None, 0, pages(5, 1), FreedTables::Yes),
        ],
        "what the platform is told"
    );
}

/// Frames that count how many of them exist, to see where they go.
#[derive(Debug)]
struct Frame(#[allow(dead_code, reason = "its count is what matters")] Rc<()>);

fn batch_of(space: &Space<4>, frames: &Rc<()>, count: usize) -> FlushBatch<Frame, 4> {
    let mut batch = FlushBatch::new(space);
    for page in 0..count {
        batch
            .page(page * PAGE, PageSize::SIZE_4K, Frame(frames.clone()))
            .unwrap();
    }
    batch
}

#[test]
fn frames_come_back_only_when_the_flush_is_complete() {
    for policy in POLICIES {
        let machine = machine::<4>();
        machine.set_policy(policy);
        let space = space_on(machine, 3);
        let frames = Rc::new(());
        let ticket = machine.submit_batch(&space, batch_of(&space, &frames, 3));
        assert!(!ticket.is_done());
        assert_eq!(Rc::strong_count(&frames), 4);
        machine.platform().deliver_all();
        let nothing_left = policy.is_concurrent();
        assert_eq!(ticket.is_done(), nothing_left, "the flush here may be left");
        let mut reclaimed = ticket.wait();
        assert_eq!(reclaimed.len(), 3);
        assert_eq!(machine.watch().total_stats().remote_flushes, 2);
        drop(reclaimed.next());
        assert_eq!(reclaimed.len(), 2);
        drop(reclaimed);
        assert_eq!(
            Rc::strong_count(&frames),
            1,
            "what was not taken is dropped"
        );
    }
}

#[test]
fn frames_come_back_from_a_wait_after_the_last_flush() {
    for policy in POLICIES {
        let machine = machine::<4>();
        machine.set_policy(policy);
        let space = space_on(machine, 3);
        let frames = Rc::new(());
        let ticket = machine.submit_batch(&space, batch_of(&space, &frames, 3));
        assert_eq!(machine.watch().total_stats().remote_flushes, 0);
        let reclaimed = ticket.wait();
        assert_eq!(
            machine.watch().total_stats().remote_flushes,
            2,
            "{policy:?}"
        );
        assert_eq!(reclaimed.len(), 3);
        drop(reclaimed);
    }
}

#[test]
fn a_dropped_ticket_drops_its_frames_after_the_wait_and_a_dropped_batch_leaks_them() {
    let machine = machine::<4>();
    let space = space_on(machine, 2);
    let frames = Rc::new(());
    drop(machine.submit_batch(&space, batch_of(&space, &frames, 2)));
    assert_eq!(
        machine.watch().total_stats().remote_flushes,
        1,
        "dropping the ticket waits"
    );
    assert_eq!(Rc::strong_count(&frames), 1, "then the frames are free");
    drop(batch_of(&space, &frames, 1));
    assert_eq!(Rc::strong_count(&frames), 2, "nobody has flushed these");
    std::mem::forget(frames);
}

#[test]
fn a_full_batch_returns_the_frame() {
    let space = Space::new(machine::<4>(), 1);
    let frames = Rc::new(());
    let mut batch = batch_of(&space, &frames, 4);
    assert!(batch.is_full());
    let covered = batch.ranges();
    let full = batch
        .page(9 * PAGE, PageSize::SIZE_4K, Frame(frames.clone()))
        .unwrap_err();
    drop(full.0);
    assert_eq!(
        batch.ranges(),
        covered,
        "a page that was not taken is not covered"
    );
    assert_eq!(Rc::strong_count(&frames), 5);
    std::mem::forget((batch, frames));
}

#[test]
fn a_batch_covers_every_change_it_gathered() {
    let mut batch = FlushBatch::<u32, 4>::kernel();
    assert!(batch.is_empty());
    for (count, page) in [(1, 7), (2, 3), (3, 9)] {
        batch.page(page * PAGE, PageSize::SIZE_4K, 0).unwrap();
        assert_eq!((batch.len(), batch.is_empty()), (count, false));
        assert!(!batch.is_full());
    }
    let ranges = |batch: &FlushBatch<u32, 4>| batch.ranges().iter().collect::<Vec<_>>();
    assert_eq!(ranges(&batch), [pages(7, 1), pages(3, 1), pages(9, 1)]);
    batch.range(pages(1, 1));
    assert_eq!(ranges(&batch), [pages(7, 1), pages(1, 3), pages(9, 1)]);
    let mut protection = FlushBatch::<u32, 4>::kernel();
    protection.range(pages(1, 1));
    assert_eq!((protection.len(), protection.is_empty()), (0, false));
    assert_eq!(batch.freed_tables(), FreedTables::No);
}

#[test]
fn a_batch_with_a_table_covers_what_the_table_translated() {
    let mut batch = FlushBatch::<u64, 4>::kernel();
    assert!(batch.is_empty());
    // One of sixteen pages, as some architectures have.
    batch.table(0x40_3000, PageSize::SIZE_64K, 1).unwrap();
    assert_eq!(batch.freed_tables(), FreedTables::Yes);
    let page = FlushRange::pages(0x70_0000, 1, PageSize::SIZE_4K);
    batch.range(page);
    let table = FlushRange::pages(0x40_0000, 16, PageSize::SIZE_4K);
    assert!(batch.ranges().iter().eq([table, page]));
    batch.table(0x40_3000, PageSize::SIZE_2M, 2).unwrap();
    assert!(batch.ranges().is_whole(), "page by page it costs more");
}

/// The last address belongs to it, and there is none behind it.
#[test]
fn a_table_at_the_end_of_the_address_space_is_covered_too() {
    let end = 0usize.wrapping_sub(PageSize::SIZE_64K.bytes());
    let mut batch = FlushBatch::<u64, 4>::kernel();
    batch.page(0x70_0000, PageSize::SIZE_4K, 0).unwrap();
    batch.table(end, PageSize::SIZE_64K, 1).unwrap();
    let covers = |address: usize| {
        let contains = |range: FlushRange| {
            range.start() <= address && address - range.start() < range.page_count() * PAGE
        };
        batch.ranges().is_whole() || batch.ranges().iter().any(contains)
    };
    // Its last page, or that and everything, as no range ends behind it.
    assert!(
        covers(end) && covers(0usize.wrapping_sub(2 * PAGE)) && covers(0usize.wrapping_sub(PAGE))
    );
}

#[test]
fn space_names_are_never_reused() {
    let machine = machine::<4>();
    let ids: Vec<SpaceId> = (0..100).map(|_| Space::new(machine, 1).id()).collect();
    let names: HashSet<SpaceId> = ids.iter().copied().collect();
    let numbers: HashSet<u64> = ids.iter().map(|id| id.as_u64()).collect();
    assert_eq!((names.len(), numbers.len()), (100, 100));
}

/// Its owner's other fields, the tables among them, are not dropped either: the process ends before it unwinds.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_loaded_space_is_not_dropped() {
    struct Tables;
    impl Drop for Tables {
        fn drop(&mut self) {
            println!("the tables were freed");
        }
    }
    const CHILD: &str = "SHOOTDOWN_DROPS_A_LOADED_SPACE";
    if std::env::var_os(CHILD).is_some() {
        let machine = machine::<4>();
        let space = AddressSpace::new(machine, tables(1));
        machine.switch_to(None, &space);
        let owner = (space, Tables);
        drop(owner);
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["a_loaded_space_is_not_dropped", "--nocapture"]);
    let output = child.env(CHILD, "1").output().unwrap();
    let (stdout, stderr) = (&output.stdout, &output.stderr);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(stderr).contains("address space dropped while"));
    assert!(!String::from_utf8_lossy(stdout).contains("the tables were freed"));
}

#[test]
fn a_switch_names_what_is_loaded() {
    let machine: &Machine<4> = machine::<4>();
    let [first, second] = [1, 2].map(|root| Space::new(machine, root));
    assert!(refuses(|| machine.switch_to(Some(&first), &second)));
    machine.switch_to(None, &first);
    assert!(refuses(|| machine.switch_to(None, &second)));
    machine.switch_to(Some(&first), &second);
    assert_eq!((first.cpus().len(), second.cpus().len()), (0, 1));
    machine.switch_to(Some(&second), &second);
    assert_eq!(
        second.cpus().len(),
        1,
        "switching to the same space leaves it loaded"
    );
    machine.switch_away(&second, kernel_tables(0));
    assert!(second.cpus().is_empty());
}

#[test]
fn a_space_is_not_loaded_before_its_cpu_is_online() {
    let machine = powered_off::<4>();
    let space = Space::new(machine, 1);
    assert!(refuses(|| machine.switch_to(None, &space)));
}

/// However a responder finds flushes, it does them before it goes on.
#[test]
fn acknowledged_flushes_are_done_before_a_cpu_goes_on() {
    let by_interrupt: fn(&Machine<16>) = |machine| assert!(machine.platform().deliver(1));
    let by_poll: fn(&Machine<16>) = |machine| assert!(machine.poll());
    // Those of a space on 16 CPUs lie in the ring.
    for (cpus, look) in [
        (2, by_interrupt),
        (2, by_poll),
        (16, by_interrupt),
        (16, by_poll),
    ] {
        let (machine, puppet) = with_puppet::<16>();
        puppet.deliver_on_relax.store(false, Relaxed);
        let space = space_on(machine, cpus);
        (0..4).for_each(|page| puppet.map(page, 1));
        (0..4).for_each(|page| assert_eq!(puppet.access(1, page), 1));
        (0..4).for_each(|page| puppet.map(page, 2));
        let submit = |initiator: u32| {
            puppet.as_cpu(initiator, || {
                let page = initiator as usize - 12;
                machine.submit_flush(&space, pages(page, 1), FreedTables::No)
            })
        };
        let tickets = [12, 13, 14, 15].map(submit);
        puppet.as_cpu(1, || look(machine));
        (0..4).for_each(|page| assert_eq!(puppet.access(1, page), 2, "of {cpus}: {page}"));
        puppet.deliver_on_relax.store(true, Relaxed);
        tickets.into_iter().for_each(FlushTicket::wait);
    }
}

/// `initiator` flushes a page of `space` and does not wait: a ticket that is forgotten loses its wait and nothing else.
fn flush_and_forget(initiator: u32, machine: &'static Machine<8>, space: &Space<8>) {
    machine.platform().as_cpu(initiator, || {
        std::mem::forget(machine.submit_flush(space, pages(0, 1), FreedTables::No));
    });
}

#[test]
fn a_function_that_serves_flushes_is_not_the_interrupted_task() {
    for serves in [
        |it: &Machine<8>| _ = it.poll(),
        |it: &Machine<8>| it.handle_ipi(),
    ] {
        let (machine, puppet) = with_puppet::<8>();
        let space: &'static Space<8> = Box::leak(Box::new(space_on(machine, 2)));
        // Each function serves between two flushes, so there is always one when the handler ends.
        for turn in 0..65 {
            puppet.as_cpu(4, || {
                let function = move |_| {
                    flush_and_forget(2 + turn % 2, machine, space);
                    serves(machine);
                    flush_and_forget(2 + turn % 2, machine, space);
                };
                machine.try_post(&CpuMask::only(cpu(1)), function).unwrap();
            });
            puppet.as_cpu(5, || puppet.deliver(1));
        }
        assert_eq!(machine.watch().stats(cpu(1)).early_acks, 64);
    }
}

/// Of the flushes that come before the interrupted task could go on, 64 are acknowledged before they are done; the others' initiators wait.
#[test]
fn who_keeps_a_task_from_going_on_waits() {
    let (machine, puppet) = with_puppet::<8>();
    let space: &'static Space<8> = Box::leak(Box::new(space_on(machine, 2)));
    let submit = move |initiator| flush_and_forget(initiator, machine, space);
    let early_acks = || machine.watch().stats(cpu(1)).early_acks;
    // Before the interrupt has ended CPU 2 or 3 is back.
    let again = |initiator| {
        puppet.as_cpu(4, || {
            let back = move |_| submit(initiator);
            machine.try_post(&CpuMask::only(cpu(1)), back).unwrap();
        });
        puppet.as_cpu(5, || puppet.deliver(1));
    };
    for count in [0, 66] {
        submit(2);
        (0..65).for_each(|turn| again(2 + turn % 2));
        assert_eq!(early_acks(), count + 64);
        puppet.as_cpu(5, || puppet.deliver(1));
        assert_eq!(early_acks(), count + 64, "no more before the task goes on");
        puppet.as_cpu(5, || puppet.deliver(0));
        for more in [1, 2] {
            submit(2);
            puppet.as_cpu(5, || puppet.deliver(1));
            assert_eq!(early_acks(), count + 64 + more, "the task could go on");
        }
    }
    let before = early_acks();
    for _ in 0..65 {
        submit(2);
        assert!(
            puppet.as_cpu(1, || machine.poll()),
            "a task that polls goes on"
        );
        puppet.lose_interrupt(1);
        puppet.as_cpu(5, || puppet.deliver(0));
    }
    assert_eq!(early_acks(), before + 65);
    puppet.deliver_all();
}

/// What a ticket holds is dropped after the wait, also when the ticket is dropped.
#[test]
fn what_a_dropped_ticket_held_goes_after_the_wait() {
    struct Held(&'static Machine<4>);
    impl Drop for Held {
        fn drop(&mut self) {
            assert_eq!(self.0.watch().total_stats().remote_flushes, 1);
        }
    }
    let machine = machine::<4>();
    let space = space_on(machine, 2);
    drop(
        machine
            .submit_flush(&space, FlushRange::WHOLE, FreedTables::No)
            .hold(Held(machine)),
    );
}

/// CPU 0 is asked for so many flushes of one space and has another one loaded; a change of that one is not served by flushes
/// for which it was asked because of the first.
fn a_change_of_a_second_space_is_not_hidden(switches_late: bool) {
    let (machine, puppet) = with_puppet::<4>();
    let (first, second) = (Space::new(machine, 1), Space::new(machine, 2));
    let flush = |cpu, space: &AddressSpace<Cpus<4>>| {
        puppet.as_cpu(cpu, || {
            std::mem::forget(machine.submit_flush(space, FlushRange::WHOLE, FreedTables::Yes));
        });
    };
    for _ in 0..10 {
        flush(1, &first);
    }
    machine.switch_to(None, &first);
    puppet.deliver_on_relax.store(false, Relaxed);
    flush(1, &first);
    flush(2, &first);
    if switches_late {
        assert!(puppet.deliver(0));
    }
    machine.switch_to(Some(&first), &second);
    flush(3, &second);
    if !switches_late {
        flush(2, &second);
    }
    assert!(puppet.deliver(0));
    puppet.map_in(second.root(), 0, 1);
    assert_eq!(puppet.access(0, 0), 1);
    puppet.map_in(second.root(), 0, 2);
    flush(3, &second);
    assert!(puppet.deliver(0));
    assert_eq!(puppet.access(0, 0), 2);
}

#[test]
fn flushes_of_two_spaces_that_wait_are_kept_apart() {
    a_change_of_a_second_space_is_not_hidden(false);
    a_change_of_a_second_space_is_not_hidden(true);
}

/// What it has acknowledged and flushed of one space says nothing about the next.
#[test]
fn what_was_owed_to_one_space_is_not_owed_to_the_next() {
    let (machine, puppet) = with_puppet::<4>();
    let [old, new] = [1, 2].map(|root| Space::new(machine, root));
    let flush = |space: &AddressSpace<Cpus<4>>, page| {
        let ticket = machine.submit_flush(space, pages(page, 1), FreedTables::No);
        puppet.as_cpu(1, || assert!(machine.poll()));
        ticket.wait();
    };
    puppet.as_cpu(1, || machine.switch_to(None, &old));
    (0..5).for_each(|page| flush(&old, page));
    assert_eq!(machine.watch().stats(cpu(1)).early_acks, 5);
    puppet.as_cpu(1, || machine.switch_to(Some(&old), &new));
    flush(&new, 0);
    puppet.map(1, 10);
    assert_eq!(puppet.access(1, 1), 10);
    puppet.map(1, 11);
    flush(&new, 1);
    assert_eq!(puppet.access(1, 1), 11);
}
