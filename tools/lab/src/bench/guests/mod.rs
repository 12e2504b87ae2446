//! A bench inside guests of the reference kernel, on more virtual CPUs than CPUs: flushes by interrupts beside flushes before entry.
//!
//! The host is the reference kernel in the emulator, which runs itself by `vmm`; in the guest runs what the workload names.
//! What is compared boots in turn: a host that offers flushes before entry, and one that does not. Linux's KVM may be the host as well.
//!
//! * [`rows`]: what the rows of all boots become.

mod rows;

use std::time::Duration;

use serde_json::{Value, json};

use super::machine::{Machine, Start};
use super::plan::{Found, Plan, View};
use super::program::Axes;
use super::report;
use super::row::{Row, fill_ratios, stale};
use super::workload::InGuests;
use crate::cli::{Bench, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::machine::{self, Accel, Kernel, MEMORY_MIB, Nested, VMM, host_cores};
use crate::progress::Progress;
use crate::session::{self, Session};
use rows::{MARK, RATIOS, TELLINGS, mark};

/// CPUs of the host without `--cpus`, and virtual CPUs without `--threads`.
const CPUS: usize = 2;
const VCPUS: &[u32] = &[4];
const MOST_VCPUS: u32 = 8;
/// Beyond what is measured: two boots, and the program's own check.
const ALLOWANCE: Duration = Duration::from_secs(60);
/// How much sooner the guest is ended than the host.
const MARGIN: Duration = Duration::from_secs(15);
const FIGURES: &str = "call_median_ns call_p99_ns iterations ipis_per_op stale";

/// Such a bench, settled.
#[derive(Debug)]
pub struct GuestPlan<'a> {
    bench: &'a Bench,
    inside: &'static InGuests,
    session: Session,
    hosts: Vec<MachineKind>,
    cpus: usize,
    vcpus: Vec<u32>,
    accel: Accel,
}

impl<'a> GuestPlan<'a> {
    /// Settles everything before the first boot.
    ///
    /// # Errors
    /// The options make no sense, or there is no emulator.
    pub fn open(bench: &'a Bench) -> Outcome<Self> {
        let name = bench.workload.name;
        let inside = bench.workload.in_guests.as_ref();
        let inside = inside.expect("it runs in guests");
        let axes = Axes::new(bench)?;
        if axes.pages != [1] {
            let cause = format!("{name} uses one page a call");
            return Err(Failure::input(cause, "leave out --pages"));
        }
        let is_known = |policy: &String| TELLINGS.iter().any(|(name, ..)| name == policy);
        if let Some(policy) = bench.policies.iter().find(|policy| !is_known(policy)) {
            let cause = format!("{name} has no row {policy}");
            return Err(Failure::input(cause, "choose from interrupts, kvm, best"));
        }
        let vcpus = match &bench.threads {
            Some(_) => axes.actors,
            None => VCPUS.to_vec(),
        };
        if let Some(wrong) = vcpus
            .iter()
            .find(|vcpus| !(2..=MOST_VCPUS).contains(*vcpus))
        {
            return Err(Failure::input(
                format!("{wrong} virtual CPUs cannot be measured"),
                format!("--threads takes 2 to {MOST_VCPUS} on qemu"),
            ));
        }
        let cpus = bench.cpus.map_or(Ok(CPUS), session::cpus)?;
        Ok(Self {
            session: Session::open(&bench.emulator, &bench.machine)?,
            accel: bench.emulator.accel.settle(cpus)?,
            bench,
            inside,
            hosts: hosts(&bench.machine),
            cpus,
            vcpus,
        })
    }

    /// The guest's policies, where the host flushes before entry or does not.
    fn policies(&self, flushes: bool) -> Vec<&'static str> {
        let is_meant = |telling: &&(&str, bool, &str)| telling.1 == flushes && self.has(telling.0);
        let tellings = TELLINGS.iter().filter(is_meant);
        tellings.map(|&(_, _, policy)| policy).collect()
    }

    /// Whether a row of that name is asked for.
    fn has(&self, name: &str) -> bool {
        self.bench.policies.iter().any(|it| it == name)
    }

    /// The machines: hosts that offer flushes before entry or do not, as far as rows are asked for.
    fn sides(&self) -> impl Iterator<Item = (MachineKind, bool)> {
        let both = |&host: &MachineKind| [(host, false), (host, true)];
        let all = self.hosts.iter().flat_map(both);
        all.filter(|&(_, flushes)| !self.policies(flushes).is_empty())
    }

    /// Milliseconds a slice, rounds, boots.
    fn effort(&self) -> [u32; 3] {
        match self.bench.quick {
            true => [500, 2, 1],
            false => [1000, 3, 3],
        }
    }

    fn start(&self, vcpus: u32, (host, flushes): (MachineKind, bool)) -> Start {
        let [slice_ms, rounds, boots] = self.effort();
        let (policies, mark) = (self.policies(flushes), mark(host, flushes));
        let arguments = format!(
            "--threads={vcpus} --pages=1 --slice-ms={slice_ms} --rounds={rounds} --warmup-ms=20 --seed={} --policies={}",
            self.bench.seed,
            policies.join(",")
        );
        let measured_ms = slice_ms * rounds * policies.len() as u32;
        let deadline = ALLOWANCE + Duration::from_millis(u64::from(measured_ms)) * 3;
        let nested = Nested {
            vcpus: vcpus as usize,
            options: "",
            vmm: if flushes { "" } else { "--pv-flush=off" },
            program: (self.inside.program, b""),
            arguments: &arguments,
            deadline: deadline - MARGIN,
        };
        Start {
            what: format!("{} in a guest", self.bench.workload.name),
            label: format!("{vcpus} vCPUs on {} CPUs, {mark}", self.cpus),
            boots,
            cpus: self.cpus,
            accel: self.accel,
            options: String::new(),
            arguments: vec![nested.arguments()],
            deadline,
            needs: FIGURES,
            mark: (MARK, mark.into()),
            tells: true,
        }
    }

    fn result(&self, rows: &[Row], found: &Found) -> Value {
        let [slice_ms, rounds, boots] = self.effort();
        let hosts: Vec<&str> = self.hosts.iter().map(|host| host.name()).collect();
        json!({
            "workload": self.bench.workload.name, "machine": hosts.join(","),
            "accel": self.accel.to_string(), "cpus": self.cpus,
            "commit": crate::place::commit(), "date": crate::place::timestamp(),
            "params": {
                "threads": self.vcpus, "policies": self.bench.policies, "seed": self.bench.seed,
                "quick": self.bench.quick, "host_cores": host_cores(),
                "qemu": machine::qemu_version(&self.session.qemu),
                "effort": {"slice_ms": slice_ms, "rounds": rounds, "boots": boots},
                "busy_cores_of_others": found.others, "program": found.about,
            },
            "rows": rows,
        })
    }
}

