//! What one `bench` boots: which machines, how often, with which parameters.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::merge::Setting;
use super::workload::{Axes, OnLinux};
use crate::cli::{Bench, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::machine::{Accel, AccelChoice, Ramdisk, host_cores};
use crate::session::{self, Session};

/// Without `--cpus`, machines have this many: one initiator and one target.
const DEFAULT_CPUS: usize = 2;
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

impl Effort {
    /// For a 99th percentile over intervals: many, each long enough for a long time with interrupts off.
    fn of_intervals(is_quick: bool) -> Self {
        let (rounds, boots) = if is_quick { (8, 1) } else { (25, 3) };
        Self {
            slice_ms: 100,
            rounds,
            warmup_ms: 100,
            boots,
        }
    }
}

/// Rows that one machine measures together.
#[derive(Debug, Clone)]
pub struct Group {
    /// Virtual CPUs.
    pub cpus: usize,
    /// Actors of the program, one row each.
    pub actors: Vec<u32>,
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
    /// What is measured.
    pub axes: Axes,
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
        let axes = Axes::new(bench)?;
        let machines = machines(bench, session);
        if let (OnLinux::Never(why), true) =
            (bench.workload.linux, machines.contains(&MachineKind::Linux))
        {
            return Err(Failure::input(why, "use --machine qemu"));
        }
        let base_cpus = match bench.cpus {
            Some(asked) => session::cpus(asked)?,
            None => DEFAULT_CPUS,
        };
        let fits = |actors: u32| axes.program.busy_cpus(actors) <= base_cpus;
        let (fitting, beyond): (Vec<u32>, Vec<u32>) =
            axes.actors.iter().partition(|&&actors| fits(actors));
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
        Ok(Self {
            axes,
            machines,
            groups,
        })
    }
}

impl Group {
    fn new(cpus: usize, actors: Vec<u32>, bench: &Bench) -> Outcome<Self> {
        let most = actors.iter().copied().max().unwrap_or(1);
        let busy = bench.workload.busy_cpus(most);
        let counts = bench.emulator.accel == AccelChoice::Icount;
        if counts && busy > 1 {
            return Err(Failure::input(
                "with --accel icount CPUs take turns, and busy threads let nobody have his",
                format!("use --{} 1", bench.workload.actors.name()),
            ));
        }
        let is_crowded = busy > host_cores() && !counts;
        let effort = match (bench.quick, is_crowded) {
            _ if bench.workload.has_intervals => Effort::of_intervals(bench.quick),
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
            actors,
            accel,
            is_crowded,
            effort,
        })
    }

    /// What is the same for all of its rows.
    pub fn setting(&self) -> Setting {
        Setting {
            cpus: self.cpus,
            accel: self.accel.to_string(),
            is_crowded: self.is_crowded,
        }
    }

    /// The program's arguments; on Linux there is but its own policy.
    pub fn arguments(&self, bench: &Bench, axes: &Axes, kind: MachineKind) -> Vec<String> {
        let effort = &self.effort;
        let mut arguments = vec![
            format!("--{}={}", axes.program.actors.name(), join(&self.actors)),
            format!("--pages={}", join(&axes.pages)),
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

    /// The rows that a boot must print: policies of that machine, actors, pages.
    pub fn rows(&self, bench: &Bench, axes: &Axes, kind: MachineKind) -> Vec<(String, u32, u32)> {
        let policies = match kind {
            MachineKind::Qemu | MachineKind::Sim => bench.policies.clone(),
            MachineKind::Linux => vec!["linux".into()],
        };
        let mut rows = Vec::new();
        for &pages in &axes.pages {
            for &actors in &self.actors {
                rows.extend(
                    policies
                        .iter()
                        .map(|policy| (policy.clone(), actors, pages)),
                );
            }
        }
        rows
    }

    /// When a boot is ended as stuck: thrice what it should measure, and the boot itself.
    pub fn deadline(&self, bench: &Bench, axes: &Axes, kind: MachineKind) -> Duration {
        let rows = self.rows(bench, axes, kind).len() as u32;
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
    let is_comparable =
        |image: &Path| bench.workload.linux != OnLinux::WithDisk || Ramdisk::find(image).is_ok();
    match &session.linux {
        Some(image) if is_comparable(image) => vec![MachineKind::Qemu, MachineKind::Linux],
        _ => vec![MachineKind::Qemu],
    }
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
            Command::Bench(bench) => bench.settle(),
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
            .map(|group| (group.cpus, group.actors.clone()))
            .collect();
        assert_eq!(shape, [(2, vec![1, 2]), (4, vec![4])]);
        assert_eq!(plan.machines, [MachineKind::Qemu]);
    }

    #[test]
    fn all_spaces_share_one_cpu_and_so_one_boot() {
        let plan = plan("pingpong", None).unwrap();
        let groups = &plan.groups;
        assert_eq!((groups.len(), groups[0].cpus), (1, 2));
        assert_eq!(groups[0].actors, [2, 3, 6, 8, 12]);
        assert!(!groups[0].is_crowded);
        let arguments = groups[0].arguments(&bench("pingpong"), &plan.axes, MachineKind::Linux);
        assert_eq!(arguments[..2], ["--spaces=2,3,6,8,12", "--pages=0,512"]);
    }

    #[test]
    fn intervals_are_enough_for_a_percentile() {
        let plan = plan("preemptoff", None).unwrap();
        let groups: Vec<_> = plan
            .groups
            .iter()
            .map(|g| (g.cpus, &g.actors[..]))
            .collect();
        assert_eq!(groups, [(2, &[2][..]), (4, &[4])]);
        for group in &plan.groups {
            let effort = &group.effort;
            assert!(effort.rounds * effort.boots * group.actors[0] >= 100);
        }
        let arguments =
            plan.groups[1].arguments(&bench("preemptoff"), &plan.axes, MachineKind::Qemu);
        assert_eq!(arguments[..2], ["--threads=4", "--pages=8"]);
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
    fn files_are_compared_with_linux_only_where_it_has_a_disk() {
        let machines = |words| plan(words, Some("k")).unwrap().machines;
        assert_eq!(machines("dirtysync"), [MachineKind::Qemu]);
        assert_eq!(
            machines("dirtysync --machine linux"),
            [MachineKind::Linux],
            "its boot says what is missing"
        );
    }

    #[test]
    fn windows_are_measured_where_there_are_some() {
        let policies = |words| bench(words).policies;
        assert_eq!(policies("zerocopy"), ["before", "published", "best"]);
        assert_eq!(
            policies("zerocopy --machine qemu"),
            ["before", "best+ordinary", "best"]
        );
        let text = plan("zerocopy --machine linux", Some("k")).unwrap_err();
        assert!(text.to_string().contains("--machine qemu"), "{text}");
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
        let plan = Plan::new(&bench, &session).unwrap();
        let (group, axes) = (&plan.groups[0], &plan.axes);
        let has_policies = |kind| {
            group
                .arguments(&bench, axes, kind)
                .iter()
                .any(|a| a.starts_with("--policies"))
        };
        assert!(has_policies(MachineKind::Qemu) && !has_policies(MachineKind::Linux));
        assert_eq!(group.rows(&bench, axes, MachineKind::Linux).len(), 6);
        assert_eq!(group.rows(&bench, axes, MachineKind::Qemu).len(), 18);
    }
}
