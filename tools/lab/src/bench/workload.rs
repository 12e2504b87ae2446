//! What describes a workload: a [`Program`] under each policy, or a [`Contest`] of calls.

use std::path::Path;

use super::columns::Column;
use super::cores::OnCores;
use super::program::Metric;
use super::row::{Ratio, Row};
use super::sim::{Findings, Setup, Simulated};
use crate::cli::Calls;
use crate::failure::Outcome;
use crate::machine::{Modules, Ramdisk};
use crate::protocol::Object;

/// How names of policies end under which CPUs in the kernel are left alone.
pub const DEFERS: &str = "+defer";

/// A user program under each policy.
#[derive(Debug)]
pub struct Program {
    /// Of the program, of the command line, and of results.
    pub name: &'static str,
    /// For the help.
    pub about: &'static str,
    /// What there is more or less of, row by row: busy `threads`, or `spaces` of processes on one CPU. An option of bench, and a key of rows.
    pub actors: &'static str,
    /// How many actors there may be; the machine may have narrower bounds.
    pub actor_bounds: (u32, u32),
    /// Pages, likewise.
    pub page_bounds: (u32, u32),
    /// Without a choice, so many actors.
    pub default_actors: &'static [u32],
    /// Without a choice, so many pages.
    pub default_pages: &'static [u32],
    /// What it measures of each number of actors and pages, where that is more than one thing; a key of rows.
    pub operations: &'static [&'static str],
    /// Whether all actors share one CPU.
    pub shares_cpu: bool,
    /// How long and how often each row is measured, where that is not as usual.
    pub effort: Option<OwnEffort>,
    /// The image of packages that it needs, as `lab image` makes it.
    pub image: Option<&'static str>,
    /// A policy besides those of all workloads.
    pub own_policy: Option<&'static str>,
    /// Policies that are compared on the reference kernel without a choice.
    pub default_policies: [&'static str; 3],
    /// What Linux has of it.
    pub linux: OnLinux,
    /// Whether it is measured on the simulated machine where no machine is asked for.
    pub is_simulated_first: bool,
    /// What of it is measured on real cores.
    pub on_cores: Option<OnCores>,
    /// What of it runs in guests of the reference kernel, where it does, not in machines of the emulator.
    pub in_guests: Option<InGuests>,
    /// Whether one iteration can be shown with `--trace` and `--picture`.
    pub is_shown: bool,
    /// What the table says above, of so many pages (`4 pages`).
    pub title: fn(&str) -> String,
    /// Columns between those of all workloads.
    pub columns: &'static [Column],
    /// Figures of its rows besides those of all workloads.
    pub metrics: &'static [Metric],
    /// What is compared within each boot besides the figures of all workloads.
    pub ratios: &'static [Ratio],
    /// A figure without which a row has measured nothing.
    pub needs: Option<&'static str>,
    /// Figures that follow from the rows of all boots; the second rows are those of the reference policy.
    pub pool: fn(&mut Row, &[&Row], &[&Row]),
    /// The counters that show how it works: heading and name.
    pub counters: &'static [(&'static str, &'static str)],
    /// What stands below a table.
    pub below: fn(&[&Row]) -> Option<String>,
    /// What must be known to read the tables; with what the program says of itself.
    pub notes: fn(&[Row], Option<&Object>) -> Vec<String>,
    /// What stands in the place of the counters where these say nothing.
    pub no_counters: fn(&[Row]) -> Option<&'static str>,
    /// What must be known to compare with Linux.
    pub linux_note: Option<&'static str>,
    /// How it runs on the simulated machine; or why not, and the remedy.
    pub simulated: Result<Simulated, (&'static str, &'static str)>,
}

