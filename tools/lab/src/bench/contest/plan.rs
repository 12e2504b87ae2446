//! [`Group`]: one start of one machine.

use std::time::Duration;

use shootdown_callbench::{Plan, Rest};

use crate::bench::workload::Contest;
use crate::cli::{Calls, MAX_CPUS};
use crate::failure::{Failure, Outcome};
use crate::machine::{Accel, host_cores};
use crate::session;

/// A function that takes this long hides what the host's scheduler does to the calls.
pub const LONG_FUNCTION_NS: u64 = 100_000;
/// One initiator and one target: what times are good for on hosts with two cores.
const SMALL_CPUS: usize = 2;
/// Enough for four initiators with one target each.
const LARGE_CPUS: usize = 8;
/// Starting a machine on a slow and busy host, and waiting for its end.
const ALLOWANCE: Duration = Duration::from_secs(60);

/// What times are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The host's.
    Host,
    /// Guest instructions of all CPUs, which take turns: a thousand to the microsecond.
    Instructions,
}

/// One start of one machine.
#[derive(Debug, Clone)]
pub struct Group {
    /// CPUs of the machine.
    pub cpus: usize,
    /// What the machine runs on, if it is an emulator.
    pub accel: Accel,
    /// What its times are.
    pub clock: Clock,
    /// The plan as the machine is told.
    pub words: String,
    /// When it is ended as stuck.
    pub deadline: Duration,
}

impl Group {
    /// The starts that a bench needs.
    ///
    /// # Errors
    /// The options make no plan, or no machine.
    pub fn all(contest: &Contest, calls: &Calls) -> Outcome<Vec<Self>> {
        let sizes = match &calls.cpus {
            Some(asked) => asked.iter().copied().map(cpus).collect::<Outcome<_>>()?,
            None if calls.counts_instructions() => vec![LARGE_CPUS],
            None => vec![SMALL_CPUS, LARGE_CPUS],
        };
        let default_ns = match calls.counts_instructions() {
            true => &[0],
            false => contest.functions_ns,
        };
        let asked_ns: Option<Vec<u64>> = calls
            .function_us
            .as_ref()
            .map(|list| list.iter().map(|us| us.saturating_mul(1000)).collect());
        let functions_ns = asked_ns.as_deref().unwrap_or(default_ns);
        let group = |cpus, function_ns: &u64| Self::new(contest, calls, cpus, *function_ns);
        let groups = sizes
            .iter()
            .flat_map(|&cpus| functions_ns.iter().map(move |ns| group(cpus, ns)));
        groups.collect()
    }

    fn new(contest: &Contest, calls: &Calls, cpus: usize, function_ns: u64) -> Outcome<Self> {
        let is_long = function_ns >= LONG_FUNCTION_NS;
        let clock = match calls.counts_instructions() {
            true => Clock::Instructions,
            false => Clock::Host,
        };
        let is_slow = cpus > host_cores() && !is_long;
        let (default_calls, rounds) = match (clock, is_long, calls.quick) {
            (Clock::Instructions, _, _) => (100, 2),
            (_, true, true) => (10, 2),
            (_, true, false) => (20, 5),
            (_, false, true) => (if is_slow { 20 } else { 100 }, 3),
            (_, false, false) => (if is_slow { 200 } else { 1000 }, 7),
        };
        let mut words = format!(
            "{},ns={function_ns},calls={},rounds={rounds},seed={},rest={}",
            contest.name,
            calls.calls.unwrap_or(default_calls),
            calls.seed,
            calls.rest,
        );
        for (key, list) in [
            ("initiators", &calls.initiators),
            ("targets", &calls.targets),
            ("masks", &calls.masks),
            ("peers", &calls.peers),
        ] {
            if let Some(list) = list {
                words.push_str(&format!(",{key}={}", list.join(":")));
            }
        }
        let remedy = "`./lab bench selected --help` has the options";
        let plan = Plan::parse(&words).map_err(|mistake| Failure::input(mistake, remedy))?;
        // Where resting CPUs spin, all of them are busy.
        let busy = if plan.rest == Rest::Halt { 1 } else { cpus };
        Ok(Self {
            cpus,
            accel: calls.emulator.accel.settle(busy)?,
            clock,
            words,
            deadline: deadline(&plan, cpus, function_ns),
        })
    }
}

/// Four times what the calls should take one after the other.
fn deadline(plan: &Plan, cpus: usize, function_ns: u64) -> Duration {
    /// A call that the host's scheduler is in the way of.
    const SLOW_CALL_NS: u64 = 100_000;
    let calls = plan.calls * (plan.rounds + 1) * plan.peers.len();
    let whole_ns = calls as u64 * cpus as u64 * (function_ns + SLOW_CALL_NS);
    let rows = plan.most_rows() as u32;
    ALLOWANCE + Duration::from_nanos(whole_ns) * rows * 4 / cpus as u32
}

fn cpus(asked: i64) -> Outcome<usize> {
    match session::cpus(asked)? {
        1 => Err(Failure::input(
            "one CPU has nobody to call",
            format!("--cpus takes 2 to {MAX_CPUS}"),
        )),
        cpus => Ok(cpus),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::bench;

    fn groups(words: &str) -> Outcome<Vec<Group>> {
        let bench = bench(&format!("selected --machine hosted {words}"));
        let bench = bench.calls().expect("a contest");
        Group::all(bench.contest, &bench.calls)
    }

    #[test]
    fn without_a_size_there_is_a_machine_for_times_and_one_for_counts() {
        let sizes: Vec<usize> = groups("").unwrap().iter().map(|group| group.cpus).collect();
        assert_eq!(sizes, [2, 2, 8, 8]);
        let one = groups("--cpus 4 --function-us 7 --initiators 1,all --masks random").unwrap();
        assert_eq!(one.len(), 1);
        let words = &one[0].words;
        assert!(words.contains("ns=7000,") && words.ends_with("initiators=1:all,masks=random"));
    }

    #[test]
    fn senseless_values_are_refused_in_one_line() {
        for (words, remedy) in [
            ("--cpus 1", "2 to 64"),
            ("--cpus 65", "1 to 64"),
            ("--peers windows", "xen-before"),
            ("--masks all", "identical"),
            ("--initiators 0", "1 to 4096"),
            ("--function-us 20000", "0 to 10000000"),
            ("--calls 0", "1 to 10000"),
            ("--rest no", "busy, halt"),
        ] {
            let text = groups(words).unwrap_err().to_string();
            assert!(text.contains(remedy) && !text.contains('\n'), "{text}");
        }
    }
}
