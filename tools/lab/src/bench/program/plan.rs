//! What one `bench` boots: which machines, how often, with which parameters.

use std::path::PathBuf;
use std::time::Duration;

use super::axes::Axes;
use super::group::Group;
use crate::bench::machine::Start;
use crate::bench::workload::OnLinux;
use crate::cli::{Bench, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::session::{self, Session};

/// Without `--cpus`, machines have this many: one initiator and one target.
const DEFAULT_CPUS: usize = 2;
/// What a boot may need beyond its measuring time, on a slow and busy host.
const BOOT_ALLOWANCE: Duration = Duration::from_secs(45);

/// Figures that every program prints.
const FIGURES: &str = "pages median_ns p99_ns min_ns iterations stale";

/// A whole `bench`, settled.
#[derive(Debug)]
pub struct ProgramPlan<'a> {
    /// What the caller asks for.
    pub bench: &'a Bench,
    /// The emulator and the Linux image.
    pub session: Session,
    /// What is measured.
    pub axes: Axes,
    /// The machines compared, in the order in which they boot.
    pub machines: Vec<MachineKind>,
    /// The groups, in order.
    pub groups: Vec<Group>,
}

impl<'a> ProgramPlan<'a> {
    /// Finds the emulator and settles everything before the first boot.
    ///
    /// # Errors
    /// As for [`new`](Self::new); or there is no emulator.
    pub fn open(bench: &'a Bench) -> Outcome<Self> {
        if let Some(asked) = bench.cpus {
            session::cpus(asked)?;
        }
        Self::new(bench, Session::open(&bench.emulator, &bench.machine)?)
    }

    /// Settles everything before the first boot.
    ///
    /// # Errors
    /// The options contradict each other or the host.
    pub fn new(bench: &'a Bench, session: Session) -> Outcome<Self> {
        let axes = Axes::new(bench)?;
        let machines = machines(bench, &session);
        if let (OnLinux::Never(why), true) =
            (bench.workload.linux, machines.contains(&MachineKind::Linux))
        {
            return Err(Failure::input(why, "use --machine qemu"));
        }
        let base_cpus = bench.cpus.map_or(Ok(DEFAULT_CPUS), session::cpus)?;
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
        let option = format!("--{}", axes.program.actors);
        for most in beyond {
            let cpus = session::cpus_by(&option, most.into())?;
            groups.push(Group::new(cpus, vec![most], bench)?);
        }
        Ok(Self {
            bench,
            session,
            axes,
            machines,
            groups,
        })
    }

    /// How a machine is started for a group.
    pub fn start(&self, group: &Group, kind: MachineKind) -> Start {
        let name = kind.name();
        Start {
            what: format!("{} on {name}", self.axes.program.name),
            label: format!("{name} on {} CPUs", group.cpus),
            boots: group.effort.boots,
            cpus: group.cpus,
            accel: group.accel,
            options: String::new(),
            arguments: self.arguments(group, kind),
            deadline: self.deadline(group, kind),
            needs: FIGURES,
            mark: ("machine", name.into()),
            tells: kind == MachineKind::Qemu || self.machines.len() == 1,
        }
    }

    /// The program's arguments; on Linux there is but its own policy.
    fn arguments(&self, group: &Group, kind: MachineKind) -> Vec<String> {
        let (axes, effort) = (&self.axes, &group.effort);
        let mut arguments = vec![
            format!("--{}={}", axes.program.actors, join(&group.actors)),
            format!("--pages={}", join(&axes.pages)),
            format!("--slice-ms={}", effort.slice_ms),
            format!("--rounds={}", effort.rounds),
            format!("--warmup-ms={}", effort.warmup_ms),
            format!("--seed={}", self.bench.seed),
        ];
        if kind == MachineKind::Qemu {
            arguments.push(format!("--policies={}", self.bench.policies.join(",")));
        }
        arguments
    }

    /// The rows that a boot must print, of each operation: policies of that machine, actors, pages.
    pub fn rows(&self, group: &Group, kind: MachineKind) -> Vec<(&str, u32, u32)> {
        let policies: Vec<&str> = match kind {
            MachineKind::Linux => vec!["linux"],
            _ => self.bench.policies.iter().map(String::as_str).collect(),
        };
        let mut rows = Vec::new();
        for &pages in &self.axes.pages {
            for &actors in &group.actors {
                rows.extend(policies.iter().map(|&policy| (policy, actors, pages)));
            }
        }
        rows
    }

    /// When a boot is ended as stuck: thrice what it should measure, and the boot itself.
    fn deadline(&self, group: &Group, kind: MachineKind) -> Duration {
        let rows = self.rows(group, kind).len() * self.axes.program.operations.len();
        let (rows, effort) = (rows as u32, &group.effort);
        let row_ms = effort.rounds * effort.slice_ms + effort.warmup_ms;
        BOOT_ALLOWANCE + Duration::from_millis(u64::from(rows * row_ms) * 3)
    }
}

