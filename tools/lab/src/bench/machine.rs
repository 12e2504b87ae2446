//! [`Machine`]: where CPUs are real; how it is started ([`Start`]), and what it says then ([`Heard`]).

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::ports;
use super::row::Row;
use crate::client::Client;
use crate::failure::{Doing, Failure, Outcome};
use crate::image::Image;
use crate::machine::{Accel, Boot, Child, Emulator, End, Kernel};
use crate::progress::Progress;
use crate::protocol::{self, Message, Object};

/// A machine, ready to start.
pub enum Machine {
    /// A kernel in the emulator, with a program.
    Booted {
        /// The emulator.
        qemu: PathBuf,
        /// The kernel.
        kernel: Kernel,
        /// Its memory, in mebibytes.
        memory_mib: u32,
        /// The program's name and image.
        program: (&'static str, Vec<u8>),
        /// The image of packages beside which it stands.
        image: Option<Arc<Image>>,
        /// What it needs beside itself, by path.
        files: Vec<(String, Vec<u8>)>,
    },
    /// Threads as CPUs on this host, in a process of their own: if it dies, the lab says how.
    Hosted(PathBuf),
    /// A machine of another architecture, and its image.
    Port(Box<Client>, PathBuf),
}

/// How a machine is started for a group of rows.
#[derive(Debug, Clone)]
pub struct Start {
    /// For errors.
    pub what: String,
    /// For people who wait.
    pub label: String,
    /// How often, in turn with the other machines of the group.
    pub boots: u32,
    /// CPUs of the machine.
    pub cpus: usize,
    /// What they run on.
    pub accel: Accel,
    /// Further words for the kernel.
    pub options: String,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// When it is ended as stuck.
    pub deadline: Duration,
    /// The figures that each of its rows must have, with spaces between.
    pub needs: &'static str,
    /// What is noted in each of its rows.
    pub mark: (&'static str, Value),
    /// Whether what its program says of itself is of interest.
    pub tells: bool,
}

impl Machine {
    /// Starts it and hands over its lines; returns its status, if it ended with one, and the account of its end.
    ///
    /// # Errors
    /// It could not be started.
    pub fn run(
        &self,
        start: &Start,
        on_line: &mut dyn FnMut(&str),
    ) -> Outcome<(Option<i32>, String)> {
        match self {
            Self::Booted {
                qemu,
                kernel,
                memory_mib,
                program: (name, program),
                image,
                files,
            } => {
                let boot = Boot {
                    emulator: Emulator::Qemu(qemu, start.accel),
                    cpus: start.cpus,
                    memory_mib: *memory_mib,
                    kernel,
                    options: &start.options,
                    image: image.as_ref().map(|image| image.tree()),
                    program: (name, program),
                    arguments: &start.arguments.join(" "),
                    files,
                    deadline: start.deadline,
                };
                let finished = boot.run(on_line)?;
                let status = match finished.end {
                    End::Exited(status) => Some(status.into()),
                    _ => None,
                };
                Ok((status, finished.account()))
            }
            Self::Hosted(program) => {
                let mut command = Command::new(program);
                command.args(&start.arguments);
                run_process(command, start.deadline, on_line)
            }
            Self::Port(client, image) => {
                let command = ports::command(client, image, start)?;
                let mut is_well = false;
                let (status, account) = run_process(command, start.deadline, &mut |line| {
                    is_well |= client.says_success(line);
                    on_line(line);
                })?;
                // Its emulator has no other status than 0.
                let status = status.map(|status| status.max(i32::from(!is_well)));
                Ok((
                    status,
                    format!("{account}; it did not say that all is well"),
                ))
            }
        }
    }
}

fn run_process(
    mut command: Command,
    deadline: Duration,
    on_line: &mut dyn FnMut(&str),
) -> Outcome<(Option<i32>, String)> {
    let child = Child::run(&mut command, deadline, on_line).doing("start the machine")?;
    let how = match child.status {
        None => format!("it did not end in {} s", deadline.as_secs()),
        Some(status) => format!("it ended with {status}"),
    };
    let status = child.status.and_then(|status| status.code());
    Ok((status, format!("{how}\n{}", child.errors.trim())))
}

/// What one start has printed so far.
pub struct Heard<'a> {
    start: &'a Start,
    /// Results.
    pub rows: Vec<Row>,
    /// What the program said of itself.
    pub about: Option<Object>,
    /// What could not be read.
    pub garbled: Option<String>,
}

impl<'a> Heard<'a> {
    /// Nothing yet.
    pub fn of(start: &'a Start) -> Self {
        Self {
            start,
            rows: Vec::new(),
            about: None,
            garbled: None,
        }
    }

    /// Takes one line, and shows progress.
    pub fn listen(&mut self, line: &str, progress: &mut Progress, label: &str) {
        match protocol::parse(line) {
            Some(Ok(Message::Row(row))) => self.take(Row(row)),
            Some(Ok(Message::Progress {
                done,
                total,
                label: what,
            })) => {
                progress.step(done, total, &format!("{label}: {what}"));
            }
            Some(Ok(Message::Info(about))) if self.start.tells => self.about = Some(about),
            Some(Ok(Message::Info(_))) | None => {}
            Some(Err(garbled)) => self.garbled = Some(garbled.to_string()),
        }
    }

    fn take(&mut self, mut row: Row) {
        let mut needs = self.start.needs.split(' ');
        match needs.find(|key| row.number(key).is_none()) {
            Some(key) => self.garbled = Some(format!("a result row lacks something: {key}")),
            None => {
                let (key, value) = &self.start.mark;
                row.set(key, value.clone());
                self.rows.push(row);
            }
        }
    }

    /// Passes if the machine ended well, or with a failure of which the rows tell more, and nothing was garbled.
    ///
    /// # Errors
    /// Says how it ended, or what could not be read.
    pub fn judge(
        &self,
        (status, account): (Option<i32>, String),
        tells_failure: impl Fn(&[Row]) -> bool,
    ) -> Outcome<()> {
        let is_told = status == Some(1) && tells_failure(&self.rows);
        let why = match &self.garbled {
            _ if status != Some(0) && !is_told => &account,
            Some(garbled) => garbled,
            None => return Ok(()),
        };
        Err(Failure::work(format!("{}: {why}", self.start.what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::Plan;
    use crate::bench::program::ProgramPlan;
    use crate::session::Session;

    #[test]
    fn rows_that_lack_a_field_count_as_garbled() {
        let session = Session {
            qemu: "qemu".into(),
            linux: None,
            flavour: crate::cargo::Flavour::Plain,
        };
        let bench = crate::cli::tests::bench("--accel tcg");
        let groups = ProgramPlan::new(&bench, session).unwrap().groups();
        let mut heard = Heard::of(&groups[0][0]);
        heard.listen(r#"@row {"policy":"best"}"#, &mut Progress::new(), "");
        assert!(heard.rows.is_empty() && heard.garbled.is_some());
        assert!(heard.judge((Some(0), String::new()), |_| true).is_err());
    }
}
