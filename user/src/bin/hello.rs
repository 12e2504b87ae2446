//! Says which arguments it got and how many CPUs there are, and runs four threads.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use shootdown_user::{machine, report};

const THREADS: u32 = 4;

fn main() -> ExitCode {
    machine::prepare();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    println!("hello: arguments {arguments:?}");
    match machine::allowed_cpus() {
        Ok(cpus) => println!("hello: {} CPUs: {cpus:?}", cpus.len()),
        Err(error) => println!("hello: cannot tell which CPUs there are: {error}"),
    }
    let sum = AtomicU32::new(0);
    thread::scope(|scope| {
        for thread in 1..=THREADS {
            let sum = &sum;
            scope.spawn(move || sum.fetch_add(thread, Ordering::Relaxed));
        }
    });
    let sum = sum.into_inner();
    println!("hello: {THREADS} threads added up to {sum}");
    report::drain();
    if sum == THREADS * (THREADS + 1) / 2 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
