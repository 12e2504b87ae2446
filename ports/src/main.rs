//! A machine of CPUs in their privileged mode, in QEMU's `virt` board: page tables, interrupts, and the engine. What differs between architectures is in `arch`.
//!
//! It boots all CPUs, does what its [options](options) ask for, and ends the machine. What it has to say goes to the serial port, a line each; the last line
//! begins with `ports: `.

#![no_std]
#![no_main]

mod arch;
mod console;
mod cpus;
mod memory;
mod options;
mod pingpong;
mod platform;
mod shoot;
mod tables;
mod torture;

use core::panic::PanicInfo;

use cpus::AtBoot;
use options::Options;

static OPTIONS: AtBoot<Options> = AtBoot::new();

/// What there is to be done: its name, what the boot CPU does, and what every other CPU does whenever it has come online.
const WORKS: [(&str, fn(&Options) -> bool, fn() -> !); 3] = [
    ("torture", torture::lead, torture::follow),
    ("shoot", shoot::lead, shoot::follow),
    ("pingpong", pingpong::run, wait_for_ever),
];

/// The boot CPU, with its stack, before any other is started.
fn boot() -> ! {
    OPTIONS.set_once(Options::read);
    let options = OPTIONS.get();
    let Some((_, lead, _)) = WORKS.iter().find(|(name, ..)| *name == options.work()) else {
        console::say!("ports: work={} is not known", options.work());
        end(false);
    };
    if options.get("remote").is_some() && !platform::flush_remotely() {
        console::say!(
            "ports: {} flushes no other CPU without an interrupt",
            arch::NAME
        );
        end(false);
    }
    memory::prepare();
    platform::attach();
    cpus::start_all(options.number("cpus", 1) as usize);
    console::say!("ports: {} cpus={}", arch::NAME, cpus::count());
    end(lead(options))
}

/// Every other CPU, when it is online.
fn work() -> ! {
    let options = OPTIONS.get();
    let known = WORKS.iter().find(|(name, ..)| *name == options.work());
    known.map_or(wait_for_ever as fn() -> !, |(.., follow)| *follow)()
}

fn wait_for_ever() -> ! {
    loop {
        arch::wait_for_interrupt();
    }
}

fn end(is_well: bool) -> ! {
    console::say!("ports: {}", if is_well { "ok" } else { "failed" });
    arch::power_off()
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    console::say!("ports: panic on {}: {info}", arch::this_cpu());
    end(false)
}
