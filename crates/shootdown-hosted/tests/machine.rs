//! The machine itself: jobs, tasks, coming and going, and loads through translations.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use shootdown::{CallTargets, CpuId, CpuMask, Cpus, FlushRange, FreedTables, PageSize, Platform};
use shootdown_hosted::{Config, Machine, Part, Refused};

fn cpu(index: u32) -> CpuId {
    CpuId::new(index)
}

#[test]
fn a_job_runs_on_its_cpu_and_returns_its_value() {
    let machine = Machine::<4>::start(&Config::new(3)).unwrap();
    for index in 0..3 {
        let here = machine.run_on(cpu(index), || machine.engine().platform().current_cpu());
        assert_eq!(here, Ok(cpu(index)));
    }
    assert_eq!(machine.run_on(cpu(3), || ()), Err(Refused::Offline(cpu(3))));
}

#[test]
fn too_many_cpus_are_refused_in_words() {
    let refused = Machine::<2>::start(&Config::new(3)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "3 CPUs on a machine for 1 to 2: ask for fewer, or build a larger Machine"
    );
    assert!(Machine::<2>::start(&Config::new(0)).is_err());
}

#[test]
fn a_call_interrupts_cpus_that_never_look() {
    let machine = Machine::<3>::start(&Config {
        tasks: 3,
        ..Config::new(3)
    })
    .unwrap();
    let (calls, spins) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Two tasks spin without any call into the machine until the third has called them.
    machine
        .run_tasks(3, |task| {
            if task == 0 {
                while spins.load(Ordering::Relaxed) < 2 {
                    std::hint::spin_loop();
                }
                let ran = machine.engine().call_many(CallTargets::Online, &|_| {
                    calls.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(ran.len(), 3);
                calls.fetch_add(100, Ordering::Relaxed);
            } else {
                spins.fetch_add(1, Ordering::Relaxed);
                while calls.load(Ordering::Relaxed) < 100 {
                    std::hint::spin_loop();
                }
            }
        })
        .unwrap();
    assert_eq!(calls.into_inner(), 103);
}

#[test]
fn a_load_finds_the_old_frame_until_the_flush() {
    let machine = Machine::<2>::start(&Config::new(2)).unwrap();
    let (memory, part) = (machine.memory(), Part::Space(0));
    memory.write_frame(7, 70);
    memory.write_frame(8, 80);
    memory.map(part, 3, Some(7));
    let run =
        |index, job: &(dyn Fn() -> Option<u64> + Sync)| machine.run_on(cpu(index), job).unwrap();
    let found = run(1, &|| {
        machine.enter(Some(0));
        let before = machine.load(part, 3);
        memory.map(part, 3, Some(8));
        assert_eq!(machine.load(part, 3), before, "nobody has flushed");
        let range = FlushRange::pages(memory.address(part, 3), 1, PageSize::SIZE_4K);
        machine
            .engine()
            .flush(machine.space(0), range, FreedTables::No);
        assert_eq!(machine.load(part, 3), Some(80));
        before
    });
    assert_eq!(found, Some(70));
    assert_eq!(
        run(1, &|| machine.load(part, 3)),
        None,
        "a job leaves no space behind"
    );
}

#[test]
fn more_tasks_than_cpus_take_turns_and_move() {
    let machine = Machine::<2>::start(&Config {
        tasks: 5,
        tick: Some(Duration::from_micros(300)),
        ..Config::new(2)
    })
    .unwrap();
    let seen = Mutex::new(CpuMask::<Cpus<2>>::EMPTY);
    let arrived = AtomicUsize::new(0);
    machine
        .run_tasks(5, |_| {
            // Every task waits for all others: without preemption two of them would wait for ever.
            arrived.fetch_add(1, Ordering::Relaxed);
            while arrived.load(Ordering::Relaxed) < 5 {
                std::hint::spin_loop();
            }
            for _ in 0..50 {
                machine.preempt();
                let state = machine.engine().platform().irq_save();
                let here = machine.engine().platform().current_cpu();
                seen.lock().unwrap().insert(here);
                // SAFETY: 1. saved above.
                unsafe { machine.engine().platform().irq_restore(state) };
            }
        })
        .unwrap();
    assert_eq!(seen.into_inner().unwrap().len(), 2);
    assert!(machine.run_tasks(6, |_| ()).is_err());
}

#[test]
fn cpus_come_and_go_and_the_last_one_stays() {
    let machine = Machine::<3>::start(&Config::new(3)).unwrap();
    machine.take_offline(cpu(1)).unwrap();
    assert_eq!(machine.take_offline(cpu(1)), Err(Refused::Offline(cpu(1))));
    assert_eq!(machine.run_on(cpu(1), || ()), Err(Refused::Offline(cpu(1))));
    let ran = machine.run_on(cpu(0), || {
        machine.engine().call_many(CallTargets::Online, &|_| ())
    });
    assert_eq!(ran.unwrap().len(), 2);
    machine.take_offline(cpu(0)).unwrap();
    assert_eq!(machine.take_offline(cpu(2)), Err(Refused::Last(cpu(2))));
    machine.bring_online(cpu(0)).unwrap();
    assert_eq!(machine.bring_online(cpu(0)), Err(Refused::Online(cpu(0))));
    machine.bring_online(cpu(1)).unwrap();
    assert_eq!(machine.engine().ready_cpus().len(), 3);
}

#[test]
fn a_job_that_panics_panics_in_its_caller_and_the_cpu_lives_on() {
    let machine = Machine::<1>::start(&Config::new(1)).unwrap();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = machine.run_on(cpu(0), || panic!("on purpose"));
    }));
    assert!(outcome.is_err());
    assert_eq!(machine.run_on(cpu(0), || 5), Ok(5));
}

#[test]
#[should_panic(expected = "this thread is no CPU of this machine")]
fn the_engine_refuses_threads_that_are_no_cpu() {
    let machine = Machine::<1>::start(&Config::new(1)).unwrap();
    machine.engine().call_many(CallTargets::Online, &|_| ());
}
