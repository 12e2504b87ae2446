//! Behaviour on a platform that leaves all that it may to the defaults.

#![cfg(not(loom))]

mod puppet;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use puppet::{KERNEL_ROOT, cpu, pages, tables};
use shootdown::*;
use shootdown::{Cpus, remote::*, tags::*};

/// Two CPUs. Interrupts are taken when the test says so.
#[derive(Default)]
struct State {
    current: AtomicU32,
    loads: Mutex<Vec<(u32, u64)>>,
    flushes: Mutex<Vec<(u32, LocalFlush)>>,
}

/// A platform of this name, with what every platform must have, and these.
macro_rules! platform {
    ($name:ident { $($more:tt)* }) => {
        #[derive(Default)]
        struct $name(State);

        // SAFETY: one thread plays both CPUs, which have no TLB, and takes each interrupt itself.
        unsafe impl Platform for $name {
            type Cpus = Cpus<2>;
            const CONFIG: Config = Config::PLAIN.with_any_policy().with_counters(true);
            type IrqState = ();
            fn current_cpu(&self) -> CpuId {
                cpu(self.0.current.load(Relaxed))
            }
            fn irq_save(&self) {}
            unsafe fn irq_restore(&self, (): ()) {}
            fn preempt_disable(&self) {}
            unsafe fn preempt_enable(&self) {}
            fn send_ipi(&self, _: CpuId) -> Result<(), IpiRefused> {
                Ok(())
            }
            fn local_flush(&self, operation: LocalFlush) {
                let flush = (self.0.current.load(Relaxed), operation);
                self.0.flushes.lock().unwrap().push(flush);
            }
            unsafe fn load_root(&self, root: u64) {
                let load = (self.0.current.load(Relaxed), root);
                self.0.loads.lock().unwrap().push(load);
            }
            fn now_ns(&self) -> u64 {
                0
            }
            $($more)*
        }

        impl AsRef<State> for $name {
            fn as_ref(&self) -> &State {
                &self.0
            }
        }
    };
}

platform!(Bare {
    fn flush_remote(&self, _: &mut RemoteTargets<'_>, _: &FlushRequest) -> RemoteFlush {
        unreachable!("it does not say that it flushes remotely");
    }
});

static TAGS: [TagSet; 1] = [const { TagSet::new() }; 1];

// Tags for all CPUs, without the instruction that flushes by them.
platform!(Tagged {
    fn flushes_remotely(&self) -> bool {
        true
    }
    fn global_tags(&self) -> GlobalTags {
        GlobalTags::new(Asid::new(1), &TAGS)
    }
});

fn as_cpu<P: Platform<Cpus = Cpus<2>> + AsRef<State>, R>(
    engine: &Shootdown<P>,
    number: u32,
    body: impl FnOnce() -> R,
) -> R {
    let current = &engine.platform().as_ref().current;
    let before = current.swap(number, Relaxed);
    let result = body();
    current.store(before, Relaxed);
    result
}

/// Both CPUs are online, and there are two spaces.
fn start<P: Platform<Cpus = Cpus<2>> + AsRef<State> + Default>()
-> (&'static Shootdown<P>, [AddressSpace<Cpus<2>>; 2]) {
    let engine: &'static Shootdown<P> = Box::leak(Box::new(Shootdown::new(P::default())));
    let memory = Box::leak(Box::new([const { CpuMemory::new() }; 2]));
    engine.attach(CpuId::new(0), memory);
    (0..2).for_each(|number| as_cpu(engine, number, || engine.online()));
    engine.platform().as_ref().flushes.lock().unwrap().clear();
    let spaces = [1, 2].map(|root| AddressSpace::new(engine, tables(root)));
    (engine, spaces)
}

/// Both leave `space`, whose root they have loaded.
fn leave<P: Platform<Cpus = Cpus<2>> + AsRef<State>>(
    engine: &Shootdown<P>,
    space: &AddressSpace<Cpus<2>>,
) {
    for number in 0..2 {
        as_cpu(engine, number, || engine.switch_away(space, KERNEL_ROOT));
    }
}

/// Without tags, each switch is the load of a root. Two spaces of an engine are its own.
#[test]
fn roots_are_loaded_without_tags() {
    let (engine, [one, other]) = start::<Bare>();
    engine.switch_to(None, &one);
    engine.switch_to(Some(&one), &other);
    engine.switch_away(&other, KERNEL_ROOT);
    let loads = std::mem::take(&mut *engine.platform().as_ref().loads.lock().unwrap());
    assert_eq!(loads, [1, 2, KERNEL_ROOT.as_u64()].map(|root| (0, root)));
    assert_ne!(one.id(), other.id());
}

/// A CPU that has seen all changes before drops single pages, however many there were.
#[test]
fn one_flush_after_the_other_drops_single_pages() {
    let (engine, [space, _]) = start::<Bare>();
    (0..2).for_each(|number| as_cpu(engine, number, || engine.switch_to(None, &space)));
    for page in 0..3 {
        let ticket = engine.submit_flush(&space, pages(page, 1), FreedTables::No);
        as_cpu(engine, 1, || engine.handle_ipi());
        ticket.wait();
        let flushes = std::mem::take(&mut *engine.platform().as_ref().flushes.lock().unwrap());
        let dropped = LocalFlush::Pages(pages(page, 1), FreedTables::No);
        assert_eq!(flushes, [(0, dropped), (1, dropped)]);
    }
    leave(engine, &space);
}

/// It has nothing that does what the tags are for: CPUs are interrupted.
#[test]
fn tags_without_the_instruction_are_flushed_by_interrupts() {
    let (engine, [space, _]) = start::<Tagged>();
    engine.set_policy(Policy::BEST.with_global_tags_from(1));
    (0..2).for_each(|number| as_cpu(engine, number, || engine.switch_to(None, &space)));
    for page in 0..4 {
        let ticket = engine.submit_flush(&space, pages(page, 1), FreedTables::No);
        assert!(!ticket.is_done(), "change {page}");
        as_cpu(engine, 1, || engine.handle_ipi());
        assert!(ticket.is_done());
    }
    let stats = engine.watch().total_stats();
    assert_eq!((stats.tags_globalized, stats.flushes_everywhere), (2, 0));
    leave(engine, &space);
}

/// So that a `static` of it lies in `.bss`.
#[test]
#[cfg_attr(miri, ignore = "it reads padding, too")]
fn the_memory_of_a_cpu_is_zero_at_the_start() {
    static MEMORY: CpuMemory<Bare> = CpuMemory::new();
    let first = (&raw const MEMORY).cast::<u8>();
    for offset in 0..size_of_val(&MEMORY) {
        // SAFETY: it lies in the static, which nobody uses. The linker has given each byte a value.
        let byte = unsafe { first.wrapping_add(offset).read_volatile() };
        assert_eq!(byte, 0, "at {offset}");
    }
}
