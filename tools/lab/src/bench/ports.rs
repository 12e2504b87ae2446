//! A bench on a machine of another architecture: a folder of `ports/`, in the privileged mode, in an emulator of its own.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::columns::{Column, Format, table};
use super::machine::{Machine, Start};
use super::plan::{Found, Plan, View};
use super::report;
use super::row::{Ratio, Row, fill_ratios, median};
use crate::cli::Bench;
use crate::client::{self, Client, Run};
use crate::failure::{Failure, Outcome};
use crate::machine::{Accel, AccelChoice, host_cores};
use crate::progress::Progress;

/// Policies that a machine measures, a row each.
const POLICIES: usize = 3;
const DEADLINE: Duration = Duration::from_secs(60);
const BOOTS: u32 = 3;
/// Machines have so many CPUs at most.
const MOST_CPUS: i64 = 8;

/// What such machines measure.
struct Work {
    /// Its name here and there.
    name: &'static str,
    /// Figures of a row, with spaces between; medians of all boots are taken.
    figures: &'static str,
    /// Where software refills the TLB there are these, too.
    counted: &'static str,
    columns: &'static [Column],
    ratios: &'static [Ratio],
    about: &'static str,
}

const WORKS: [Work; 2] = [
    Work {
        name: "shoot",
        figures: "median_ns p99_ns ipis_per_op flushed_per_op",
        counted: "",
        columns: &[
            Column::new("policy", "policy", Format::Words),
            Column::new("cpus", "CPUs", Format::Actors),
            Column::new("pages", "pages", Format::Digits(0)),
            Column::new("ipis_per_op", "IPIs/op", Format::Digits(2)),
            Column::new("flushed_per_op", "flushed/op", Format::Digits(2)),
            Column::new("median_ns", "median us", Format::Micros),
            Column::new("p99_ns", "p99 us", Format::Micros),
            Column::new("ratio", "median / before", Format::Digits(3)),
            Column::new("p99_ratio", "p99 / before", Format::Digits(3)),
        ],
        ratios: &[
            Ratio::to_before("ratio", "median_ns"),
            Ratio::to_before("p99_ratio", "p99_ns"),
        ],
        about: "one CPU flushes, all others use the space and wait for interrupts",
    },
    Work {
        name: "pingpong",
        figures: "median_ns p99_ns",
        counted: "first_refills refills",
        columns: &[
            Column::new("policy", "policy", Format::Words),
            Column::new("spaces", "spaces", Format::Digits(0)),
            Column::new("pages", "pages", Format::Digits(0)),
            Column::new("first_refills", "refills, first turn", Format::Digits(2)),
            Column::new("first_ratio", "first / before", Format::Digits(3)),
            Column::new("refills", "refills/turn", Format::Digits(2)),
            Column::new("refills_ratio", "refills / before", Format::Digits(3)),
            Column::new("median_ns", "median us", Format::Micros),
            Column::new("p99_ns", "p99 us", Format::Micros),
            Column::new("ratio", "median / before", Format::Digits(3)),
        ],
        ratios: &[
            Ratio::to_before("ratio", "median_ns"),
            Ratio::to_before("first_ratio", "first_refills"),
            Ratio::to_before("refills_ratio", "refills"),
        ],
        about: "spaces on one CPU, in turn; each reads its pages, at the same addresses; first turn: the first one after it was switched away from once",
    },
];

/// Such a bench, settled.
pub struct PortPlan {
    work: &'static Work,
    client: Client,
    /// Of each group: CPUs, spaces, pages.
    points: Vec<[u32; 3]>,
    boots: u32,
}

impl PortPlan {
    /// Settles everything before the first boot.
    ///
    /// # Errors
    /// There is no such architecture, it does not measure that, or something is missing.
    pub fn open(arch: &str, bench: &Bench) -> Outcome<Self> {
        let (name, quick) = match bench.calls() {
            Some(calls) => (calls.contest.name, calls.calls.quick),
            None => (bench.workload.name, bench.quick),
        };
        let Some(work) = WORKS.iter().find(|work| work.name == name) else {
            let known = WORKS.map(|work| work.name).join(", ");
            return Err(Failure::input(
                format!("{name} is not measured on other architectures"),
                format!("--arch is for {known}"),
            ));
        };
        let client = client::port(arch)?;
        let points = match bench.calls() {
            Some(calls) => {
                let cpus = calls.calls.cpus.clone().unwrap_or(vec![2]);
                let wrong = cpus.iter().find(|cpus| !(1..=MOST_CPUS).contains(*cpus));
                if let Some(wrong) = wrong {
                    return Err(Failure::input(
                        format!("{wrong} CPUs cannot be measured"),
                        format!("with --arch, --cpus takes 1 to {MOST_CPUS}"),
                    ));
                }
                cpus.iter().map(|cpus| [*cpus as u32, 1, 1]).collect()
            }
            None => {
                let spaces = bench.spaces.clone().unwrap_or(vec![2, 3, 6, 8, 12]);
                let pages = bench.pages.clone().unwrap_or(vec![0, 512]);
                let of = |spaces: &u32| pages.iter().map(|pages| [1, *spaces, *pages]).collect();
                spaces
                    .iter()
                    .flat_map(|spaces| -> Vec<_> { of(spaces) })
                    .collect()
            }
        };
        Ok(Self {
            work,
            client,
            points,
            boots: if quick { 1 } else { BOOTS },
        })
    }

