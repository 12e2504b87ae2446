//! Threads fault on pages whose tables another one takes away again and again. The kernel reads these tables without their lock; where it does not say so
//! (`break=walk-unprotected`), it finds that one was freed under it.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use shootdown_user::collapse::{PAGE, PLACE, REGION, read};
use shootdown_user::{checks, machine, memory_file};

const ROUNDS: usize = 4_000;
/// One in so many gives the CPU away.
const YIELDS: usize = 200;

fn main() -> ExitCode {
    machine::prepare();
    checks::fail_on_panic("t_walk");
    let file = memory_file::create(c"t_walk", PAGE as u64).expect("a file");
    let ends = AtomicBool::new(false);
    let readers = machine::allowed_cpus()
        .map_or(1, |cpus| cpus.len() as u64 - 1)
        .max(1);
    let (mut there, mut gone) = (0, 0);
    thread::scope(|scope| {
        let all: Vec<_> = (0..readers)
            .map(|seed| {
                let (file, ends) = (&file, &ends);
                scope.spawn(move || read(file, seed, ends))
            })
            .collect();
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        for round in 0..ROUNDS {
            let at = machine::map(PLACE, REGION, rights, libc::MAP_FIXED_NOREPLACE)
                .expect("the place is free");
            for page in 0..4 {
                // SAFETY: just mapped; the kernel alone reads there.
                unsafe { ((at + page * PAGE) as *mut u64).write_volatile(round as u64) };
            }
            // On one CPU they read then, and below.
            if round % YIELDS == 0 {
                thread::yield_now();
            }
            // SAFETY: nobody uses it but the kernel for the readers, which are told.
            assert_eq!(unsafe { libc::munmap(at as *mut _, REGION) }, 0);
            if round % YIELDS == 1 {
                thread::yield_now();
            }
        }
        ends.store(true, Relaxed);
        for reader in all {
            let (found, missed) = reader.join().expect("it does not panic");
            there += found;
            gone += missed;
        }
    });
    assert!(
        there > 0 && gone > 0,
        "{there} reads found a page, {gone} did not"
    );
    println!("t_walk: OK: {there} reads found a page, {gone} did not");
    ExitCode::SUCCESS
}
