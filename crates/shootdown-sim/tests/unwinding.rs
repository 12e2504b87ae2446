//! Platforms that unwind, although none may: what a host has unlinked is leaked, or the process ends; it is never free early.

use std::process::Command;
use std::{env, str};

use shootdown_sim::fuzz::{Case, is_unwinding, run_unwinding};

/// Set, the test plays from this seed and call on.
const FROM: &str = "SHOOTDOWN_UNWINDING_FROM";
const SEEDS: u64 = 24;
/// Seeds whose runs all ended the process would show nothing.
const FEWEST_LEAKS: usize = 100;

/// The next call to unwind at: the first ones, and fewer and fewer of the others.
const fn after(call: u32) -> u32 {
    call + 1 + call / 4
}

fn play(seed: u64, mut call: u32) {
    let case = Case::new(2 + seed as usize % 3, seed);
    loop {
        // Behind what the test program says of the test.
        println!("\nat {seed} {call}");
        match run_unwinding(&case, call) {
            None => return,
            Some(failure) => assert!(is_unwinding(&failure), "{case}, call {call}: {failure}"),
        }
        call = after(call);
    }
}

fn play_from(place: &str) {
    let (seed, call) = place.split_once(' ').expect("a seed and a call");
    let (first, call) = (seed.parse().unwrap(), call.parse().unwrap());
    play(first, call);
    (first + 1..=SEEDS).for_each(|seed| play(seed, 1));
}

#[test]
fn a_platform_that_unwinds_gets_nothing_freed_early() {
    if let Some(place) = env::var_os(FROM) {
        return play_from(place.to_str().expect("numbers"));
    }
    let (mut place, mut leaks) = ("1 1".to_owned(), 0);
    loop {
        let mut again = Command::new(env::current_exe().expect("a test is a program"));
        again.args(["--exact", "--nocapture", "--test-threads=1"]);
        again.arg("a_platform_that_unwinds_gets_nothing_freed_early");
        let output = again.env(FROM, &place).output().expect("it can be run");
        let told = str::from_utf8(&output.stdout).expect("text");
        let reached = told.lines().filter_map(|line| line.strip_prefix("at "));
        let reached: Vec<&str> = reached.collect();
        leaks += reached.len();
        match output.status.code() {
            Some(0) => break,
            Some(_) => panic!("{told}\n{}", String::from_utf8_lossy(&output.stderr)),
            // A signal: the engine has ended the process, and what it has lent is lent no more.
            None => {}
        }
        let (seed, call) =
            (reached.last().and_then(|last| last.split_once(' '))).expect("it says where it is");
        place = format!("{seed} {}", after(call.parse().unwrap()));
    }
    assert!(leaks > FEWEST_LEAKS, "{leaks}");
}
