//! Start here: calls on other CPUs, a page that every CPU must forget, and the counters. No kernel needed:
//! `cargo run -p shootdown-hosted --example start_here`.

use std::sync::atomic::{AtomicU64, Ordering};

use shootdown::{CallTargets, CpuId, FlushBatch, PageSize, calls::Wait};
use shootdown_hosted::{Config, Machine, Part};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Four threads play CPUs; signals are their interrupts.
    let machine = Machine::<4>::start(&Config::new(4))?;
    let (engine, memory) = (machine.engine(), machine.memory());
    let (first, second) = (CpuId::new(0), CpuId::new(1));

    machine.run_on(first, || {
        // Run a function on other CPUs. It is borrowed: the call returns when all have run it.
        let sum = AtomicU64::new(0);
        let ran = engine.call_many(CallTargets::Online, &|cpu| {
            sum.fetch_add(1 << (8 * cpu.index()), Ordering::Relaxed);
        });
        println!("{} CPUs ran it: {:#010x}", ran.len(), sum.into_inner());

        // Or send a copy, and wait for it later and only as far as needed.
        let ticket = engine.submit(&ran, |_| (), Wait::Received);
        println!("do something else meanwhile, then {:?}", ticket.wait());
    })?;

    // Two CPUs use one address space, whose page 3 is frame 42, and both have that in their TLBs.
    let (space, page) = (Part::Space(0), 3);
    memory.write_frame(42, 4711);
    memory.map(space, page, Some(42));
    machine.run_on(first, || {
        machine.enter(Some(0));
        println!("{first} reads {:?}", machine.load(space, page));
        let unmapped = machine.run_on(second, || {
            machine.enter(Some(0));
            println!("{second} reads {:?}", machine.load(space, page));

            // Unmap it: clear the entry, gather what was unlinked, submit (under your lock), wait (after it).
            memory.map(space, page, None);
            let mut batch = FlushBatch::<usize, 8>::new(machine.space(0));
            let address = memory.address(space, page);
            let added = batch.page(address, PageSize::SIZE_4K, 42);
            added.expect("a batch of eight has room for one");
            for frame in engine.submit_batch(machine.space(0), batch).wait() {
                println!("frame {frame} is free: no CPU can reach it any more");
            }
        });
        unmapped.expect("the second CPU is online");
        println!("{first} reads {:?}", machine.load(space, page));
    })?;

    for (name, count) in engine
        .watch()
        .total_stats()
        .iter()
        .filter(|(_, count)| *count > 0)
    {
        println!("{count:>6} {name}");
    }
    Ok(())
}