impl Program {
    /// Threads that flush pages, measured by their times and the counters of the flush. A workload says what is different.
    pub const PLAIN: Self = Self {
        name: "",
        about: "",
        actors: "threads",
        actor_bounds: (1, u32::MAX),
        page_bounds: (1, 4096),
        default_actors: &[1, 2, 4],
        default_pages: &[1],
        operations: &[""],
        shares_cpu: false,
        effort: None,
        image: None,
        own_policy: None,
        default_policies: ["before", "published", "best"],
        linux: OnLinux::Always,
        is_simulated_first: false,
        on_cores: None,
        in_guests: None,
        is_shown: false,
        title: |pages| pages.to_owned(),
        columns: &[],
        metrics: &[],
        ratios: &[],
        needs: None,
        pool: |_, _, _| (),
        counters: FLUSHES,
        below: |_| None,
        notes: |_, _| Vec::new(),
        no_counters: |_| None,
        linux_note: None,
        simulated: Err((
            "the simulated machine has no system calls",
            "use --machine qemu",
        )),
    };

    /// Policies that are compared on the simulated machine without a choice.
    pub fn simulated_policies(&self) -> [&'static str; 3] {
        match &self.simulated {
            Ok(simulated) => simulated.policies,
            Err(_) => Self::PLAIN.default_policies,
        }
    }

    /// How many virtual CPUs that many actors keep busy.
    pub fn busy_cpus(&self, actors: u32) -> usize {
        if self.shares_cpu { 1 } else { actors as usize }
    }
}

/// How long and how often rows are measured: milliseconds of a slice, rounds, milliseconds before them, boots.
#[derive(Debug)]
pub struct OwnEffort {
    /// With `--quick`.
    pub quick: [u32; 4],
    /// Without.
    pub whole: [u32; 4],
}

/// What runs in guests.
#[derive(Debug)]
pub struct InGuests {
    /// The program.
    pub program: &'static str,
    /// What a call of it does.
    pub call: &'static str,
    /// Columns besides those of all such workloads.
    pub columns: &'static [Column],
}

/// How flushes work: heading, and counter of the engine.
const FLUSHES: &[(&str, &str)] = &[
    ("acks before flush", "early_acks"),
    ("flushed here first", "flushes_overlapped"),
    ("nobody waited", "flushes_unwaited"),
    ("lines read", "shared_lines_read"),
    ("pages dropped", "pages_flushed"),
];

/// What Linux has of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLinux {
    /// All of it: it is the comparison that counts.
    Always,
    /// Less: there is a comparison where Linux was asked for.
    IfAsked,
    /// As before, and without a choice only an image with a disk is compared.
    WithDisk,
    /// Likewise with the modules of KVM.
    WithKvm,
    /// Nothing, for this reason.
    Never(&'static str),
}

impl OnLinux {
    /// What a machine with that image needs beside the program.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn files(self, image: &Path) -> Outcome<Vec<(String, Vec<u8>)>> {
        match self {
            Self::WithDisk => Ramdisk::find(image)?.files(),
            Self::WithKvm => Modules::of_kvm(image)?.files(),
            Self::Always | Self::IfAsked | Self::Never(_) => Ok(Vec::new()),
        }
    }

    /// Whether that image has all that a machine needs.
    pub fn is_ready(self, image: &Path) -> bool {
        match self {
            Self::WithDisk => Ramdisk::find(image).is_ok(),
            Self::WithKvm => Modules::of_kvm(image).is_ok(),
            Self::Always | Self::IfAsked | Self::Never(_) => true,
        }
    }
}

/// Calls of the engine and of other kernels' algorithms.
#[derive(Debug)]
pub struct Contest {
    /// Of the command line, of plans, and of results.
    pub name: &'static str,
    /// For the help.
    pub about: &'static str,
    /// Without a choice, on which simulated machines.
    pub presets: &'static [&'static str],
    /// Runs it on simulated machines.
    pub simulate: fn(&Calls, &[Setup]) -> Outcome<Findings>,
    /// What is measured on real cores.
    pub on_cores: OnCores,
    /// Without a choice, how long functions take where CPUs are real.
    pub functions_ns: &'static [u64],
    /// Whether a round as a whole says something.
    pub has_rounds: bool,
}
