//! `--trace`, `--picture` and `--html`: one shootdown on the simulated machine, for people to look at.

use shootdown::Policy;
use shootdown_sim::trace::{Trace, chrome, scene};
use shootdown_sim::walkthrough;

use super::report::{self, unwritable};
use super::workloads;
use crate::cli::{Bench, MachineKind};
use crate::failure::{Failure, Outcome};

/// Writes what is asked for; tells whether anything is.
///
/// # Errors
/// A file cannot be written, or the options contradict each other (exit code 2).
pub fn write(bench: &Bench) -> Outcome<bool> {
    probe(bench)?;
    if let Some(path) = &bench.trace {
        check_machines(bench, "--trace")?;
        let text = trace(&bench.policies)?;
        std::fs::write(path, text).map_err(|error| unwritable(path, &error, "--trace"))?;
        println!(
            "trace of one iteration, for ui.perfetto.dev: {}",
            path.display()
        );
    }
    if let Some(path) = &bench.picture {
        check_machines(bench, "--picture")?;
        std::fs::write(path, scene::picture())
            .map_err(|error| unwritable(path, &error, "--picture"))?;
        println!("picture of one shootdown: {}", path.display());
    }
    if let Some(path) = &bench.html {
        check_machines(bench, "--html")?;
        let runs = named(&bench.policies)?.map(|(name, policy)| scene::walkthrough(name, policy));
        let page = walkthrough::page(&runs.collect::<Vec<_>>());
        std::fs::write(path, page).map_err(|error| unwritable(path, &error, "--html"))?;
        println!("one shootdown, step by step: {}", path.display());
    }
    Ok(bench.trace.is_some() || bench.picture.is_some() || bench.html.is_some())
}

/// Whatever is written can be, or nothing runs.
fn probe(bench: &Bench) -> Outcome<()> {
    report::probe(bench.trace.as_deref(), "--trace")?;
    report::probe(bench.picture.as_deref(), "--picture")?;
    report::probe(bench.html.as_deref(), "--html")
}

/// Time stands still while somebody looks only on the simulated machine, and there is something to see in madvise.
fn check_machines(bench: &Bench, option: &str) -> Outcome<()> {
    if !bench.workload.is_shown {
        let mut programs = workloads::PROGRAMS.iter();
        let shown = programs.find(|program| program.is_shown);
        let (shown, name) = (shown.map_or("", |it| it.name), bench.workload.name);
        return Err(Failure::input(
            format!("{option} shows one shootdown of {shown}, and none of {name}"),
            format!("use {option} with bench {shown}"),
        ));
    }
    let others = [MachineKind::Qemu, MachineKind::Linux];
    if bench.machine.is_empty() || bench.machine.iter().any(|kind| !others.contains(kind)) {
        return Ok(());
    }
    Err(Failure::input(
        format!("{option} shows the simulated machine, which --machine leaves out"),
        format!("use {option} without --machine qemu or linux"),
    ))
}

type Named = (&'static str, Policy);

/// The policies of these names.
fn named(policies: &[String]) -> Outcome<impl Iterator<Item = Named> + use<>> {
    let known = |asked: &String| {
        let policy = scene::POLICIES.iter().find(|(name, _)| name == asked);
        policy.copied().ok_or_else(|| {
            let cause = format!("no policy is called {asked}");
            Failure::input(cause, "use before, published or best")
        })
    };
    let policies = policies.iter().map(known).collect::<Outcome<Vec<_>>>()?;
    Ok(policies.into_iter())
}

fn trace(policies: &[String]) -> Outcome<String> {
    let traces = named(policies)?.map(|(name, policy)| (name, scene::steady_iteration(policy)));
    let traces: Vec<(&str, Trace)> = traces.collect();
    let named: Vec<(&str, &Trace)> = traces.iter().map(|(name, trace)| (*name, trace)).collect();
    Ok(chrome::text(&named))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::bench;

    #[test]
    fn each_policy_asked_for_is_a_process_of_the_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let words = format!("--policies best,before --trace {}", path.display());
        assert!(write(&bench(&words)).unwrap());
        let text = std::fs::read_to_string(path).unwrap();
        let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
        let names: Vec<_> = whole["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["name"] == "process_name")
            .map(|event| event["args"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["best", "before"]);
    }

    #[test]
    fn nothing_is_written_unasked() {
        assert!(!write(&bench("")).unwrap());
    }
}
