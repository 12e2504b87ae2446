//! Checks of clients: each does what it should on machines of several sizes, and notices its own mistakes.

use std::path::Path;

use super::tally::Tally;
use crate::cli::Test;
use crate::client::{self, Client, Run};
use crate::failure::Failure;
use crate::machine;
use crate::session;

const SECONDS: u32 = 3;
/// On how many CPUs it has to notice its mistakes, and has its further runs.
const BROKEN_ON: usize = 2;

/// Runs them all, where there is an emulator and what building them takes.
pub fn check(test: &Test, tally: &mut Tally) {
    let clients = match client::read_all() {
        Ok(clients) => clients,
        Err(failure) => return tally.check("clients: descriptions", || Err(failure)),
    };
    let named = session::qemu_name(&test.emulator);
    let qemu = machine::find_qemu(named.as_deref()).ok().flatten();
    for client in clients {
        let name = format!("clients: {}", client.name);
        match (&qemu, client.missing()) {
            (None, _) if client.is_pc() => tally.skip(&name, "there is no QEMU here"),
            _ if client.is_slow && !test.soak => {
                tally.skip(&name, "takes minutes to build; left out without --soak");
            }
            (_, Some(missing)) => tally.skip(&name, &format!("there is no {missing} here")),
            (_, None) => check_one(test, qemu.as_deref(), &client, tally),
        }
    }
}

fn check_one(test: &Test, pc: Option<&Path>, client: &Client, tally: &mut Tally) {
    let machines: &[usize] = if test.fast { &[2] } else { &[2, 4] };
    let run = |cpus| Run {
        pc,
        accel: test.emulator.accel,
        cpus,
        seconds: SECONDS,
    };
    let label = |what: &str| format!("clients: {} {what}", client.name);
    let on = |cpus: &usize| label(&format!("on {cpus} CPUs"));
    let with = |options: &str| label(&format!("with {options}"));
    let notices = |options: &str| label(&format!("notices {options}"));
    let is_wanted = machines.iter().any(|cpus| tally.is_wanted(&on(cpus)))
        || client.runs.iter().any(|it| tally.is_wanted(&with(it)))
        || client
            .breaks
            .iter()
            .any(|it| tally.is_wanted(&notices(&it.options)));
    if !is_wanted {
        return;
    }
    if let Some(linted) = client.lint() {
        tally.check(&label("lints"), || linted.map(|()| String::new()));
    }
    for cpus in machines {
        let image = match client.build(*cpus) {
            Ok(image) => image,
            Err(Failure::Input { remedy, .. }) => return tally.skip(&label("on all"), &remedy),
            Err(failure) => return tally.refuse(&label("can be built"), &failure),
        };
        tally.check(&on(cpus), || {
            client.boot(&image, run(*cpus), "", &mut |_| ())
        });
        if *cpus == BROKEN_ON {
            for options in &client.runs {
                tally.check(&with(options), || {
                    client.boot(&image, run(BROKEN_ON), options, &mut |_| ())
                });
            }
            for mistake in &client.breaks {
                tally.check(&notices(&mistake.options), || {
                    client.boot_broken(&image, run(BROKEN_ON), mistake)
                });
            }
        }
    }
}
