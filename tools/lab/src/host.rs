//! How quiet the host is: figures taken beside other work show that work.

use std::time::Instant;

/// The kernel counts processor time in hundredths of a second on every x86-64 Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Processor time up to a moment.
#[derive(Debug)]
pub struct Usage {
    at: Instant,
    all_ticks: u64,
    own_ticks: u64,
}

impl Usage {
    /// Reads it now; none where the kernel does not tell.
    pub fn now() -> Option<Self> {
        let all = std::fs::read_to_string("/proc/stat").ok()?;
        let own = std::fs::read_to_string("/proc/self/stat").ok()?;
        Some(Self {
            at: Instant::now(),
            all_ticks: busy_ticks(&all)?,
            own_ticks: own_ticks(&own)?,
        })
    }

    /// How many cores others kept busy since then, on average.
    pub fn others_since(&self) -> Option<f64> {
        let now = Self::now()?;
        let seconds = now.at.duration_since(self.at).as_secs_f64();
        let all = now.all_ticks.saturating_sub(self.all_ticks);
        let own = now.own_ticks.saturating_sub(self.own_ticks);
        (seconds > 0.0).then(|| all.saturating_sub(own) as f64 / TICKS_PER_SECOND / seconds)
    }
}

/// All that was not idle: user, nice, system, irq, softirq, steal. Guest time is in user already.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let words = line.split_whitespace().map_while(|word| word.parse().ok());
    let ticks: Vec<u64> = words.collect();
    let busy = [0, 1, 2, 5, 6, 7].into_iter();
    Some(busy.filter_map(|index| ticks.get(index)).sum())
}

/// User and system time of this process and of its children that have ended.
fn own_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything; fields count from behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter();
    ticks.map(|word| word.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_time_are_not_busy() {
        let stat = "cpu  1 2 3 1000 2000 4 5 6 7 8\ncpu0 1\n";
        assert_eq!(busy_ticks(stat), Some(21));
        assert_eq!(busy_ticks("intr 5"), None);
    }

    #[test]
    fn own_time_is_read_behind_any_name() {
        let stat = "7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 10 20 30 40 20 0 1";
        assert_eq!(own_ticks(stat), Some(100));
        assert_eq!(own_ticks("7 (x) S 1"), None);
    }

    #[test]
    fn this_host_tells() {
        let before = Usage::now().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(before.others_since().unwrap() >= 0.0);
    }
}
