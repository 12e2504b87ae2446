//! A barrier on other CPUs, on real cores: of two threads of a space that announce themselves and look for each other, one issues none itself. A barrier takes
//! longer than stores wait for others, so that alone might pass without one there: the interrupts are counted, too.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};

use shootdown_hosted::{Config, Machine};

/// How often the slow one tries.
const TRIES: u32 = 5_000;

/// A word alone on its lines.
#[repr(align(128))]
struct Line(AtomicU32);

#[test]
fn two_threads_of_which_one_has_no_barrier_of_its_own_find_each_other() {
    let machine = Machine::<2>::start(&Config {
        tasks: 2,
        ..Config::new(2)
    })
    .unwrap();
    let wants = [const { Line(AtomicU32::new(0)) }; 2];
    let (inside, both) = (AtomicU64::new(0), AtomicU32::new(0));
    let (is_there, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    // Whether it has been inside, alone or not.
    let try_enter = |me: usize, barrier: &dyn Fn()| {
        wants[me].0.store(1, Ordering::Relaxed);
        barrier();
        let enters = wants[1 - me].0.load(Ordering::Relaxed) == 0;
        if enters && inside.fetch_add(1, Ordering::AcqRel) != 0 {
            both.fetch_add(1, Ordering::Relaxed);
        }
        if enters {
            inside.fetch_sub(1, Ordering::AcqRel);
        }
        wants[me].0.store(0, Ordering::Release);
        u32::from(enters)
    };
    let entered = [const { AtomicU32::new(0) }; 2];
    let run = |me: usize| {
        machine.enter(Some(0));
        let mut count = 0;
        if me == 0 {
            while !is_there.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let engine = machine.engine();
            for _ in 0..TRIES {
                count += try_enter(0, &|| engine.control().barrier(machine.space(0)).wait());
            }
            is_over.store(true, Ordering::Relaxed);
        } else {
            while !is_over.load(Ordering::Relaxed) {
                count += try_enter(1, &|| compiler_fence(Ordering::SeqCst));
                is_there.store(true, Ordering::Relaxed);
            }
        }
        entered[me].store(count, Ordering::Relaxed);
        machine.enter(None);
    };
    machine.run_tasks(2, run).unwrap();
    let sent = machine.engine().watch().total_stats().ipis_sent;
    assert!(
        sent >= u64::from(TRIES),
        "{TRIES} barriers by {sent} interrupts"
    );
    assert_eq!(both.into_inner(), 0, "both inside at once");
    assert!(entered[1].load(Ordering::Relaxed) > 0, "{entered:?}");
}
