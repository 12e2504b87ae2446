//! `lab client`: kernels that use the engine as a stranger would, and machines of other architectures. Each is a folder of `clients/` or `ports/` with a file
//! `client.toml`, and nothing else names it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde::Deserialize;

use crate::cargo;
use crate::cli;
use crate::doctor;
use crate::failure::{Doing, Failure, Outcome, last_lines};
use crate::machine::{self, AccelChoice, Child};
use crate::{place, session};

/// Where they are.
const CLIENTS: &str = "clients";
const PORTS: &str = "ports";
/// A compiler of C takes seconds, one of Rust a minute.
const BUILD_DEADLINE: Duration = Duration::from_secs(600);
/// Beside the seconds that it is to run, four times: an emulator on a busy host.
const BOOT_DEADLINE: Duration = Duration::from_secs(90);
/// How a program ends a PC with an exit code.
const DEBUG_EXIT: &str = "-device isa-debug-exit,iobase=0xf4,iosize=4";
/// What runs a machine that is not a PC: one thread a virtual CPU, also where there are fewer cores, for these do not change over as they spin.
const EMULATED: &str = "-accel tcg,thread=multi";
/// A file with a command line has at least so many bytes, zeros at the end.
const OPTIONS_BYTES: usize = 512;
/// How much of the console an error shows.
const TAIL_LINES: usize = 12;
/// What a build ends with where something is missing that it needs; it has said what, and the remedy.
const MISSING: i32 = 77;

/// What suffices for a small kernel.
fn memory() -> String {
    "64M".into()
}

/// One client: how it is built, booted, and judged. `{library}`, `{image}`, `{cpus}` and `{seconds}` stand for what they name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// That of its folder.
    #[serde(skip)]
    pub name: String,
    /// Where that is.
    #[serde(skip)]
    folder: PathBuf,
    /// What it is, in a line.
    about: String,
    /// Programs that building takes; `VARIABLE=program` is what that variable of the environment names, if it does.
    needs: Vec<String>,
    /// Whether building it takes minutes.
    #[serde(default)]
    pub is_slow: bool,
    /// The static library that cargo builds for it, if it wants one.
    package: Option<String>,
    /// For which target.
    #[serde(default)]
    target: String,
    /// With which features.
    #[serde(default)]
    features: Vec<String>,
    /// The program that builds the image, and its arguments; run in the folder. With `{cpus}` an image is for one number of CPUs.
    build: Vec<String>,
    /// The program that lints it, if cargo's own lints do not reach it.
    #[serde(default)]
    lint: Vec<String>,
    /// What it runs on if that is not a PC.
    machine: Option<Machine>,
    /// As QEMU has it.
    #[serde(default = "memory")]
    memory: String,
    /// Its command line.
    options: String,
    /// How it ends if all is well.
    #[serde(flatten)]
    success: Ending,
    /// Further words for its command line with which it ends well, too, each a check of its own.
    #[serde(default)]
    pub runs: Vec<String>,
    /// What makes it fail on purpose, and how it ends then.
    #[serde(default)]
    pub breaks: Vec<Break>,
}

/// A machine that is not a PC.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Machine {
    /// The emulator's program.
    qemu: String,
    /// The Debian packages that have it, and its firmware.
    packages: String,
    /// What it has to be told of the machine. `{options}` stands for a file with the command line, where the machine is not given that; behind it zeros.
    arguments: String,
}

/// How a run ends.
#[derive(Debug, Clone, Deserialize)]
pub struct Ending {
    /// QEMU's exit code.
    exit: i32,
    /// What a line of the console has.
    says: Words,
}

/// A text, or any of several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    Any(Vec<String>),
}

impl Words {
    fn are_in(&self, line: &str) -> bool {
        match self {
            Self::One(text) => line.contains(text),
            Self::Any(texts) => texts.iter().any(|text| line.contains(text)),
        }
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(text) => write!(f, "{text:?}"),
            Self::Any(texts) => write!(f, "any of {texts:?}"),
        }
    }
}

