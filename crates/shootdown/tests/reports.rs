//! What the engine tells people: counters, histograms, names and messages.

#![cfg(not(loom))]

mod puppet;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::calls::{NotReady, PostRefused, SlotsBusy};
use shootdown::flushes::BatchFull;
use shootdown::watch::Stats;
use shootdown::*;
use shootdown::{Cpus, tags::*, watch::*};

#[test]
fn messages_name_the_cause() {
    assert_eq!(cpu(7).to_string(), "cpu7");
    let not_ready = NotReady { cpu: cpu(7) }.to_string();
    assert!(not_ready.starts_with("cpu7 is not online"), "{not_ready}");
    assert!(SlotsBusy.to_string().contains("no request slot"));
    assert!(BatchFull(0).to_string().contains("batch is full"));
    let not_ready = PostRefused::NotReady.to_string();
    assert!(not_ready.contains("not online"), "{not_ready}");
    let busy = PostRefused::Busy.to_string();
    assert!(busy.contains("still posted"), "{busy}");
}

/// Two CPUs, or two engines, with the same memory would write over each other's requests.
#[test]
fn memory_is_attached_once_and_so_is_a_cpu() {
    let attach = |engine: &'static puppet::Machine<2>, number, memory| {
        let attaches = || engine.attach(cpu(number), std::slice::from_ref(memory));
        let panic = catch_unwind(AssertUnwindSafe(attaches)).err()?;
        panic.downcast_ref::<String>().cloned()
    };
    let engine = || &*Box::leak(Box::new(Shootdown::new(*machine::<2>().platform())));
    let [first, second, third] = [0; 3].map(|_| &*Box::leak(Box::new(CpuMemory::new())));
    let (one, other) = (engine(), engine());
    assert_eq!(attach(one, 0, first), None);
    for (engine, number) in [(one, 1), (other, 0)] {
        let refused = attach(engine, number, first).unwrap();
        assert!(
            refused.contains("each CPU of each engine needs its own"),
            "{refused}"
        );
    }
    let refused = attach(one, 0, second).unwrap();
    assert!(refused.contains("cpu0 was attached before"), "{refused}");
    let refused = attach(one, 2, third).unwrap();
    assert!(refused.contains("an engine for 2 CPUs"), "{refused}");
}

/// A platform without multicast, which refuses one CPU.
struct Unicast {
    refused: CpuId,
    sent: Mutex<Vec<CpuId>>,
}

// SAFETY: one CPU without interrupts or page tables; no engine uses it.
unsafe impl Platform for Unicast {
    type Cpus = Cpus<4>;
    type IrqState = ();
    fn current_cpu(&self) -> CpuId {
        cpu(0)
    }
    fn irq_save(&self) {}
    unsafe fn irq_restore(&self, (): ()) {}
    fn preempt_disable(&self) {}
    unsafe fn preempt_enable(&self) {}
    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        if target == self.refused {
            return Err(IpiRefused);
        }
        self.sent.lock().unwrap().push(target);
        Ok(())
    }
    fn local_flush(&self, _: LocalFlush) {}
    unsafe fn load_root(&self, _: u64) {}
    fn now_ns(&self) -> u64 {
        0
    }
}

/// Who does not send to several at once sends to each, and one refusal is a refusal of all: the engine sends again then.
#[test]
fn several_are_interrupted_one_by_one_unless_the_platform_can_do_better() {
    let targets: CpuMask<Cpus<4>> = (1..4).map(cpu).collect();
    for refused in 0..4 {
        let platform = Unicast {
            refused: cpu(refused),
            sent: Mutex::default(),
        };
        let all = platform.send_ipi_mask(targets.as_set());
        assert_eq!(
            all,
            if refused == 0 {
                Ok(())
            } else {
                Err(IpiRefused)
            }
        );
        if refused == 0 {
            assert_eq!(*platform.sent.lock().unwrap(), [cpu(1), cpu(2), cpu(3)]);
        }
    }
}

/// A host that leaves out what it has no hardware for promises nothing by that.
#[test]
fn what_a_platform_leaves_out_promises_nothing() {
    const { assert!(!Unicast::HAS_WINDOWS && !Unicast::KERNEL_PAGES_ARE_GLOBAL) };
    let platform = Unicast {
        refused: cpu(0),
        sent: Mutex::default(),
    };
    assert!(platform.asid_slots(cpu(0)).is_empty());
    assert!(!platform.splits_tags());
    let page = pages(0, 1);
    assert!(
        !platform.flush_user_side(Asid::new(1), page, FreedTables::No),
        "not dropped"
    );
}

