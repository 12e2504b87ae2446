//! Uses what ordinary programs use of `std`: threads, locks, channels, time, pinning, panics, files.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, RwLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use shootdown_user::checks;
use shootdown_user::machine;

/// More than any machine here has CPUs, so that they share them.
const CROWD: usize = 24;

fn mutexes_count_right() {
    let count = Arc::new(Mutex::new(0u64));
    let threads = [(); CROWD].map(|()| {
        let count = Arc::clone(&count);
        thread::spawn(move || (0..500).for_each(|_| *count.lock().unwrap() += 1))
    });
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(*count.lock().unwrap(), 500 * CROWD as u64);
}

fn condvars_hand_over() {
    let turn = Arc::new((Mutex::new(0usize), Condvar::new()));
    let threads = [0, 1, 2, 3].map(|me| {
        let turn = Arc::clone(&turn);
        thread::spawn(move || {
            for round in 0..50 {
                let mut now = turn.0.lock().unwrap();
                while *now != round * 4 + me {
                    now = turn.1.wait(now).unwrap();
                }
                *now += 1;
                turn.1.notify_all();
            }
        })
    });
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(*turn.0.lock().unwrap(), 200);
}

fn condvar_times_out() {
    let (lock, condvar) = (Mutex::new(()), Condvar::new());
    let start = Instant::now();
    let (guard, span) = (lock.lock().unwrap(), Duration::from_millis(20));
    let (_guard, result) = condvar.wait_timeout(guard, span).unwrap();
    assert!(result.timed_out() && start.elapsed() >= span);
}

fn channels_deliver_in_order() {
    let (to, from) = mpsc::sync_channel(4);
    let sender = thread::spawn(move || (0..1000u32).for_each(|n| to.send(n).unwrap()));
    assert!(from.iter().eq(0..1000));
    sender.join().unwrap();
}

fn barriers_and_readers() {
    let (barrier, shared) = (Arc::new(Barrier::new(8)), Arc::new(RwLock::new(0)));
    let leaders = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for round in 0..20 {
                    if barrier.wait().is_leader() {
                        leaders.fetch_add(1, Ordering::Relaxed);
                        *shared.write().unwrap() = round;
                    }
                    barrier.wait();
                    assert_eq!(*shared.read().unwrap(), round);
                }
            });
        }
    });
    assert_eq!(leaders.into_inner(), 20);
}

fn parked_threads_wake() {
    let flag = Arc::new(AtomicU64::new(0));
    let thread = thread::spawn({
        let flag = Arc::clone(&flag);
        move || {
            while flag.load(Ordering::Acquire) == 0 {
                thread::park();
            }
        }
    });
    thread::sleep(Duration::from_millis(2));
    flag.store(1, Ordering::Release);
    thread.thread().unpark();
    thread.join().unwrap();
}

fn sleeping_takes_its_time() {
    for ms in [0, 1, 5, 30] {
        let (start, span) = (Instant::now(), Duration::from_millis(ms));
        thread::sleep(span);
        let took = start.elapsed();
        assert!(took >= span, "{took:?} for {span:?}");
        let is_soon = took < span + Duration::from_secs(2);
        assert!(is_soon, "{took:?} for {span:?}");
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let is_plausible = since > Duration::from_secs(1_600_000_000);
    assert!(is_plausible, "the wall clock says {since:?}");
}

fn pinning_moves_at_once_and_holds() {
    let all = machine::allowed_cpus().unwrap();
    assert_eq!(all.len(), thread::available_parallelism().unwrap().get());
    thread::scope(|scope| {
        for first in 0..all.len().min(8) {
            let all = &all;
            scope.spawn(move || {
                for step in 0..all.len() * 3 {
                    let cpu = all[(first + step) % all.len()];
                    machine::pin_to(cpu).unwrap();
                    assert_eq!(machine::current_cpu(), cpu);
                    thread::yield_now();
                    thread::sleep(Duration::from_micros(200));
                    assert_eq!(machine::current_cpu(), cpu);
                }
            });
        }
    });
}

fn busy_threads_share_one_cpu() {
    let done = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                machine::pin_to(0).unwrap();
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(40) {
                    std::hint::spin_loop();
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(done.into_inner(), 3);
}

fn panics_are_caught() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = thread::spawn(|| panic!("on purpose")).join();
    std::panic::set_hook(hook);
    let text = *result.unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(text, "on purpose");
}

fn many_threads_come_and_go() {
    static ONCE: Once = Once::new();
    let live = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let threads = [(); CROWD].map(|()| {
            let live = Arc::clone(&live);
            thread::spawn(move || {
                ONCE.call_once(|| {});
                live.fetch_add(1, Ordering::Relaxed);
            })
        });
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
    assert_eq!(live.load(Ordering::Relaxed), 20 * CROWD);
}

fn floating_point_survives_switches() {
    thread::scope(|scope| {
        for seed in 1..=8 {
            scope.spawn(move || {
                let mut x = f64::from(seed);
                for step in 1..200_000 {
                    x += 1.0 / f64::from(step);
                }
                let mut y = f64::from(seed);
                (1..200_000).for_each(|step| y += 1.0 / f64::from(step));
                assert_eq!(x.to_bits(), y.to_bits());
            });
        }
    });
}

fn files_are_there() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("[stack]"), "{maps}");
    let exe = std::env::current_exe().unwrap();
    assert!(std::fs::metadata(&exe).unwrap().is_file());
    assert_eq!(&std::fs::read(&exe).unwrap()[..4], b"\x7fELF");
    assert!(std::fs::read("/nonexistent").is_err());
    let dev = std::fs::read_dir("/proc").unwrap();
    let dev: Vec<_> = dev.map(|e| e.unwrap().file_name()).collect();
    assert!(dev.iter().any(|name| name == "cpuinfo"), "{dev:?}");
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    println!("t_std: online: {:?}", online.map(|s| s.trim().to_owned()));
    let map: HashMap<u32, u32> = (0..100).map(|n| (n, n * n)).collect();
    assert_eq!(map[&9], 81);
}

fn big_allocations_work() {
    let big = vec![7u8; 24 << 20];
    assert!(big.iter().step_by(4096).all(|&b| b == 7));
    let mut grown = Vec::new();
    (0..400_000u64).for_each(|n| grown.push(n));
    assert_eq!(grown.iter().sum::<u64>(), 399_999 * 200_000);
}

fn main() -> ExitCode {
    checks::run(
        "t_std",
        &checks::named![
            mutexes_count_right,
            condvars_hand_over,
            condvar_times_out,
            channels_deliver_in_order,
            barriers_and_readers,
            parked_threads_wake,
            sleeping_takes_its_time,
            pinning_moves_at_once_and_holds,
            busy_threads_share_one_cpu,
            panics_are_caught,
            many_threads_come_and_go,
            floating_point_survives_switches,
            files_are_there,
            big_allocations_work,
        ],
    )
}
