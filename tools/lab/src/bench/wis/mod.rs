//! will-it-scale on both kernels: its tests, unmodified, from a clone that the caller has; and one table of operations a second.
//!
//! * [`build`]: the program;
//! * [`table`]: what people read.

mod build;
mod table;

use std::ops::Range;
use std::time::Duration;

use serde_json::json;

use super::machine::{Machine, Start};
use super::plan::{Found, Plan, View};
use super::report;
use super::row::Row;
use crate::cli::{MachineKind, Wis};
use crate::failure::{Failure, Outcome};
use crate::machine::{self, Accel, host_cores};
use crate::place;
use crate::progress::Progress;
use crate::session::{self, Session};

/// Milliseconds of a slice, slices of a run, milliseconds before them, boots.
const WHOLE: [u32; 4] = [80, 5, 40, 2];
const QUICK: [u32; 4] = [50, 3, 20, 1];
/// Those that the published machines had least of: one initiator and one target.
const LEAST_CPUS: u32 = 2;
const KINDS: usize = 2;
/// Tests of one boot: the host is another one a minute later, so the kernels take turns before.
const TESTS_A_BOOT: usize = 8;
/// Two tasks have files of 256 MiB together, which is more than either kernel gives to files of half as much: those that are faster would get SIGBUS first.
const MEMORY_MIB: u32 = 1024;
/// What starting and ending a machine, and a run, may take on a slow and busy host.
const BOOT_ALLOWANCE: Duration = Duration::from_secs(90);
const RUN_ALLOWANCE_MS: u32 = 1500;

/// The bench, settled.
#[derive(Debug)]
pub struct WisPlan<'a> {
    wis: &'a Wis,
    session: Session,
    machines: Vec<MachineKind>,
    tests: Vec<String>,
    tasks: Vec<u32>,
    cpus: usize,
    accel: Accel,
}

impl<'a> WisPlan<'a> {
    /// Finds the emulator and the sources, and settles everything before the first boot.
    ///
    /// # Errors
    /// Something is missing, or the options make no sense.
    pub fn open(wis: &'a Wis) -> Outcome<Self> {
        let tests = build::tests(&wis.source, &wis.tests)?;
        let session = Session::open(&wis.emulator, &wis.machine)?;
        let mut machines = wis.machine.clone();
        if machines.is_empty() {
            machines.push(MachineKind::Qemu);
            machines.extend(session.linux.as_ref().map(|_| MachineKind::Linux));
        }
        machines.sort();
        machines.dedup();
        let mut tasks = wis.tasks.clone();
        tasks.sort_unstable();
        tasks.dedup();
        let most = tasks.last().copied().unwrap_or(1);
        let cpus = session::cpus_by("--tasks", most.max(LEAST_CPUS).into())?;
        Ok(Self {
            accel: wis.emulator.accel.settle(most as usize)?,
            wis,
            session,
            machines,
            tests,
            tasks,
            cpus,
        })
    }

    fn effort(&self) -> [u32; 4] {
        if self.wis.quick { QUICK } else { WHOLE }
    }

    /// The tests of each boot.
    fn groups(&self) -> impl Iterator<Item = Range<usize>> {
        let all = self.tests.len();
        let firsts = (0..all).step_by(TESTS_A_BOOT);
        firsts.map(move |first| first..all.min(first + TESTS_A_BOOT))
    }

    /// How many rows such a boot prints.
    fn due(&self, tests: &Range<usize>) -> usize {
        tests.len() * KINDS * self.tasks.len()
    }

    fn start(&self, tests: &Range<usize>, kind: MachineKind) -> Start {
        let [slice_ms, slices, warmup_ms, boots] = self.effort();
        let name = kind.name();
        let run_ms = slice_ms * slices + warmup_ms;
        let tasks: Vec<String> = self.tasks.iter().map(u32::to_string).collect();
        Start {
            what: format!("wis on {name}"),
            label: format!("{name} on {} CPUs", self.cpus),
            boots,
            cpus: self.cpus,
            accel: self.accel,
            options: String::new(),
            arguments: vec![
                format!("--first={}", tests.start),
                format!("--last={}", tests.end - 1),
                format!("--tasks={}", tasks.join(",")),
                format!("--slice-ms={slice_ms}"),
                format!("--slices={slices}"),
                format!("--warmup-ms={warmup_ms}"),
            ],
            deadline: BOOT_ALLOWANCE
                + Duration::from_millis((3 * run_ms + RUN_ALLOWANCE_MS).into())
                    * self.due(tests) as u32,
            needs: "tasks",
            mark: ("machine", name.into()),
            tells: false,
        }
    }
}

impl Plan for WisPlan<'_> {
    fn machines(&self, progress: &mut Progress) -> Outcome<Vec<Machine>> {
        progress.stage("building the kernel and the tests");
        let kernels = self.machines.iter().map(|&kind| self.session.kernel(kind));
        let kernels = kernels.collect::<Outcome<Vec<_>>>()?;
        let program = build::program(&self.wis.source, &self.tests, progress)?;
        let machine = |kernel| Machine::Booted {
            qemu: self.session.qemu.clone(),
            kernel,
            memory_mib: MEMORY_MIB,
            program: ("wis", program.clone()),
            image: None,
            files: Vec::new(),
        };
        Ok(kernels.into_iter().map(machine).collect())
    }

    fn groups(&self) -> Vec<Vec<Start>> {
        let machines = |tests: Range<usize>| {
            let kinds = self.machines.iter();
            kinds.map(|&kind| self.start(&tests, kind)).collect()
        };
        self.groups().map(machines).collect()
    }

    fn tells_failure(&self, _: &[Row]) -> bool {
        false
    }

    fn check(&self, group: usize, machine: usize, rows: &[Row]) -> Outcome<()> {
        let tests = self.groups().nth(group).unwrap_or_default();
        match (rows.len(), self.due(&tests)) {
            (rows, due) if rows == due => Ok(()),
            (rows, due) => {
                let name = self.machines[machine].name();
                Err(Failure::work(format!(
                    "wis on {name}: {rows} rows where {due} were due"
                )))
            }
        }
    }

    fn view(&self, found: Found) -> View {
        let measured: Vec<Row> = found.groups.into_iter().flatten().flatten().collect();
        let rows = table::rows(&measured);
        let [slice_ms, slices, _, boots] = self.effort();
        let ground = format!(
            "operations a second: medians of {} slices of {slice_ms} ms; {} virtual CPUs on {} host cores, accel {}\n",
            slices * boots,
            self.cpus,
            host_cores(),
            self.accel,
        );
        let machines: Vec<&str> = self.machines.iter().map(|kind| kind.name()).collect();
        View {
            remarks: report::remarks(found.others, self.wis.quick.then_some("short slices")),
            tables: format!("\n{}\n{}{ground}", table::of(&rows), table::summary(&rows)),
            result: json!({
                "workload": "wis", "machine": machines.join(","), "accel": self.accel.to_string(),
                "cpus": self.cpus, "commit": place::commit(), "date": place::timestamp(),
                "params": {
                    "tests": self.tests, "tasks": self.tasks, "quick": self.wis.quick,
                    "effort": self.effort(), "memory_mib": MEMORY_MIB, "host_cores": host_cores(), "busy_cores_of_others": found.others,
                    "qemu": machine::qemu_version(&self.session.qemu),
                    "linux": self.session.linux.as_deref().and_then(machine::linux_version),
                },
                "rows": rows, "measured": measured,
            }),
            closing: [
                "raw samples: ".into(),
                format!("   took {:.0} s", found.seconds),
            ],
            failure: None,
        }
    }
}
