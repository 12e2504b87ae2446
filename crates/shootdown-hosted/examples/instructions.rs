//! The instructions of a call by the engine and by other kernels' algorithms, of both CPUs, on a platform that does nothing. Prints a line of a name and a
//! number for each; `./lab footprint` reads it. Sections of walks are also timed, one after the other on one core, in cycles of its counter. With `--json FILE` also rows of the calls and flushes that `./lab bench shoot --machine cores` times: the figure
//! `cores-instructions`. A flush by a peer is a call of both CPUs.
//!
//! ```text
//! cargo run --release -p shootdown-hosted --example instructions -- [--json FILE]
//! ```

#[path = "stepping/measure.rs"]
mod measure;
mod stepping;

use shootdown::Cpus;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use measure::{count, cycles};
use serde_json::json;
use shootdown::*;
use shootdown_peers::{CrossCall, Peer};
use stepping::Puppet;

/// An engine for 64 CPUs of which two are online in a space: the engine, and the space.
macro_rules! engine {
    ($puppet:ty) => {{
        static ENGINE: Shootdown<$puppet> = Shootdown::new(<$puppet>::new(|| ENGINE.handle_ipi()));
        static MEMORY: [CpuMemory<$puppet>; 2] = [const { CpuMemory::new() }; 2];
        static SPACE: OnceLock<AddressSpace<Cpus<64>>> = OnceLock::new();
        bring_up(&ENGINE, &MEMORY);
        // SAFETY: nothing is loaded.
        let space = SPACE.get_or_init(|| AddressSpace::new(&ENGINE, unsafe { Root::new(1) }));
        for cpu in [1, 0] {
            ENGINE.platform().current.store(cpu, Ordering::Relaxed);
            ENGINE.switch_to(None, space);
        }
        (&ENGINE, space)
    }};
}

fn main() {
    let (engine, space) = engine!(Puppet);
    let (plain, plain_space) = engine!(Puppet<Cpus<64>, true>);
    let page = FlushRange::pages(7 << 12, 1, PageSize::SIZE_4K);
    let flush = count(|| engine.flush(space, page, FreedTables::No));
    let other = CpuMask::only(CpuId::new(1));
    let both: CpuMask<Cpus<64>> = [0, 1].map(CpuId::new).into_iter().collect();
    for (name, call) in [
        (
            "call_one",
            count(|| engine.call_one(CpuId::new(1), &|_| ())),
        ),
        (
            "plain call_one",
            count(|| plain.call_one(CpuId::new(1), &|_| ())),
        ),
        ("flush", flush),
        (
            "plain flush",
            count(|| plain.flush(plain_space, page, FreedTables::No)),
        ),
    ] {
        println!("{name} {call}");
    }
    // SAFETY: nothing is loaded.
    let other_space = AddressSpace::new(engine, unsafe { Root::new(2) });
    for (name, space) in [("walk", space), ("walk elsewhere", &other_space)] {
        let section = || drop(engine.user_memory().walk(space));
        println!("{name} {}", count(section));
        println!("{name} cycles {}", cycles(&section));
    }
    let mut rows = Vec::new();
    let mut note = |peer: &str, call: u64, flush: u64| {
        println!("{peer} {call}");
        for (operation, instructions) in [("call", call), ("flush", flush)] {
            rows.push(json!({"peer": peer, "operation": operation, "instructions": instructions}));
        }
    };
    note(
        "plain",
        count(|| plain.call_many(&other, &|_: CpuId| ())),
        count(|| plain.flush(plain_space, page, FreedTables::No)),
    );
    for (at, peer) in PEERS.into_iter().enumerate() {
        let calls = calls(at, peer);
        let call = count(|| calls.call(&other, &|_| ()));
        let flush = match peer {
            Peer::Shootdown => flush,
            _ => count(|| calls.call(&both, &|_| ())),
        };
        note(peer.name(), call, flush);
    }
    for (name, policy) in [
        ("engine before", Policy::BEFORE),
        ("engine published", Policy::PUBLISHED),
    ] {
        engine.set_policy(policy);
        let call = count(|| engine.call_many(&other, &|_: CpuId| ()));
        note(
            name,
            call,
            count(|| engine.flush(space, page, FreedTables::No)),
        );
    }
    let mut words = std::env::args().skip(1);
    match (words.next().as_deref(), words.next()) {
        (None, _) => {}
        (Some("--json"), Some(file)) => {
            let result = json!({ "rows": rows }).to_string();
            std::fs::write(&file, result).unwrap_or_else(|error| panic!("{file}: {error}"));
        }
        (Some(word), _) => panic!("{word}? Use --json FILE"),
    }
}

/// Has two CPUs online.
fn bring_up<const PLAIN: bool>(
    engine: &Shootdown<Puppet<Cpus<64>, PLAIN>>,
    memory: &'static [CpuMemory<Puppet<Cpus<64>, PLAIN>>; 2],
) {
    engine.attach(CpuId::new(0), memory);
    for cpu in [1, 0] {
        engine.platform().current.store(cpu, Ordering::Relaxed);
        engine.online();
    }
}

const PEERS: [Peer; 9] = {
    let ([a, b, c, d, e, f], [g, h, i]) = (Peer::ALL, Peer::DESIGNS);
    [a, b, c, d, e, f, g, h, i]
};

/// Calls of a peer through their trait, with two CPUs.
fn calls(at: usize, peer: Peer) -> &'static dyn CrossCall<Cpus<64>> {
    static CALLS: [OnceLock<&'static dyn CrossCall<Cpus<64>>>; PEERS.len()] =
        [const { OnceLock::new() }; PEERS.len()];
    static MEMORY: [CpuMemory<Puppet>; 2] = [const { CpuMemory::new() }; 2];

    fn handle_ipi<const PEER: usize>() {
        CALLS[PEER].get().expect("it is made").handle_ipi();
    }
    const HANDLERS: [fn(); PEERS.len()] = [
        handle_ipi::<0>,
        handle_ipi::<1>,
        handle_ipi::<2>,
        handle_ipi::<3>,
        handle_ipi::<4>,
        handle_ipi::<5>,
        handle_ipi::<6>,
        handle_ipi::<7>,
        handle_ipi::<8>,
    ];
    let puppet = || Puppet::new(HANDLERS[at]);
    *CALLS[at].get_or_init(|| match peer.calls(puppet(), 2) {
        Some(calls) => Box::leak(calls),
        None => {
            let engine = Box::leak(Box::new(Shootdown::new(puppet())));
            bring_up(engine, &MEMORY);
            engine
        }
    })
}
