//! A bench inside guests of the reference kernel, on more virtual CPUs than CPUs: flushes by interrupts beside flushes before entry.
//!
//! The host is the reference kernel in the emulator, which runs itself by `vmm`; in the guest, `madvise` drops a page that all other threads have
//! touched. What is compared boots in turn: a host that offers flushes before entry, and one that does not.

use std::time::Duration;

use serde_json::{Value, json};

use super::columns::{Column, Format, table};
use super::machine::{Machine, Start};
use super::plan::{Found, Plan, View};
use super::program::Axes;
use super::report;
use super::row::{Ratio, Row, fill_ratios, median, stale, thin};
use crate::cli::{Bench, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::machine::{self, Accel, Kernel, Nested, VMM, host_cores};
use crate::progress::Progress;
use crate::session::{self, Session};

/// What runs in the guest.
const PROGRAM: &str = "madvise";
/// CPUs of the host without `--cpus`, and virtual CPUs without `--threads`.
const CPUS: usize = 2;
const VCPUS: &[u32] = &[4];
const MOST_VCPUS: u32 = 8;
/// Beyond what is measured: two boots, and the program's own check.
const ALLOWANCE: Duration = Duration::from_secs(60);
/// How much sooner the guest is ended than the host.
const MARGIN: Duration = Duration::from_secs(15);
const SAMPLES_KEPT: usize = 2000;
const FIGURES: &str = "call_median_ns call_p99_ns iterations ipis_per_op stale";

/// Rows by what tells CPUs of a flush: their name, whether the host flushes before entry, the guest's policy.
const TELLINGS: [(&str, bool, &str); 3] = [
    ("interrupts", false, "best"),
    ("kvm", true, "published"),
    ("best", true, "best"),
];
/// Whether the host does, as rows are marked and as `vmm` is told.
const SIDES: [(&str, &str); 2] = [("off", "--pv-flush=off"), ("on", "--pv-flush=on")];

/// Counts come first: times are an emulator's on a host with other work.
const COLUMNS: [Column; 9] = [
    Column::new("threads", "vCPUs", Format::Actors),
    Column::new("policy", "flushes by", Format::Words),
    Column::new("ipis_per_op", "IPIs/op", Format::Digits(2)),
    Column::new("taken_per_op", "taken/op", Format::Digits(2)),
    Column::new("median_ratio", "median / interrupts", Format::Digits(3)),
    Column::new("ratio", "p99 / interrupts", Format::Digits(3)),
    Column::new("median_ns", "median us", Format::Micros),
    Column::new("iterations", "calls", Format::Digits(0)),
    Column::new("stale", "stale", Format::Digits(0)),
];
const RATIOS: [Ratio; 2] = [
    Ratio::new("median_ratio", "median_ns", &[("policy", "interrupts")]),
    Ratio::new("ratio", "p99_ns", &[("policy", "interrupts")]),
];

/// Such a bench, settled.
#[derive(Debug)]
pub struct GuestPlan<'a> {
    bench: &'a Bench,
    session: Session,
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
        if bench.machine.contains(&MachineKind::Linux) {
            let cause = format!("{name} runs in guests of the reference kernel");
            return Err(Failure::input(cause, "use --machine qemu"));
        }
        let axes = Axes::new(bench)?;
        if axes.pages != [1] {
            let cause = format!("{name} drops one page a call");
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
            cpus,
            vcpus,
        })
    }

    /// The guest's policies, where the host flushes before entry or does not.
    fn policies(&self, side: usize) -> Vec<&'static str> {
        let is_meant = |&&(name, flushes, _): &&(&str, bool, &str)| {
            flushes == (side == 1) && self.bench.policies.iter().any(|it| it == name)
        };
        let tellings = TELLINGS.iter().filter(is_meant);
        tellings.map(|&(_, _, policy)| policy).collect()
    }

    /// Sides of which a row is asked for.
    fn sides(&self) -> impl Iterator<Item = usize> {
        (0..SIDES.len()).filter(|&side| !self.policies(side).is_empty())
    }

    /// Milliseconds a slice, rounds, boots.
    fn effort(&self) -> [u32; 3] {
        match self.bench.quick {
            true => [500, 2, 1],
            false => [1000, 3, 3],
        }
    }

    fn start(&self, vcpus: u32, side: usize) -> Start {
        let [slice_ms, rounds, boots] = self.effort();
        let (policies, (mark, option)) = (self.policies(side), SIDES[side]);
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
            vmm: option,
            program: (PROGRAM, b""),
            arguments: &arguments,
            deadline: deadline - MARGIN,
        };
        Start {
            what: format!("{} in a guest", self.bench.workload.name),
            label: format!(
                "{vcpus} vCPUs on {} CPUs, flushes before entry {mark}",
                self.cpus
            ),
            boots,
            cpus: self.cpus,
            accel: self.accel,
            options: String::new(),
            arguments: vec![nested.arguments()],
            deadline,
            needs: FIGURES,
            mark: ("flush_before_entry", mark.into()),
            tells: true,
        }
    }

    /// One row of those of all boots.
    fn merge(&self, vcpus: u32, name: &str, boots: &[Vec<Row>]) -> Row {
        let (_, flushes, policy) =
            TELLINGS[TELLINGS.iter().position(|it| it.0 == name).unwrap_or(0)];
        let mark = SIDES[usize::from(flushes)].0;
        let is_own =
            |row: &&Row| row.text("flush_before_entry") == mark && row.text("policy") == policy;
        let own: Vec<&Row> = boots.iter().flatten().filter(is_own).collect();
        let calls: u64 = own.iter().map(|row| row.count("iterations")).sum();
        let per_call = |of: &dyn Fn(&Row) -> f64| {
            let all = own
                .iter()
                .map(|row| of(row) * row.count("iterations") as f64);
            all.sum::<f64>() / calls.max(1) as f64
        };
        let middle = |key: &str| median(own.iter().filter_map(|row| row.number(key)));
        let samples: Vec<f64> = own.iter().flat_map(|row| row.numbers("samples")).collect();
        let crowded = self.cpus > host_cores();
        Row::of(json!({
            "machine": MachineKind::Qemu.name(), "policy": name, "threads": vcpus, "pages": 1,
            "cpus": self.cpus, "accel": self.accel.to_string(), "crowded": crowded,
            "median_ns": middle("call_median_ns"), "p99_ns": middle("call_p99_ns"),
            "median_ratio": null, "ratio": null,
            "ipis_per_op": per_call(&|row| row.number("ipis_per_op").unwrap_or(0.0)),
            "taken_per_op": per_call(&|row| row.counter("cpus_taken")),
            "stale": own.iter().map(|row| row.count("stale")).sum::<u64>(),
            "iterations": calls, "samples": thin(samples, SAMPLES_KEPT),
        }))
    }

    fn result(&self, rows: &[Row], found: &Found) -> Value {
        let [slice_ms, rounds, boots] = self.effort();
        json!({
            "workload": self.bench.workload.name, "machine": MachineKind::Qemu.name(),
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
            program: (PROGRAM, session::image(&programs, PROGRAM)?),
            arguments: "",
            deadline: ALLOWANCE,
        };
        let files = nested.files(&kernel)?;
        let image = session::image(&programs, VMM)?;
        let machine = |_| Machine::Booted {
            qemu: self.session.qemu.clone(),
            kernel: kernel.clone(),
            program: (VMM, image.to_vec()),
            files: files.clone(),
        };
        Ok(self.sides().map(machine).collect())
    }

    fn groups(&self) -> Vec<Vec<Start>> {
        let group = |&vcpus: &u32| self.sides().map(|side| self.start(vcpus, side)).collect();
        self.vcpus.iter().map(group).collect()
    }

    fn tells_failure(&self, rows: &[Row]) -> bool {
        stale(rows) > 0
    }

    fn check(&self, _: usize, machine: usize, rows: &[Row]) -> Outcome<()> {
        let due = self.sides().nth(machine).map(|side| self.policies(side));
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
            let policies = self.bench.policies.iter();
            rows.extend(policies.map(|name| self.merge(vcpus, name, boots)));
        }
        fill_ratios(&mut rows, &RATIOS);
        let stale = stale(&rows);
        let tables = format!(
            "\novercommit in a guest of the reference kernel: one thread a virtual CPU, a host of {} CPUs; a madvise of one page\n{}\n\
             taken: virtual CPUs that did not run, and were flushed before they did\n\
             kvm: as kvm_flush_tlb_multi, policy published; interrupts, best: policy best\n\
             counts hold on any host; times show the emulator's and the host's scheduler, medians of {} boots\n{}",
            self.cpus,
            table(&COLUMNS, &rows),
            self.effort()[2],
            report::remarks(found.others, self.bench.quick.then_some("short boots"))
        );
        View {
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