impl Plan for GuestPlan<'_> {
    fn machines(&self, progress: &mut Progress) -> Outcome<Vec<Machine>> {
        progress.stage("building the kernel and the programs");
        let kernel: Kernel = self.session.kernel(MachineKind::Qemu)?;
        let programs = session::load_programs()?;
        let nested = Nested {
            vcpus: self.cpus,
            options: "",
            vmm: "",
            program: (
                self.inside.program,
                session::image(&programs, self.inside.program)?,
            ),
            arguments: "",
            deadline: ALLOWANCE,
        };
        let files = nested.files(&kernel)?;
        let image = session::image(&programs, VMM)?;
        let machine = |(host, _)| {
            Ok(Machine::Booted {
                qemu: self.session.qemu.clone(),
                kernel: match host {
                    MachineKind::Qemu => kernel.clone(),
                    _ => self.session.kernel(host)?,
                },
                memory_mib: MEMORY_MIB,
                program: (VMM, image.to_vec()),
                image: None,
                files: files.clone(),
            })
        };
        self.sides().map(machine).collect()
    }

    fn groups(&self) -> Vec<Vec<Start>> {
        let group = |&vcpus: &u32| self.sides().map(|side| self.start(vcpus, side)).collect();
        self.vcpus.iter().map(group).collect()
    }

    fn tells_failure(&self, rows: &[Row]) -> bool {
        stale(rows) > 0
    }

    fn check(&self, _: usize, machine: usize, rows: &[Row]) -> Outcome<()> {
        let due = self.sides().nth(machine);
        let due = due.map(|(_, flushes)| self.policies(flushes));
        let due = due.unwrap_or_default();
        let is_there = |policy: &&str| {
            let mut rows = rows.iter().filter(|row| row.text("policy") == *policy);
            rows.next().is_some_and(|row| row.count("iterations") > 0) && rows.next().is_none()
        };
        match rows.len() == due.len() && due.iter().all(is_there) {
            true => Ok(()),
            false => Err(Failure::work(format!(
                "the guest has printed other rows than {due:?}"
            ))),
        }
    }

    fn view(&self, found: Found) -> View {
        let mut rows = Vec::new();
        for (&vcpus, boots) in self.vcpus.iter().zip(&found.groups) {
            for &host in &self.hosts {
                let meant = TELLINGS.into_iter().filter(|telling| self.has(telling.0));
                rows.extend(meant.map(|telling| self.merge(host, vcpus, telling, boots)));
            }
        }
        fill_ratios(&mut rows, &RATIOS);
        let stale = stale(&rows);
        let tables: String = self
            .hosts
            .iter()
            .map(|&host| self.table(host, &rows))
            .collect();
        let tables = format!(
            "{tables}taken: virtual CPUs that did not run, and were flushed before they did\n\
             kvm: as kvm_flush_tlb_multi, policy published; interrupts, best: policy best\n\
             counts hold on any host; times show the emulator's and the host's scheduler, medians of {} boots\n",
            self.effort()[2]
        );
        View {
            remarks: report::remarks(found.others, self.bench.quick.then_some("short boots"))
                + report::crowded(&rows),
            tables,
            result: self.result(&rows, &found),
            closing: [
                format!("stale accesses: {stale}   raw samples: "),
                format!("   took {:.0} s", found.seconds),
            ],
            failure: report::verdict(stale),
        }
    }
}

/// Ours without a choice, each once.
fn hosts(asked: &[MachineKind]) -> Vec<MachineKind> {
    let both = [MachineKind::Qemu, MachineKind::Linux];
    let asked: Vec<_> = both
        .into_iter()
        .filter(|kind| asked.contains(kind))
        .collect();
    match asked.is_empty() {
        true => vec![MachineKind::Qemu],
        false => asked,
    }
}
