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

/// What there is to be done.
struct Work {
    name: &'static str,
    /// What the boot CPU does; false if something was wrong.
    lead: fn(&Options) -> bool,
    /// What every other CPU does whenever it has come online.
    follow: fn() -> !,
}

impl Work {
    const ALL: [Self; 3] = [
        Self {
            name: "torture",
            lead: torture::lead,
            follow: torture::follow,
        },
        Self {
            name: "shoot",
            lead: shoot::lead,
            follow: shoot::follow,
        },
        Self {
            name: "pingpong",
            lead: pingpong::run,
            follow: wait_for_ever,
        },
    ];

    /// What the options ask for.
    fn asked() -> Option<Self> {
        let name = OPTIONS.get().work();
        Self::ALL.into_iter().find(|work| work.name == name)
    }
}

/// The boot CPU, with its stack, before any other is started.
fn boot() -> ! {
    // SAFETY: 1. no other CPU runs.
    unsafe { OPTIONS.set_once(Options::read) };
    let options = OPTIONS.get();
    let Some(work) = Work::asked() else {
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
    if !cpus::start_all(options.number("cpus", 1) as usize) {
        end(false);
    }
    console::say!("ports: {} cpus={}", arch::NAME, cpus::count());
    end((work.lead)(options))
}

/// Every other CPU, when it is online.
fn work() -> ! {
    let work = Work::asked().expect("the boot CPU has looked");
    (work.follow)()
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
