//! What one `bench` boots: which machines, how often, with which parameters.

use std::time::Duration;

use serde::Serialize;

use crate::cli::{Bench, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::machine::{Accel, host_cores};
use crate::session::{self, Session};

/// Without `--cpus`, machines have this many: one initiator and one target.
const DEFAULT_CPUS: usize = 2;
/// No flush of the workload is larger than this.
const MOST_PAGES: u32 = 4096;
/// What a boot may need beyond its measuring time, on a slow and busy host.
const BOOT_ALLOWANCE: Duration = Duration::from_secs(45);

/// How long and how often each row is measured.
#[derive(Debug, Clone, Serialize)]
pub struct Effort {
    /// One policy's turn within a round.
    pub slice_ms: u32,
    /// Rounds a boot; the order of policies rotates from round to round.
    pub rounds: u32,
    /// Before the first round of each row.
    pub warmup_ms: u32,
    /// Boots of each machine, alternating.
    pub boots: u32,
}

/// Rows that one machine measures together.
#[derive(Debug, Clone)]
pub struct Group {
    /// Virtual CPUs.
    pub cpus: usize,
    /// Threads of the program, one row each.
    pub threads: Vec<u32>,
    /// What the machine runs on.
    pub accel: Accel,
    /// Whether more virtual CPUs are busy than the host has cores.
    pub is_crowded: bool,
    /// How long.
    pub effort: Effort,
}

/// A whole `bench`.
#[derive(Debug)]
pub struct Plan {
    /// The machines compared, in the order in which they boot.
    pub machines: Vec<MachineKind>,
    /// The groups, in order.
    pub groups: Vec<Group>,
}

impl Plan {
    /// Settles everything before the first boot.
    ///
    /// # Errors
    /// The options contradict each other or the host.
    pub fn new(bench: &Bench, session: &Session) -> Outcome<Self> {
        check_axes(bench)?;
        let machines = machines(bench, session);
        let threads = distinct(&bench.threads);
        let base_cpus = match bench.cpus {
            Some(asked) => session::cpus(asked)?,
            None => DEFAULT_CPUS,
        };
        let (fitting, beyond): (Vec<u32>, Vec<u32>) =
            threads.iter().partition(|&&n| n as usize <= base_cpus);
        if let (Some(_), Some(most)) = (bench.cpus, beyond.last()) {
            let cause = format!("{most} busy threads need {most} virtual CPUs");
            return Err(Failure::input(
                cause,
                format!("use --cpus {most}, or fewer --threads"),
            ));
        }
        let mut groups = Vec::new();
        if !fitting.is_empty() {
            groups.push(Group::new(base_cpus, fitting, bench)?);
        }
        for most in beyond {
            groups.push(Group::new(session::cpus(most.into())?, vec![most], bench)?);
        }
        Ok(Self { machines, groups })
    }
}

impl Group {
    fn new(cpus: usize, threads: Vec<u32>, bench: &Bench) -> Outcome<Self> {
        let busy = threads.iter().copied().max().unwrap_or(1) as usize;
        let is_crowded = busy > host_cores();
        let effort = match (bench.quick, is_crowded) {
            (true, false) => Effort {
                slice_ms: 30,
                rounds: 3,
                warmup_ms: 20,
                boots: 2,
            },
            (true, true) => Effort {
                slice_ms: 60,
                rounds: 2,
                warmup_ms: 20,
                boots: 1,
            },
            (false, false) => Effort {
                slice_ms: 60,
                rounds: 7,
                warmup_ms: 50,
                boots: 5,
            },
            (false, true) => Effort {
                slice_ms: 150,
                rounds: 5,
                warmup_ms: 50,
                boots: 1,
            },
        };
        let accel = bench.emulator.accel.settle(busy)?;
        Ok(Self {
            cpus,
            threads,
            accel,
            is_crowded,
            effort,
        })
    }

    /// The program's arguments; on Linux there is but its own policy.
    pub fn arguments(&self, bench: &Bench, kind: MachineKind) -> Vec<String> {
        let effort = &self.effort;
        let mut arguments = vec![
            format!("--threads={}", join(&self.threads)),
            format!("--pages={}", join(&distinct(&bench.pages))),
            format!("--slice-ms={}", effort.slice_ms),
            format!("--rounds={}", effort.rounds),
            format!("--warmup-ms={}", effort.warmup_ms),
            format!("--seed={}", bench.seed),
        ];
        if kind == MachineKind::Qemu {
            arguments.push(format!("--policies={}", bench.policies.join(",")));
        }
        arguments
    }

    /// The rows that a boot must print: policies of that machine, threads, pages.
    pub fn rows(&self, bench: &Bench, kind: MachineKind) -> Vec<(String, u32, u32)> {
        let policies = match kind {
            MachineKind::Qemu | MachineKind::Sim => bench.policies.clone(),
            MachineKind::Linux => vec!["linux".into()],
        };
        let mut rows = Vec::new();
        for &pages in &distinct(&bench.pages) {
            for &threads in &self.threads {
                rows.extend(
                    policies
                        .iter()
                        .map(|policy| (policy.clone(), threads, pages)),
                );
            }
        }
        rows
    }

    /// When a boot is ended as stuck: thrice what it should measure, and the boot itself.
    pub fn deadline(&self, bench: &Bench, kind: MachineKind) -> Duration {
        let rows = self.rows(bench, kind).len() as u32;
        let row_ms = self.effort.rounds * self.effort.slice_ms + self.effort.warmup_ms;
        BOOT_ALLOWANCE + Duration::from_millis(u64::from(rows * row_ms) * 3)
    }
}

fn machines(bench: &Bench, session: &Session) -> Vec<MachineKind> {
    if !bench.machine.is_empty() {
        let mut machines = Vec::new();
        for &kind in &bench.machine {
            if !machines.contains(&kind) {
                machines.push(kind);
            }
        }
        return machines;
    }
    match session.linux {
        Some(_) => vec![MachineKind::Qemu, MachineKind::Linux],
        None => vec![MachineKind::Qemu],
    }
}

/// What every machine refuses.
pub fn check_axes(bench: &Bench) -> Outcome<()> {
    const POLICIES: [&str; 3] = ["before", "published", "best"];
    if let Some(pages) = bench
        .pages
        .iter()
        .find(|&&pages| pages == 0 || pages > MOST_PAGES)
    {
        return Err(Failure::input(
            format!("{pages} pages a flush cannot be measured"),
            "--pages takes 1 to 4096",
        ));
    }
    if bench.threads.contains(&0) || bench.threads.is_empty() || bench.pages.is_empty() {
        return Err(Failure::input(
            "0 threads cannot be measured",
            "--threads takes 1 to 16",
        ));
    }
    match bench
        .policies
        .iter()
        .find(|policy| !POLICIES.contains(&policy.as_str()))
    {
        Some(policy) => Err(Failure::input(
            format!("no policy is called {policy:?}"),
            format!("choose from {}", POLICIES.join(", ")),
        )),
        None => Ok(()),
    }
}

/// Sorted, each value once.
pub fn distinct(values: &[u32]) -> Vec<u32> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

fn join(values: &[u32]) -> String {
    values
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn bench(words: &str) -> Bench {
        let words = ["lab", "bench", "--accel", "tcg"]
            .into_iter()
            .chain(words.split_whitespace());
        match Cli::parse_from(words).command {
            Command::Bench(bench) => bench,
            other => panic!("{other:?}"),
        }
    }

    fn plan(words: &str, linux: Option<&str>) -> Outcome<Plan> {
        let session = Session {
            qemu: "qemu".into(),
            linux: linux.map(Into::into),
        };
        Plan::new(&bench(words), &session)
    }

    #[test]
    fn without_options_two_cpus_measure_one_and_two_threads_and_four_get_their_own_boot() {
        let plan = plan("", None).unwrap();
        let shape: Vec<_> = plan
            .groups
            .iter()
            .map(|group| (group.cpus, group.threads.clone()))
            .collect();
        assert_eq!(shape, [(2, vec![1, 2]), (4, vec![4])]);
        assert_eq!(plan.machines, [MachineKind::Qemu]);
    }

    #[test]
    fn linux_is_compared_when_there_is_an_image() {
        assert_eq!(
            plan("", Some("k")).unwrap().machines,
            [MachineKind::Qemu, MachineKind::Linux]
        );
        assert_eq!(
            plan("--machine qemu", Some("k")).unwrap().machines,
            [MachineKind::Qemu]
        );
    }

    #[test]
    fn more_threads_than_the_asked_cpus_is_a_mistake() {
        let text = plan("--cpus 2 --threads 4", None).unwrap_err().to_string();
        assert!(text.contains("--cpus 4"), "{text}");
    }

    #[test]
    fn axes_out_of_range_are_refused() {
        for words in [
            "--threads 0",
            "--threads 17",
            "--pages 0",
            "--pages 99999",
            "--policies fast",
            "--cpus 0",
            "--cpus 17",
        ] {
            assert!(plan(words, None).is_err(), "{words}");
        }
    }

    #[test]
    fn linux_is_asked_for_no_policy() {
        let bench = bench("");
        let session = Session {
            qemu: "qemu".into(),
            linux: None,
        };
        let group = &Plan::new(&bench, &session).unwrap().groups[0];
        let has_policies = |kind| {
            group
                .arguments(&bench, kind)
                .iter()
                .any(|a| a.starts_with("--policies"))
        };
        assert!(has_policies(MachineKind::Qemu) && !has_policies(MachineKind::Linux));
        assert_eq!(group.rows(&bench, MachineKind::Linux).len(), 6);
        assert_eq!(group.rows(&bench, MachineKind::Qemu).len(), 18);
    }
}
