//! Event counters of the kernel, read before and after a slice.
//!
//! The reference kernel names its counters in `/proc/shootdown/stats`. On Linux the interrupts
//! that serve remote flushes are in `/proc/interrupts`: the rows `CAL` (function calls) and `TLB`
//! (remote flushes, which are function calls); where its KVM shows counters, they are read, too.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

const ENGINE_FILE: &str = "/proc/shootdown/stats";
const INTERRUPTS_FILE: &str = "/proc/interrupts";

/// The reference kernel's counter of IPIs.
const IPIS_SENT: &str = "ipis_sent";
const CALL_INTERRUPTS: &str = "call_interrupts";
const TLB_INTERRUPTS: &str = "tlb_interrupts";

/// Where Linux shows the counters of KVM, a file each, once debugfs is mounted.
const KVM_DIRECTORY: &str = "/sys/kernel/debug/kvm";
/// Those that are read: exits of all kinds and those that clearing a log causes, flushes of a machine's tables and of virtual CPUs.
const KVM_FILES: [&str; 5] = [
    "exits",
    "pf_taken",
    "pf_fast",
    "remote_tlb_flush",
    "tlb_flush",
];

/// Counter values by name.
pub type Counters = BTreeMap<String, u64>;

/// A place to read counters from, with a buffer of its own.
#[derive(Debug)]
pub struct CounterSource {
    file: Option<&'static str>,
    text: String,
}

impl CounterSource {
    /// The counters of the kernel this runs on.
    pub fn of_this_kernel() -> Self {
        let known = [ENGINE_FILE, INTERRUPTS_FILE];
        let file = known.into_iter().find(|file| File::open(file).is_ok());
        Self {
            file,
            text: String::with_capacity(64 << 10),
        }
    }

    /// All counters now; empty where the kernel shows none.
    pub fn read(&mut self) -> Counters {
        self.text.clear();
        let Some(name) = self.file else {
            return Counters::new();
        };
        let read = File::open(name).and_then(|mut file| file.read_to_string(&mut self.text));
        match read {
            Ok(_) if name == ENGINE_FILE => parse_engine(&self.text),
            Ok(_) => {
                let mut counters = parse_interrupts(&self.text);
                counters.extend(self.read_kvm());
                counters
            }
            Err(_) => Counters::new(),
        }
    }
}

impl CounterSource {
    fn read_kvm(&self) -> Counters {
        let read = |name: &&str| {
            let text = std::fs::read_to_string(format!("{KVM_DIRECTORY}/{name}")).ok()?;
            Some((format!("kvm_{name}"), text.trim().parse().ok()?))
        };
        KVM_FILES.iter().filter_map(read).collect()
    }
}

/// Adds what each counter grew by between `before` and `after` to `total`.
pub fn accumulate(total: &mut Counters, before: &Counters, after: &Counters) {
    for name in after.keys() {
        *total.entry(name.clone()).or_default() += grown(name, before, after);
    }
}

/// What the counter `name` grew by between `before` and `after`.
pub fn grown(name: &str, before: &Counters, after: &Counters) -> u64 {
    let value = |counters: &Counters| counters.get(name).copied().unwrap_or(0);
    value(after).saturating_sub(value(before))
}

/// `value` shared among `operations`, rounded to three places.
pub fn share(value: u64, operations: u64) -> f64 {
    (value as f64 / operations.max(1) as f64 * 1000.0).round() / 1000.0
}

/// `total` divided by `operations`, rounded to three places; counters that stood still are left
/// out.
pub fn per_operation(total: &Counters, operations: u64) -> BTreeMap<String, f64> {
    total
        .iter()
        .filter(|&(_, &value)| value != 0)
        .map(|(name, &value)| (name.clone(), share(value, operations)))
        .collect()
}

/// IPIs sent according to `counters`, on either kernel.
///
/// Linux counts where they arrive. Its row `CAL` includes the flushes of row `TLB` in releases of
/// this decade and leaves them out in earlier ones; in a loop of flushes the larger of the two is
/// right for both, where the sum would count each IPI twice.
pub fn ipis_sent(counters: &Counters) -> u64 {
    let count = |name| counters.get(name).copied().unwrap_or(0);
    match counters.get(IPIS_SENT) {
        Some(&sent) => sent,
        None => count(CALL_INTERRUPTS).max(count(TLB_INTERRUPTS)),
    }
}

fn parse_engine(text: &str) -> Counters {
    let line = |line: &str| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn parse_interrupts(text: &str) -> Counters {
    let mut counters = Counters::new();
    for line in text.lines() {
        let Some((label, rest)) = line.trim_start().split_once(':') else {
            continue;
        };
        let name = match label {
            "TLB" => TLB_INTERRUPTS,
            "CAL" => CALL_INTERRUPTS,
            _ => continue,
        };
        let total: u64 = rest
            .split_whitespace()
            .map_while(|word| word.parse::<u64>().ok())
            .sum();
        counters.insert(name.to_owned(), total);
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_lines_are_name_and_value() {
        let counters = parse_engine("ipis_sent 12\nbroken\nremote_flushes  7\nnote text\n");
        assert_eq!(counters.len(), 2);
        assert_eq!((counters["ipis_sent"], counters["remote_flushes"]), (12, 7));
    }

    #[test]
    fn linux_rows_sum_over_cpus_and_count_each_ipi_once() {
        let text = "           CPU0       CPU1\n  0:  5  6  IO-APIC  2-edge  timer\n\
                    CAL:  10  20   Function call interrupts\n\
                    TLB:  1   2   TLB shootdowns\n";
        let counters = parse_interrupts(text);
        assert_eq!(counters["tlb_interrupts"], 3);
        assert_eq!(counters["call_interrupts"], 30);
        assert_eq!(ipis_sent(&counters), 30);
        assert_eq!(ipis_sent(&Counters::from([(IPIS_SENT.to_owned(), 4)])), 4);
    }

    #[test]
    fn growth_is_summed_over_slices_and_shared_out() {
        let at = |value| Counters::from([("a".to_owned(), value), ("still".to_owned(), 9)]);
        let mut total = Counters::new();
        accumulate(&mut total, &at(10), &at(14));
        accumulate(&mut total, &at(20), &at(22));
        assert_eq!(total["a"], 6);
        let each = per_operation(&total, 4);
        assert_eq!(each, BTreeMap::from([("a".to_owned(), 1.5)]));
    }
}