    fn options(&self, [_, spaces, pages]: [u32; 3]) -> String {
        format!("work={} spaces={spaces} pages={pages}", self.work.name)
    }

    fn merge(&self, [cpus, spaces, pages]: [u32; 3], boots: &[Vec<Row>]) -> Vec<Row> {
        let merged = |first: &Row| {
            let policy = first.text("policy");
            let own: Vec<&Row> = (boots.iter().flatten())
                .filter(|row| row.text("policy") == policy)
                .collect();
            let mut row = Row::of(json!({
                "machine": self.client.name, "policy": policy, "cpus": cpus, "spaces": spaces, "pages": pages,
                "crowded": cpus as usize > host_cores(),
            }));
            for key in self
                .work
                .figures
                .split(' ')
                .chain(self.work.counted.split(' '))
            {
                let figures: Vec<f64> = own.iter().filter_map(|row| row.number(key)).collect();
                if !figures.is_empty() {
                    row.set(key, median(figures.into_iter()));
                }
            }
            row
        };
        boots[0].iter().map(merged).collect()
    }
}

impl Plan for PortPlan {
    fn machines(&self, progress: &mut Progress) -> Outcome<Vec<Machine>> {
        progress.stage("building the machine");
        let image = self.client.build(1)?;
        Ok(vec![Machine::Port(Box::new(self.client.clone()), image)])
    }

    fn groups(&self) -> Vec<Vec<Start>> {
        let start = |point: &[u32; 3]| {
            vec![Start {
                what: format!("{} on {}", self.work.name, self.client.name),
                label: self.options(*point),
                boots: self.boots,
                cpus: point[0] as usize,
                accel: Accel::Multi,
                options: self.options(*point),
                arguments: Vec::new(),
                deadline: DEADLINE,
                needs: self.work.figures,
                mark: ("machine", self.client.name.clone().into()),
                tells: false,
            }]
        };
        self.points.iter().map(start).collect()
    }

    fn tells_failure(&self, _: &[Row]) -> bool {
        false
    }

    fn check(&self, _: usize, _: usize, rows: &[Row]) -> Outcome<()> {
        match rows.len() {
            POLICIES => Ok(()),
            count => Err(Failure::work(format!(
                "{} has printed {count} rows instead of {POLICIES}; see it by  ./lab client {} --options 'work={}'",
                self.client.name, self.client.name, self.work.name
            ))),
        }
    }

    fn view(&self, found: Found) -> View {
        let groups = self.points.iter().zip(&found.groups);
        let mut rows: Vec<Row> = groups
            .flat_map(|(point, boots)| self.merge(*point, boots))
            .collect();
        fill_ratios(&mut rows, self.work.ratios);
        let (name, arch) = (self.work.name, &self.client.name);
        let columns: Vec<Column> = (self.work.columns.iter().copied())
            .filter(|column| rows.iter().any(|row| row.0.contains_key(column.key)))
            .collect();
        let tables = format!(
            "\n{name} on {arch}, in the privileged mode, emulated: {}\n{}\ncounts hold on any host; times are the emulator's, medians of {} boots\n",
            self.work.about,
            table(&columns, rows.iter()),
            self.boots
        );
        let result = json!({
            "workload": name, "machine": arch, "accel": "tcg",
            "commit": crate::place::commit(), "date": crate::place::timestamp(),
            "params": { "boots": self.boots, "host_cores": host_cores(), "busy_cores_of_others": found.others },
            "rows": rows,
        });
        View {
            remarks: report::remarks(found.others, (self.boots == 1).then_some("one boot"))
                + report::crowded(&rows),
            tables,
            result,
            closing: [
                "raw samples: ".into(),
                format!("   took {:.0} s", found.seconds),
            ],
            failure: None,
        }
    }
}

/// The emulator of a port, for one start.
pub fn command(client: &Client, image: &Path, start: &Start) -> Outcome<std::process::Command> {
    let run = Run {
        pc: None,
        accel: AccelChoice::Tcg,
        cpus: start.cpus,
        seconds: 0,
    };
    client.qemu(image, run, &start.options)
}