/// A deliberate mistake, which its own check has to notice.
#[derive(Debug, Clone, Deserialize)]
pub struct Break {
    /// Further words for its command line.
    pub options: String,
    #[serde(flatten)]
    ending: Ending,
}

/// On what a client runs, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// What emulates PCs; none where the client runs on another machine.
    pub pc: Option<&'a Path>,
    /// What its virtual CPUs run on.
    pub accel: AccelChoice,
    /// How many virtual CPUs.
    pub cpus: usize,
    /// Seconds.
    pub seconds: u32,
}

/// Builds and boots one client, or lists them all.
///
/// # Errors
/// There is no such client or no QEMU, it cannot be built, or it does not end as it should.
pub fn command(arguments: &cli::Client) -> Outcome<ExitCode> {
    let clients = read_all()?;
    let Some(name) = &arguments.name else {
        for client in clients {
            println!("{:<16} {}", client.name, client.about);
        }
        return Ok(ExitCode::SUCCESS);
    };
    let cpus = session::cpus(arguments.cpus)?;
    let unknown = || {
        Failure::input(
            format!("there is no client {name}"),
            "`./lab client` lists them",
        )
    };
    let client = find(clients, name, unknown)?;
    let emulator = &arguments.emulator;
    let pc = match client.is_pc() {
        true => Some(machine::find_or_install(
            session::qemu_name(emulator).as_deref(),
        )?),
        false => None,
    };
    let run = Run {
        pc: pc.as_deref(),
        accel: emulator.accel,
        cpus,
        seconds: arguments.seconds,
    };
    let image = client.build(cpus)?;
    client.boot(&image, run, &arguments.options, &mut |line| {
        println!("{line}")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The machine of another architecture with that name, whatever it needs.
///
/// # Errors
/// There is none, or something is missing.
pub fn port(name: &str) -> Outcome<Client> {
    let mut ports = read_all()?;
    ports.retain(|client| client.folder.parent() == Some(&place::root().join(PORTS)));
    let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
    find(ports, name, || {
        Failure::input(
            format!("there is no architecture {name}"),
            format!("--arch takes {}", names.join(", ")),
        )
    })
}

/// That with this name, if all is there that it needs.
fn find(clients: Vec<Client>, name: &str, unknown: impl FnOnce() -> Failure) -> Outcome<Client> {
    let mut found = clients.into_iter().filter(|client| client.name == name);
    let client = found.next().ok_or_else(unknown)?;
    match client.missing() {
        None => Ok(client),
        Some(missing) => Err(Failure::input(
            format!("{missing} is missing"),
            "install it; `./lab doctor` names packages",
        )),
    }
}

/// The emulators of all machines that are no PCs, each with its Debian packages.
///
/// # Errors
/// A client is not understood.
pub fn emulators() -> Outcome<Vec<(String, String)>> {
    let machines = read_all()?.into_iter().filter_map(|client| client.machine);
    Ok(machines
        .map(|machine| (machine.qemu, machine.packages))
        .collect())
}

/// Whether the folders of clients are here: they are in a checkout.
pub fn are_here() -> bool {
    place::root().join(CLIENTS).exists()
}

/// All clients, by name.
pub fn read_all() -> Outcome<Vec<Client>> {
    let mut files = Vec::new();
    for place in [CLIENTS, PORTS] {
        let folders = std::fs::read_dir(place::root().join(place)).doing("list clients")?;
        let found = folders
            .flatten()
            .map(|entry| entry.path().join("client.toml"));
        files.extend(found.filter(|file| file.exists()));
    }
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> Outcome<Client> {
    let folder = file.parent().unwrap_or(file).to_owned();
    let name = folder.file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let text = std::fs::read_to_string(file).doing(format!("read {name}/client.toml"))?;
    let client: Client = toml::from_str(&text).doing(format!("understand {name}/client.toml"))?;
    Ok(Client {
        name,
        folder,
        ..client
    })
}

/// `text` with what stands for something in its place.
fn filled(text: &str, values: &[(&str, &str)]) -> String {
    let replace =
        |text: String, (name, value): &(&str, &str)| text.replace(&format!("{{{name}}}"), value);
    values.iter().fold(text.to_owned(), replace)
}

impl Client {
    /// A program or a target that it needs and that is not there.
    pub fn missing(&self) -> Option<String> {
        let named = |need: &String| match need.split_once('=') {
            None => need.clone(),
            Some((variable, program)) => std::env::var(variable)
                .ok()
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| program.to_owned()),
        };
        let machine = self.machine.iter().map(|machine| machine.qemu.clone());
        let mut needed = self.needs.iter().map(named).chain(machine);
        let program = needed.find(|name| which::which(name).is_err());
        let has_target = self.package.is_none() || doctor::target(&self.target).is_some();
        program.or_else(|| (!has_target).then(|| format!("Rust target {}", self.target)))
    }

    /// Whether a line of its console says that all is well.
    pub fn says_success(&self, line: &str) -> bool {
        self.success.says.are_in(line)
    }

    /// Whether it runs on a PC, whose emulator is the caller's.
    pub fn is_pc(&self) -> bool {
        self.machine.is_none()
    }

    /// Builds its library and its image for so many CPUs, and returns where that is until this process ends.
    ///
    /// # Errors
    /// A [`Failure::Input`] where something is missing that the build needs.
    pub fn build(&self, cpus: usize) -> Outcome<PathBuf> {
        let name = &self.name;
        let library = match &self.package {
            Some(package) => cargo::build_library(package, &self.target, &self.features)?,
            None => PathBuf::new(),
        };
        let image = tempfile::env::temp_dir().join(format!("client-{name}-{cpus}.elf"));
        let (library, path) = (library.to_string_lossy(), image.to_string_lossy());
        let cpus = cpus.to_string();
        let values = [("library", &*library), ("image", &*path), ("cpus", &*cpus)];
        self.run_own(&self.build, &values)?;
        Ok(image)
    }

    /// Lints it; none if it has nothing for that.
    ///
    /// # Errors
    /// As [`build`](Self::build), or there is something to say.
    pub fn lint(&self) -> Option<Outcome<()>> {
        (!self.lint.is_empty()).then(|| self.run_own(&self.lint, &[]))
    }

    /// Runs a program of its folder.
    fn run_own(&self, words: &[String], values: &[(&str, &str)]) -> Outcome<()> {
        let name = &self.name;
        let mut words = words.iter().map(|word| filled(word, values));
        let program = words.next().unwrap_or_default();
        let mut command = Command::new(self.folder.join(program));
        command.args(words).current_dir(&self.folder);
        let built =
            Child::run(&mut command, BUILD_DEADLINE, &mut |_| ()).doing(format!("build {name}"))?;
        let why = cargo::tail(&built.errors);
        let Some(status) = built.status else {
            let seconds = BUILD_DEADLINE.as_secs();
            return Err(Failure::work(format!(
                "building {name} took longer than {seconds} s; another try goes on from there:\n{why}"
            )));
        };
        match status.code() {
            Some(0) => Ok(()),
            Some(MISSING) => Err(Failure::input(format!("cannot build {name}"), why.trim())),
            _ => Err(Failure::work(format!("cannot build {name}:\n{why}"))),
        }
    }

    /// Boots it, with further words for its command line, hands each line of its console to `on_line`, and returns the one that tells of its
    /// success. Blocks.
    ///
    /// # Errors
    /// It did not end as it should.
    pub fn boot(
        &self,
        image: &Path,
        run: Run<'_>,
        options: &str,
        on_line: &mut dyn FnMut(&str),
    ) -> Outcome<String> {
        self.ends(image, run, options, &self.success, on_line)
    }

    /// Boots it with a mistake, which it has to notice. Blocks.
    ///
    /// # Errors
    /// It did not.
    pub fn boot_broken(&self, image: &Path, run: Run<'_>, mistake: &Break) -> Outcome<String> {
        self.ends(image, run, &mistake.options, &mistake.ending, &mut |_| ())
    }

    fn ends(
        &self,
        image: &Path,
        run: Run<'_>,
        options: &str,
        due: &Ending,
        on_line: &mut dyn FnMut(&str),
    ) -> Outcome<String> {
        let mut command = self.qemu(image, run, options)?;
        let deadline = BOOT_DEADLINE + Duration::from_secs(u64::from(run.seconds) * 4);
        let child = Child::run(&mut command, deadline, on_line).doing("start QEMU")?;
        let code = child.status.and_then(|status| status.code());
        let told = child.output.lines().find(|line| due.says.are_in(line));
        match told {
            Some(line) if code == Some(due.exit) => Ok(line.trim_end().to_owned()),
            _ => Err(Failure::work(account(&self.name, &child, due))),
        }
    }

    /// What starts its machine, with further words for its command line.
    ///
    /// # Errors
    /// The words cannot be written down.
    pub fn qemu(&self, image: &Path, run: Run<'_>, options: &str) -> Outcome<Command> {
        let (cpus, seconds) = (run.cpus.to_string(), run.seconds.to_string());
        let line = filled(&self.options, &[("cpus", &cpus), ("seconds", &seconds)]);
        let (program, machine) = match &self.machine {
            None => {
                let accel = run.accel.settle(run.cpus)?.arguments();
                let qemu = run.pc.unwrap_or(Path::new(machine::QEMU_COMMAND));
                (qemu, format!("{accel} {DEBUG_EXIT}"))
            }
            Some(Machine {
                qemu, arguments, ..
            }) => {
                let file = self.write_options(&format!("{line} {options}"))?;
                let arguments = filled(arguments, &[("options", &file.to_string_lossy())]);
                (Path::new(qemu), format!("{EMULATED} {arguments}"))
            }
        };
        let mut command = Command::new(program);
        command
            .args(machine.split(' '))
            .args(["-smp", &cpus, "-m", &self.memory, "-kernel"])
            .arg(image)
            .args(["-append", format!("{line} {options}").trim_end()])
            .args("-nodefaults -no-user-config -display none -no-reboot -serial stdio".split(' '));
        Ok(command)
    }

    /// What stands for `{options}` in the machine's arguments.
    fn write_options(&self, words: &str) -> Outcome<PathBuf> {
        let file = tempfile::env::temp_dir().join(format!("client-{}.options", self.name));
        let mut bytes = words.trim_end().as_bytes().to_vec();
        bytes.resize(OPTIONS_BYTES.max(bytes.len() + 1), 0);
        std::fs::write(&file, bytes).doing("write a client's options")?;
        Ok(file)
    }
}

/// How it ended instead.
fn account(name: &str, child: &Child, due: &Ending) -> String {
    let ended = match (child.stopped, child.status) {
        (Some(why), _) => format!("was ended ({why:?})"),
        (None, Some(status)) => format!("ended with {status}"),
        (None, None) => "ended".into(),
    };
    let (exit, says) = (due.exit, &due.says);
    let lines = child.output.lines().chain(child.errors.lines());
    let tail = last_lines(lines, TAIL_LINES).join("\n    | ");
    format!("{name}: exit status {exit} and {says} were due, but it {ended}\n    | {tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_is_understood_and_has_a_mistake_to_notice() {
        let clients = read_all().unwrap();
        assert!(!clients.is_empty());
        for client in clients {
            assert!(
                !client.build.is_empty() && !client.about.is_empty(),
                "{}",
                client.name
            );
            assert!(!client.breaks.is_empty(), "{} cannot fail", client.name);
        }
    }

    #[test]
    fn names_in_braces_are_filled_in() {
        let values = [("cpus", "4"), ("seconds", "3")];
        assert_eq!(
            filled("cpus={cpus} s={seconds} {x}", &values),
            "cpus=4 s=3 {x}"
        );
    }
}
