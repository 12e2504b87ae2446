//! [`Patience`]: notices who does not get on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::hearing::{Heard, Hearing, Steps};
use crate::progress::Progress;

/// Listens to a machine, shows how it gets on, and knows when waiting has become pointless.
pub struct Patience {
    hearing: Hearing,
    progress: Progress,
    seconds: u64,
    limit: Duration,
    last_line: Instant,
    /// The steps of each worker, and since when they are so many.
    workers: BTreeMap<String, (u64, Instant)>,
    remark: Option<String>,
    hang: Option<String>,
}

impl Patience {
    /// For a run of `seconds` on a machine where a worker may be silent for `limit`.
    pub fn new(seconds: u64, limit: Duration) -> Self {
        Self {
            hearing: Hearing::default(),
            progress: Progress::new(),
            seconds,
            limit,
            last_line: Instant::now(),
            workers: BTreeMap::new(),
            remark: None,
            hang: None,
        }
    }

    /// Takes one line of the machine's output.
    pub fn listen(&mut self, line: &str) {
        match self.hearing.listen(line) {
            Heard::Nothing => {}
            Heard::Remark(words) => {
                eprintln!("lab: {words}");
                self.remark = Some(words);
            }
            Heard::Progress { ns, steps, workers } => {
                self.last_line = Instant::now();
                self.note(&workers, Instant::now());
                let seconds = ns as f64 / 1e9;
                let label = format!("{steps} steps, {:.0}/s", steps as f64 / seconds.max(1e-9));
                self.progress.step(seconds as u64, self.seconds, &label);
            }
        }
    }

    /// Whether there is no sense in waiting any longer; from then on [`conclude`](Self::conclude) says why.
    pub fn is_over(&mut self) -> bool {
        if self.hang.is_none() && self.hearing.verdict.is_none() {
            let hang = self.find_hang(Instant::now());
            self.hang = hang.map(|hang| match &self.remark {
                Some(remark) => format!("{hang}; the machine's last word: {remark}"),
                None => hang,
            });
        }
        self.hang.is_some()
    }

    /// What was heard, and who hung.
    pub fn conclude(self) -> (Hearing, Option<String>) {
        (self.hearing, self.hang)
    }

    /// Workers that are not named any more have gone offline.
    fn note(&mut self, steps: &Steps, now: Instant) {
        self.workers.retain(|name, _| steps.contains_key(name));
        for (name, &steps) in steps {
            let known = self.workers.entry(name.clone()).or_insert((steps, now));
            if known.0 != steps {
                *known = (steps, now);
            }
        }
    }

    fn find_hang(&self, now: Instant) -> Option<String> {
        let is_stuck = |since: &Instant| now.duration_since(*since) >= self.limit;
        let workers = self.workers.iter();
        let stuck = workers.filter(|(_, (_, since))| is_stuck(since));
        let stuck: Vec<&str> = stuck.map(|(name, _)| name.as_str()).collect();
        let seconds = self.limit.as_secs();
        if !stuck.is_empty() {
            return Some(format!("no step of {} for {seconds} s", stuck.join(", ")));
        }
        is_stuck(&self.last_line).then(|| format!("no line of progress for {seconds} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn steps(pairs: &[(&str, u64)]) -> Steps {
        let pairs = pairs.iter();
        pairs.map(|&(name, n)| (name.to_owned(), n)).collect()
    }

    #[test]
    fn who_stands_still_is_named_and_who_is_offline_is_not() {
        let mut patience = Patience::new(60, LIMIT);
        let start = Instant::now();
        patience.note(&steps(&[("cpu0", 1), ("cpu1", 1), ("task0", 5)]), start);
        let later = start + LIMIT / 2;
        patience.note(&steps(&[("cpu0", 2), ("task0", 5)]), later);
        assert_eq!(patience.find_hang(later), None);
        patience.last_line = start + LIMIT;
        let hang = patience.find_hang(start + LIMIT).unwrap();
        assert_eq!(hang, "no step of task0 for 20 s");
    }

    #[test]
    fn silence_is_a_hang() {
        let mut patience = Patience::new(60, Duration::ZERO);
        assert!(patience.is_over());
        assert!(patience.conclude().1.unwrap().starts_with("no line"));
    }

    #[test]
    fn the_watchdogs_last_word_belongs_to_the_hang() {
        let mut patience = Patience::new(60, Duration::ZERO);
        patience.listen("torture: stall cpu0 has waited 9 us for cpu1");
        assert!(patience.is_over());
        let hang = patience.conclude().1.unwrap();
        assert!(hang.ends_with("stall cpu0 has waited 9 us for cpu1"));
    }

    #[test]
    fn after_the_verdict_nobody_hangs() {
        let mut patience = Patience::new(60, Duration::ZERO);
        patience.listen("torture: done violations=0 steps=4 seed=1 ns=1");
        assert!(!patience.is_over());
    }
}
