//! The lab: builds the kernel and its programs, boots them, measures them and tests them.
//!
//! `./lab` in the root of the checkout builds and starts it; docs/measuring.md explains the figures.

mod bench;
mod cargo;
mod chart;
mod cli;
mod client;
mod colours;
mod doctor;
mod failure;
mod figures;
mod footprint;
mod host;
mod image;
mod initramfs;
mod iso;
mod machine;
mod mutants;
mod place;
mod program;
mod progress;
mod protocol;
mod report;
mod run;
mod session;
mod sim;
mod stories;
mod suite;
mod temporary;
mod torture;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};
use crate::colours::{Colour, on_stderr};
use crate::failure::{Failure, Outcome};

fn main() -> ExitCode {
    end_with_reader();
    let outcome = parse().and_then(|cli| cli.map_or(Ok(ExitCode::SUCCESS), dispatch));
    outcome.unwrap_or_else(|failure| {
        match &failure {
            Failure::Usage(help) => eprint!("{help}"),
            failure => eprintln!("{} {failure}", on_stderr("lab:", Colour::Red)),
        }
        failure.exit_code()
    })
}

fn dispatch(cli: Cli) -> Outcome<ExitCode> {
    let _temporary = temporary::directory()?;
    match cli.command {
        Command::Bench(arguments) => {
            let bench = arguments.settle();
            bench::command(&bench, report::summary).map(|()| ExitCode::SUCCESS)
        }
        Command::Run(arguments) => run::command(&arguments),
        Command::Image(arguments) => image::command(&arguments),
        Command::Test(arguments) => suite::command(&arguments),
        Command::Sim(arguments) => sim::command(&arguments),
        Command::Stories(arguments) => stories::command(&arguments),
        Command::Iso(arguments) => iso::command(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Torture(arguments) => torture::command(&arguments),
        Command::Client(arguments) => client::command(&arguments),
        Command::Mutants(arguments) => mutants::command(&arguments),
        Command::Report(arguments) => report::command(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Footprint(arguments) => footprint::command(&arguments),
        Command::Figures(arguments) => figures::command(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Completions { shell } => {
            let name = env!("CARGO_PKG_NAME");
            clap_complete::generate(shell, &mut Cli::command(), name, &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Doctor(arguments) => doctor::command(&arguments),
    }
}

/// A reader that has seen enough, as of `./lab --help | head`, ends the lab; once there are temporary files, they go first.
fn end_with_reader() {
    // SAFETY: no other thread runs yet, and the default action runs no code of this process.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Reads the command line; none if it asked for text that has been printed.
fn parse() -> Outcome<Option<Cli>> {
    match Cli::try_parse() {
        Ok(cli) => Ok(Some(cli)),
        Err(text) if !text.use_stderr() => {
            print!("{text}");
            Ok(None)
        }
        Err(help) if help.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::Usage(help.to_string()))
        }
        Err(error) => Err(Failure::input(
            one_line(&error.to_string()),
            format!("see `./{} --help`", blamed()),
        )),
    }
}

/// Whose help has the remedy: `lab`, with the commands that were named.
fn blamed() -> String {
    let (mut name, mut command) = ("lab".to_owned(), Cli::command());
    for word in std::env::args_os().skip(1) {
        let Some(named) = command.find_subcommand(&word) else {
            break;
        };
        name += &format!(" {}", named.get_name());
        command = named.clone();
    }
    name
}

/// The first paragraph of clap's message, without its title.
fn one_line(message: &str) -> String {
    let paragraph = message.split("\n\n").next().unwrap_or(message);
    let words = paragraph.strip_prefix("error:").unwrap_or(paragraph);
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
