//! Threads as CPUs on this host, in a process of their own: if it dies, the lab says how.

use std::path::PathBuf;
use std::process::Command;

use super::group::Group;
use crate::cargo;
use crate::failure::{Doing, Failure, Outcome};
use crate::machine::Child;

/// The program.
pub struct Hosted {
    program: PathBuf,
}

impl Hosted {
    /// Builds it.
    pub fn open() -> Outcome<Self> {
        let program = cargo::build_hosted_calls()?;
        Ok(Self { program })
    }

    /// Runs it and hands over its lines. A wrong call is no failure here: its row says more.
    pub fn run(&self, group: &Group, on_line: &mut dyn FnMut(&str)) -> Outcome<()> {
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--cpus={}", group.cpus))
            .arg(&group.words);
        let child =
            Child::run(&mut command, group.deadline, on_line).doing("start the hosted machine")?;
        let how = match child.status {
            None => format!("it did not end in {} s", group.deadline.as_secs()),
            Some(status) if matches!(status.code(), Some(0 | 1)) => return Ok(()),
            Some(status) => format!("it ended with {status}"),
        };
        Err(Failure::work(format!(
            "calls on threads: {how}\n{}",
            child.errors.trim()
        )))
    }
}
