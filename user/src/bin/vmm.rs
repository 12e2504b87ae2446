//! Boots a kernel in a virtual machine; see the library's `vmm` module.

use std::process::ExitCode;

use shootdown_user::program;
use shootdown_user::vmm::machine::Machine;
use shootdown_user::vmm::options::{HELP, Options};

fn main() -> ExitCode {
    let parsed = Options::parse(std::env::args_os().skip(1));
    program::run(
        "vmm",
        HELP,
        parsed,
        |options| Machine::new(&options),
        |machine| machine.run(),
    )
}
