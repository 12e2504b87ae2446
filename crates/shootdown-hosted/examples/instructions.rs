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
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use measure::{count, cycles};
use serde_json::json;
use shootdown::reach::{ReachRoot, Region};
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
    tracked();
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

/// What a space costs that is tracked, beside one that is not.
fn tracked() {
    let (engine, space) = engine!(Puppet<Cpus<64>, false, false, true>);
    // SAFETY: nothing is loaded.
    let root = |number| unsafe { Root::new(number) };
    let [other_space, tracked] = [2, 3].map(|number| AddressSpace::new(engine, root(number)));
    let page = |region: usize| FlushRange::pages(region << 39, 1, PageSize::SIZE_4K);
    let flush = |space, region| count(|| engine.flush(space, page(region), FreedTables::No));
    let switch = count(|| {
        engine.switch_to(Some(space), &other_space);
        engine.switch_to(Some(&other_space), space);
    }) / 2;
    println!("untracked flush {}", flush(space, 0));
    println!("untracked switch {switch}");
    let reach = engine.user_memory().reach();
    let regions: &[Region<_>] = Box::leak((0..256).map(|_| Region::new()).collect::<Box<[_]>>());
    // SAFETY: 1. they are leaked.
    unsafe { reach.track(&tracked, regions) };
    let own = [0, 1].map(|cpu| {
        let root = root(4 + u64::from(cpu));
        Box::pin(ReachRoot::new(engine, &tracked, CpuId::new(cpu), root))
    });
    let enter = |before, cpu: usize| reach.switch_to(Some(before), &tracked, own[cpu].as_ref());
    let take = |cpu: usize, region: usize| reach.take(&tracked, own[cpu].as_ref(), region << 39);
    for cpu in [1, 0] {
        engine
            .platform()
            .current
            .store(cpu as u32, Ordering::Relaxed);
        enter(space, cpu);
        take(cpu, 0);
    }
    take(0, 1);
    println!("tracked flush {}", flush(&tracked, 0));
    println!("tracked flush alone {}", flush(&tracked, 1));
    let there_and_back = count(|| {
        engine.switch_to(Some(&tracked), space);
        enter(space, 0);
    });
    println!("tracked switch {}", there_and_back - switch);
    let next = Cell::new(2);
    println!("take {}", count(|| take(0, next.replace(next.get() + 1))));
    // It ends with the process, as do the roots.
    std::mem::forget((tracked, other_space, own));
}

/// Has two CPUs online.
fn bring_up<const PLAIN: bool, const WINDOWS: bool>(
    engine: &Shootdown<Puppet<Cpus<64>, PLAIN, false, WINDOWS>>,
    memory: &'static [CpuMemory<Puppet<Cpus<64>, PLAIN, false, WINDOWS>>; 2],
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