fn machines(bench: &Bench, session: &Session) -> Vec<MachineKind> {
    let mut machines = Vec::new();
    for &kind in &bench.machine {
        if !machines.contains(&kind) {
            machines.push(kind);
        }
    }
    if machines.is_empty() {
        machines.push(MachineKind::Qemu);
        let is_comparable = |image: &&PathBuf| bench.workload.linux.is_ready(image);
        let image = session.linux.as_ref().filter(is_comparable);
        machines.extend(image.map(|_| MachineKind::Linux));
    }
    machines
}

fn join(values: &[u32]) -> String {
    let words: Vec<String> = values.iter().map(u32::to_string).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::bench;

    fn plan<'a>(bench: &'a Bench, linux: Option<&str>) -> Outcome<ProgramPlan<'a>> {
        let session = Session {
            qemu: "qemu".into(),
            linux: linux.map(Into::into),
            flavour: crate::cargo::Flavour::Plain,
        };
        ProgramPlan::new(bench, session)
    }

    fn groups(words: &str) -> Vec<(usize, Vec<u32>)> {
        let bench = bench(words);
        let groups = plan(&bench, None).unwrap().groups;
        let shape = groups.into_iter().map(|group| (group.cpus, group.actors));
        shape.collect()
    }

    #[test]
    fn without_options_two_cpus_measure_one_and_two_threads_and_four_get_their_own_boot() {
        assert_eq!(groups(""), [(2, vec![1, 2]), (4, vec![4])]);
        assert_eq!(
            plan(&bench(""), None).unwrap().machines,
            [MachineKind::Qemu]
        );
    }

    #[test]
    fn all_spaces_share_one_cpu_and_so_one_boot() {
        assert_eq!(groups("pingpong"), [(2, vec![2, 3, 6, 8, 12])]);
        let bench = bench("pingpong");
        let plan = plan(&bench, None).unwrap();
        assert!(!plan.groups[0].is_crowded);
        let arguments = plan.arguments(&plan.groups[0], MachineKind::Linux);
        assert_eq!(arguments[..2], ["--spaces=2,3,6,8,12", "--pages=0,512"]);
    }

    #[test]
    fn intervals_are_enough_for_a_percentile() {
        assert_eq!(groups("preemptoff"), [(2, vec![2]), (4, vec![4])]);
        let bench = bench("preemptoff");
        let plan = plan(&bench, None).unwrap();
        for group in &plan.groups {
            let effort = &group.effort;
            assert!(effort.rounds * effort.boots * group.actors[0] >= 100);
        }
        let arguments = plan.arguments(&plan.groups[1], MachineKind::Qemu);
        assert_eq!(arguments[..2], ["--threads=4", "--pages=8"]);
    }

    #[test]
    fn linux_is_compared_when_there_is_an_image_and_a_disk_if_it_needs_one() {
        use MachineKind::{Linux, Qemu};
        for (words, machines) in [
            ("", &[Qemu, Linux][..]),
            ("--machine qemu", &[Qemu]),
            ("dirtysync", &[Qemu]),
            // Its boot says what is missing.
            ("dirtysync --machine linux", &[Linux]),
        ] {
            let bench = bench(words);
            assert_eq!(plan(&bench, Some("k")).unwrap().machines, machines);
        }
    }

    #[test]
    fn windows_are_measured_where_there_are_some() {
        assert_eq!(bench("zerocopy").policies[1], "published");
        let policies = bench("zerocopy --machine qemu").policies;
        assert_eq!(policies, ["before", "best+ordinary", "best"]);
    }

    #[test]
    fn what_no_machine_can_measure_is_refused_with_the_remedy() {
        for (words, remedy) in [
            ("zerocopy --machine linux", "--machine qemu"),
            ("--cpus 2 --threads 4", "--cpus 4"),
            ("--threads 65", "--threads takes 1 to 64"),
            ("--pages 99999", "1 to 4096"),
        ] {
            let bench = bench(words);
            let text = plan(&bench, Some("k")).unwrap_err().to_string();
            assert!(text.contains(remedy), "{words}: {text}");
        }
    }

    #[test]
    fn linux_is_asked_for_no_policy() {
        let bench = bench("");
        let plan = plan(&bench, None).unwrap();
        let group = &plan.groups[0];
        for (kind, has_policies, rows) in [
            (MachineKind::Qemu, true, 18),
            (MachineKind::Linux, false, 6),
        ] {
            let arguments = plan.arguments(group, kind);
            let is_policies = |word: &String| word.starts_with("--policies");
            assert_eq!(arguments.iter().any(is_policies), has_policies);
            assert_eq!(plan.rows(group, kind).len(), rows);
        }
    }
}
