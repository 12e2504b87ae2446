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
mod tables;
mod torture;

use core::panic::PanicInfo;

use options::Options;

/// The boot CPU, with its stack, before any other is started.
fn boot() -> ! {
    let options = Options::read();
    memory::prepare();
    platform::attach();
    cpus::start_all(options.number("cpus", 1) as usize);
    console::say!("ports: {} cpus={}", arch::NAME, cpus::count());
    let is_well = match options.work() {
        "torture" => torture::lead(&options),
        "pingpong" => pingpong::run(&options),
        work => {
            console::say!("ports: work={work} is not known: torture, pingpong");
            false
        }
    };
    end(is_well)
}

/// Every other CPU, when it is online.
fn work() -> ! {
    torture::follow()
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
