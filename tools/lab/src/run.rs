//! `lab run`: boots a machine around one program from the host, or from an image of packages; its exit status becomes ours.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::{MachineKind, Run};
use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::machine::{Boot, Emulator, End, Finished, MEMORY_MIB, Nested, VMM, signal_number};
use crate::program;
use crate::session::{self, Session};

/// The first process beside an image, which starts its program.
const START: &str = "start";
/// What that says at its end if a signal has ended the program, with a number behind it.
const KILLED: &str = "was killed by signal ";

/// Runs the program.
///
/// # Errors
/// The program or the options cannot work (exit code 2), or the machine broke (exit code 125).
pub fn command(run: &Run) -> Outcome<ExitCode> {
    let cpus = session::cpus(run.cpus)?;
    let [path, arguments @ ..] = run.words.as_slice() else {
        let remedy = "name a static x86-64 Linux program";
        return Err(Failure::input("no program given", remedy));
    };
    check_arguments(arguments)?;
    if let Some(option) = arguments.iter().find(|word| is_own_option(word)) {
        eprintln!(
            "lab: {option} stands behind the program and goes to it; options of run stand before it"
        );
    }
    if run.deadline == 0 {
        let cause = "a deadline of 0 s leaves no time";
        return Err(Failure::input(cause, "--deadline takes 1 or more"));
    }
    let image = run.image.as_deref().map(Image::open).transpose()?;
    let start = image.as_ref();
    let start = start
        .map(|image| start_words(image, path, run))
        .transpose()?;
    let alone = match start {
        None => Some(program::read(Path::new(path))?),
        Some(_) => None,
    };
    let session = Session::open(&run.emulator, &[run.machine])?;
    let kernel = session.kernel(run.machine)?;
    let (name, program) = match alone {
        Some(program) => (session::guest_name(Path::new(path)), program),
        None => (START.to_owned(), session::built(START)?),
    };
    let words: Vec<&str> = start
        .iter()
        .flatten()
        .chain(arguments)
        .map(String::as_str)
        .collect();
    let usual = image.as_ref().map_or(MEMORY_MIB, Image::memory_mib);
    let boot = Boot {
        emulator: Emulator::Qemu(&session.qemu, run.emulator.accel.settle(cpus)?),
        cpus,
        memory_mib: run.memory.unwrap_or(usual),
        kernel: &kernel,
        options: &run.options,
        image: image.as_ref().map(Image::tree),
        program: (&name, &program),
        arguments: &words.join(" "),
        files: &[],
        deadline: Duration::from_secs(run.deadline.into()),
    };
    let finished = match run.guest {
        None => boot.run(&mut |line| show(line, run))?,
        Some(vcpus) => nested(run, vcpus.into(), &boot, &session)?,
    };
    end(&finished)
}

/// What the first process is told beside an image, before the program's own arguments.
fn start_words(image: &Image, program: &str, run: &Run) -> Outcome<[String; 2]> {
    let words = [
        format!("--directory={}", run.directory),
        image.program(program)?,
    ];
    check_arguments(&words)?;
    Ok(words)
}

/// The same in the reference kernel as a guest of the machine's.
fn nested(run: &Run, vcpus: usize, boot: &Boot<'_>, session: &Session) -> Outcome<Finished> {
    let nested = Nested {
        vcpus,
        options: boot.options,
        vmm: &run.vmm,
        program: boot.program,
        arguments: boot.arguments,
        deadline: boot.deadline,
    };
    let guest = session.kernel(MachineKind::Qemu)?;
    let programs = session::load_programs()?;
    let host = Boot {
        options: "",
        program: (VMM, session::image(&programs, VMM)?),
        arguments: &nested.arguments(),
        files: &nested.files(&guest)?,
        ..boot.clone()
    };
    host.run(&mut |line| show(line, run))
}

fn end(finished: &Finished) -> Outcome<ExitCode> {
    let end = finished.end.of_started(&finished.console, KILLED);
    match &end {
        End::Exited(status) => Ok(ExitCode::from(*status)),
        End::Signalled(name) => {
            eprintln!("lab: {end}");
            Ok(ExitCode::from(128 + signal_number(name).unwrap_or(0)))
        }
        _ => Err(Failure::Machine(finished.account())),
    }
}

/// Whether `run` has an option of this name.
fn is_own_option(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default();
    [
        "--machine",
        "--cpus",
        "--deadline",
        "--image",
        "--directory",
        "--memory",
        "--options",
        "--guest",
        "--vmm",
        "--verbose",
        "--qemu",
        "--accel",
        "--kernel",
    ]
    .contains(&name)
}

/// Kernels split their command line at spaces and know no quoting that both share.
fn check_arguments(arguments: &[String]) -> Outcome<()> {
    const LIMIT_BYTES: usize = 1500;
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == '"';
    let mut words = arguments.iter();
    if let Some(odd) = words.find(|word| word.is_empty() || word.contains(is_odd)) {
        return Err(Failure::input(
            format!("the argument {odd:?} cannot pass through a kernel's command line"),
            "arguments must not be empty or contain white space or quotes",
        ));
    }
    if arguments.join(" ").len() >= LIMIT_BYTES {
        return Err(Failure::input(
            format!("the arguments are longer than {LIMIT_BYTES} bytes"),
            "shorten them: a kernel's command line has no more room",
        ));
    }
    Ok(())
}

/// The program's lines go to standard output, the kernel's own to standard error.
fn show(line: &str, run: &Run) {
    if !is_kernel_message(line) {
        // A reader that has gone away (`| head`) is no reason to end the machine early.
        let _ = writeln!(std::io::stdout(), "{line}");
    } else if run.verbose || (run.machine == MachineKind::Qemu && is_serious(line)) {
        eprintln!("{line}");
    }
}

/// Both kernels start their lines with `[seconds]`.
fn is_kernel_message(line: &str) -> bool {
    let Some((time, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
        return false;
    };
    let time = time.trim_start();
    time.contains('.') && time.parse::<f64>().is_ok()
}

fn is_serious(line: &str) -> bool {
    let level = line.split(']').nth(1).unwrap_or_default().to_lowercase();
    let words = [" warn", " error", " killed by"];
    words.iter().any(|word| level.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_messages_are_told_from_the_programs_lines() {
        assert!(is_kernel_message("[  0.123456] c2 info: up"));
        assert!(is_kernel_message("[    1.5] Kernel panic"));
        for line in ["[1, 2]", "[x.y] z", "hello", "[12] no", "[", "[ 1.5"] {
            assert!(!is_kernel_message(line), "{line}");
        }
    }

    #[test]
    fn arguments_that_a_command_line_would_split_are_refused() {
        let check = |argument: &str| check_arguments(&[argument.to_owned()]);
        assert!(check("--threads=1,2").is_ok());
        for argument in ["a b", "", "a\nb", "\"q\"", &"x".repeat(2000)] {
            assert!(check(argument).is_err(), "{argument:?}");
        }
    }
}
