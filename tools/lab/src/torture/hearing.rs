//! [`Hearing`]: what a tortured machine says, line by line.

use std::collections::BTreeMap;

/// Every line of the protocol begins with it.
const PREFIX: &str = "torture: ";

/// How far each worker has come, by name (`cpu3` for the interrupts of a CPU, `task5`).
pub type Steps = BTreeMap<String, u64>;

/// The closing line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub violations: u64,
    pub steps: u64,
    pub seed: u64,
    pub ns: u64,
}

impl Verdict {
    /// From the fields of its line, all of which must be there.
    fn read(number: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        Some(Self {
            violations: number("violations")?,
            steps: number("steps")?,
            seed: number("seed")?,
            ns: number("ns")?,
        })
    }

    /// How long it took.
    pub fn seconds(&self) -> f64 {
        self.ns as f64 / 1e9
    }
}

/// What a line means to the listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Not a line of the torture, or one that is kept for the end.
    Nothing,
    /// So far, after so many nanoseconds.
    Progress { ns: u64, steps: u64, workers: Steps },
    /// Something that people should see at once.
    Remark(String),
}

/// Counts by their names.
pub type Counted = Vec<(String, u64)>;

/// All that was said.
#[derive(Debug, Default)]
pub struct Hearing {
    /// What was done, and how often.
    pub operations: Counted,
    /// What was checked, and how often it was broken.
    pub promises: Counted,
    /// What the engine counted.
    pub engine: Counted,
    /// The first broken promise.
    pub first: Option<String>,
    /// The closing line, if it was heard whole.
    pub verdict: Option<Verdict>,
}

impl Hearing {
    /// Takes one line.
    pub fn listen(&mut self, line: &str) -> Heard {
        let Some(said) = line.strip_prefix(PREFIX) else {
            return Heard::Nothing;
        };
        let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
        let fields = fields(said);
        let field = |name: &str| fields.iter().find(|(known, _)| *known == name);
        let number = |name: &str| field(name)?.1.parse().ok();
        let row = |count| Some((word.split_once('=')?.1.to_owned(), number(count)?));
        match word.split('=').next().unwrap_or(word) {
            "operation" => self.operations.extend(row("done")),
            "promise" => self.promises.extend(row("broken")),
            "engine" => self.engine.extend(row("count")),
            "first" => self.first = Some(rest.to_owned()),
            "done" => self.verdict = Verdict::read(number),
            "progress" => {
                return Heard::Progress {
                    ns: number("ns").unwrap_or(0),
                    steps: number("steps").unwrap_or(0),
                    workers: workers(&fields),
                };
            }
            _ => return Heard::Remark(said.to_owned()),
        }
        Heard::Nothing
    }
}

fn fields(said: &str) -> Vec<(&str, &str)> {
    let words = said.split_whitespace();
    words.filter_map(|word| word.split_once('=')).collect()
}

fn workers(fields: &[(&str, &str)]) -> Steps {
    let worker = |(name, steps): &(&str, &str)| {
        let number = name.strip_prefix("cpu").or(name.strip_prefix("task"))?;
        number.parse::<u32>().ok()?;
        Some(((*name).to_owned(), steps.parse().ok()?))
    };
    fields.iter().filter_map(worker).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_protocol_is_understood() {
        let mut hearing = Hearing::default();
        for line in [
            "torture: operation=post done=7",
            "torture: promise=fresh broken=2",
            "torture: engine=ipis_sent count=9",
            "torture: first fresh broken in access on cpu1: expected 0x2, found 0x1",
            "torture: done violations=2 steps=40 seed=3 ns=2000000000",
            "[ 1.0] c0 info: something else",
        ] {
            assert_eq!(hearing.listen(line), Heard::Nothing, "{line}");
        }
        assert_eq!(hearing.operations, [("post".to_owned(), 7)]);
        assert_eq!(hearing.promises, [("fresh".to_owned(), 2)]);
        assert_eq!(hearing.engine, [("ipis_sent".to_owned(), 9)]);
        let first = hearing.first.unwrap();
        assert!(first.starts_with("fresh broken in access"));
        let verdict = hearing.verdict.unwrap();
        let counts = [verdict.violations, verdict.steps, verdict.seed];
        assert_eq!(counts, [2, 40, 3]);
        assert_eq!(verdict.seconds(), 2.0);
    }

    #[test]
    fn progress_names_its_workers_and_remarks_are_passed_on() {
        let mut hearing = Hearing::default();
        let heard = hearing.listen("torture: progress ns=5 steps=30 cpu0=10 task2=20");
        let workers = [("cpu0".to_owned(), 10), ("task2".to_owned(), 20)];
        let expected = Heard::Progress {
            ns: 5,
            steps: 30,
            workers: workers.into_iter().collect(),
        };
        assert_eq!(heard, expected);
        let stall = hearing.listen("torture: stall cpu0 has waited 5 us for cpu1");
        assert!(matches!(stall, Heard::Remark(_)));
    }

    #[test]
    fn a_cut_verdict_is_none() {
        let mut hearing = Hearing::default();
        hearing.listen("torture: done violations=0 steps=4");
        assert_eq!(hearing.verdict, None);
    }
}