/// The bucket in which one wait of `elapsed_ns` is counted.
fn bucket_of(elapsed_ns: u64) -> usize {
    let machine = machine::<2>();
    machine.set_policy(Policy::BEST.with_measured_waits(true));
    // The waiter relaxes once, which takes 1 ns and lets the target run.
    let ran = machine.call_one(cpu(1), &|_| {
        let rest_ns = elapsed_ns as usize - 1;
        machine.platform().skipped_ns.store(rest_ns, Relaxed);
    });
    assert_eq!(ran, Ok(()));
    let stats = machine.watch().total_stats();
    assert_eq!(stats.since(&stats), Stats::default(), "nothing since then");
    let waits = stats.waits_ns;
    assert_eq!(waits.iter().sum::<u64>(), 1);
    waits.iter().position(|count| *count == 1).unwrap()
}

#[test]
fn a_wait_is_counted_in_the_bucket_of_its_length() {
    for (elapsed_ns, bucket) in [
        (1, 0),
        (2, 1),
        (3, 1),
        (8, 3),
        ((1 << 31) - 1, 30),
        (1 << 31, WAIT_BUCKETS - 1),
        (1 << 40, WAIT_BUCKETS - 1),
    ] {
        assert_eq!(bucket_of(elapsed_ns), bucket, "{elapsed_ns} ns");
    }
}

#[test]
fn percentiles_are_the_upper_bound_of_the_bucket_that_holds_them() {
    let mut stats = Stats::default();
    assert_eq!(stats.wait_ns(500), None);
    // 3 waits of 4 to 7 ns, 1 of 32 to 63 ns.
    stats.waits_ns[2] = 3;
    stats.waits_ns[5] = 1;
    for (per_mille, bound_ns) in [(0, 7), (500, 7), (749, 7), (750, 63), (990, 63), (1000, 63)] {
        assert_eq!(stats.wait_ns(per_mille), Some(bound_ns), "{per_mille}");
    }
}

#[test]
fn an_interrupt_that_finds_nothing_is_counted_as_spurious() {
    let (machine, puppet) = with_puppet::<2>();
    machine.try_post(&CpuMask::only(cpu(1)), |_| ()).unwrap();
    let counts = |at: u32| {
        let stats = machine.watch().stats(cpu(at));
        (stats.ipis_received, stats.ipis_spurious)
    };
    puppet.deliver(1);
    assert_eq!(counts(1), (1, 0));
    puppet.as_cpu(1, || machine.handle_ipi());
    assert_eq!(counts(1), (2, 1));
}

#[test]
fn every_policy_is_what_its_name_says() {
    let (before, published, best) = (Policy::BEFORE, Policy::PUBLISHED, Policy::BEST);
    let traits = |policy: Policy| {
        (
            policy.is_concurrent(),
            policy.is_inline(),
            policy.acknowledges_early(),
            policy.prefetches(),
            policy.waits_preemptibly(),
            policy.measures_waits(),
        )
    };
    assert_eq!(traits(before), (false, false, false, false, false, false));
    assert_eq!(traits(published), (true, true, true, false, true, false));
    assert_eq!(traits(best), (true, true, true, true, true, false));
    assert_eq!(best.with_lazy(true), best, "on already");
    assert_eq!(best.with_lazy(false).with_lazy(true), best);
    assert_eq!(best.with_lazy(false).name(), "custom");
    assert_eq!(best.with_preemptible_waits(false).name(), "custom");
}

/// One that the engine has no place for, and one that was forgotten.
#[test]
fn a_cpu_without_memory_is_told_what_is_missing() {
    let (_, puppet) = with_puppet::<4>();
    let engine: &'static puppet::Machine<2> = Box::leak(Box::new(Shootdown::new(Seat(puppet))));
    for (number, message) in [
        (3, "cpu3 on an engine for 2 CPUs"),
        (1, "call Shootdown::attach for it first"),
    ] {
        let online = AssertUnwindSafe(|| puppet.as_cpu(number, || engine.online()));
        let panic = catch_unwind(online).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(message), "{text}");
    }
}
