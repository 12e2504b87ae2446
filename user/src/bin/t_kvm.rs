//! Virtual machines: what is answered, what is refused, and that guests see their VMM's memory as it is.
//!
//! On machines that have none there is nothing to check.

use std::fs::File;
use std::process::ExitCode;

use shootdown_user::checks;
use shootdown_user::kvm::abi::{self, Regs};
use shootdown_user::kvm::{self, Guest, Stop, code};

fn device() -> File {
    kvm::open().unwrap().expect("looked for before")
}

fn guests_reach_ports() {
    let guest = Guest::new(&device(), 0).unwrap();
    guest.load(
        code::OUT,
        Regs {
            rax: 0x41,
            rdx: 0x3f8,
            ..Regs::default()
        },
    );
    assert_eq!(guest.run().unwrap(), Stop::Out(0x3f8, 1, 0x41));
    assert_eq!(guest.run().unwrap(), Stop::Halted);
}

fn the_version_is_twelve() {
    let version = kvm::request(&device(), abi::GET_API_VERSION, 0).unwrap();
    assert_eq!(version, 12);
}

fn main() -> ExitCode {
    if kvm::open().unwrap().is_none() {
        println!("t_kvm: OK, there is no /dev/kvm");
        return ExitCode::SUCCESS;
    }
    checks::run(
        "t_kvm",
        &checks::named![the_version_is_twelve, guests_reach_ports],
    )
}
