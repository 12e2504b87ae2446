//! The instructions of a call by the engine and by other kernels' algorithms, of both CPUs, on a platform that does nothing. Prints a line of a name and a
//! number for each; `./lab footprint` reads it.
//!
//! ```text
//! cargo run --release -p shootdown-hosted --example instructions
//! ```

mod stepping;

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use shootdown::*;
use shootdown_peers::{CrossCall, Peer};
use stepping::{Puppet, step_through};

type Engine = Shootdown<Puppet, 64>;

fn main() {
    static ENGINE: Engine = Shootdown::new(Puppet::new(|| ENGINE.handle_ipi()));
    static MEMORY: [CpuMemory<64>; 2] = [const { CpuMemory::new() }; 2];
    bring_up(&ENGINE, &MEMORY);
    // SAFETY: nothing is loaded.
    let space = AddressSpace::new(&ENGINE, unsafe { Root::new(1) });
    for cpu in [1, 0] {
        ENGINE.platform().current.store(cpu, Ordering::Relaxed);
        ENGINE.switch_to(None, &space);
    }
    let page = FlushRange::pages(7 << 12, 1, PageSize::SIZE_4K);
    let call = count(|| ENGINE.call_one(CpuId::new(1), &|_| ()));
    let flush = count(|| ENGINE.flush(&space, page, FreedTables::No));
    println!("call_one {call}");
    println!("flush {flush}");
    for (at, peer) in Peer::ALL.into_iter().enumerate() {
        println!("{} {}", peer.name(), call_of(at, peer));
    }
    for cpu in [1, 0] {
        ENGINE.platform().current.store(cpu, Ordering::Relaxed);
        // SAFETY: nothing is loaded.
        ENGINE.switch_away(&space, unsafe { KernelRoot::new(2) });
    }
}

/// Has two CPUs online.
fn bring_up(engine: &Engine, memory: &'static [CpuMemory<64>; 2]) {
    for (cpu, memory) in (0..).map(CpuId::new).zip(memory) {
        engine.attach(cpu, memory);
    }
    for cpu in [1, 0] {
        engine.platform().current.store(cpu, Ordering::Relaxed);
        engine.online();
    }
}

/// The instructions of a call with a mask of one CPU, through the trait of the peers.
fn call_of(at: usize, peer: Peer) -> u64 {
    static CALLS: [OnceLock<&'static dyn CrossCall<64>>; Peer::ALL.len()] =
        [const { OnceLock::new() }; Peer::ALL.len()];
    static MEMORY: [CpuMemory<64>; 2] = [const { CpuMemory::new() }; 2];

    fn handle_ipi<const PEER: usize>() {
        CALLS[PEER].get().expect("it is made").handle_ipi();
    }
    const HANDLERS: [fn(); Peer::ALL.len()] = [
        handle_ipi::<0>,
        handle_ipi::<1>,
        handle_ipi::<2>,
        handle_ipi::<3>,
        handle_ipi::<4>,
        handle_ipi::<5>,
    ];
    let puppet = || Puppet::new(HANDLERS[at]);
    let calls = CALLS[at].get_or_init(|| match peer.calls(puppet(), 2) {
        Some(calls) => Box::leak(calls),
        None => {
            let engine = Box::leak(Box::new(Shootdown::new(puppet())));
            bring_up(engine, &MEMORY);
            engine
        }
    });
    let other = CpuMask::only(CpuId::new(1));
    count(|| calls.call(&other, &|_| ()))
}

fn count<R>(operation: impl Fn() -> R) -> u64 {
    let mut instructions = 0;
    step_through(operation, |_| instructions += 1);
    instructions
}
