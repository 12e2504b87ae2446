//! The reference kernel's latency tracer finds a span that was made on purpose, and says where. Elsewhere there is none to
//! check.

use std::fs;
use std::io;
use std::path::Path;

const TRACER: &str = "/proc/shootdown/latency";
const IRQ_OFF: &str = "/proc/shootdown/irqoff";
const BACKTRACE: &str = "/proc/shootdown/backtrace";
/// Where the kernel keeps interrupts off on purpose.
const SITE: &str = "irqoff.rs";
const SPAN_NS: u64 = 3_000_000;
const TOO_LONG_NS: u64 = 50_000_001;

/// The longest interrupts-off span of a CPU, and where it began.
#[derive(Debug)]
struct Longest {
    span_ns: u64,
    site: String,
}

fn tell(command: &str) {
    fs::write(TRACER, command).unwrap_or_else(|error| panic!("{command} to {TRACER}: {error}"));
}

fn keep_irqs_off(span_ns: u64) -> io::Result<()> {
    fs::write(IRQ_OFF, span_ns.to_string())
}

/// The word after `key`.
fn word<'a>(words: &[&'a str], key: &str) -> &'a str {
    let at = words.iter().position(|word| *word == key);
    at.and_then(|at| words.get(at + 1))
        .unwrap_or_else(|| panic!("{key} is not in {words:?}"))
}

/// What the tracer shows, one for each CPU.
fn read() -> Vec<Longest> {
    let text = fs::read_to_string(TRACER).unwrap();
    let longest = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let keys = "cpu preempt_off_ns preempt_off_sum_ns preempt_off_count ipi_wait_ns";
        for key in keys.split(' ') {
            let number = word(&words, key).parse::<u64>();
            assert!(number.is_ok(), "{key}: {line}");
        }
        let at = words.iter().position(|word| *word == "irq_off_ns").unwrap();
        assert_eq!(words[at + 2], "at", "{line}");
        Longest {
            span_ns: words[at + 1].parse().unwrap(),
            site: words[at + 3].to_owned(),
        }
    };
    text.lines().map(longest).collect()
}

fn found_on_purpose() -> Vec<Longest> {
    let mut found = read();
    found.retain(|longest| longest.site.contains(SITE));
    found
}

fn main() {
    shootdown_user::machine::prepare();
    if !Path::new(TRACER).exists() {
        println!("t_latency: this kernel has no tracer to check");
        return;
    }
    assert!(fs::write(TRACER, "maybe").is_err());
    for bad in ["", "soon", "-1", "1.5"] {
        let told = fs::write(IRQ_OFF, format!("{bad}\n")).is_err();
        assert!(told, "{bad:?} was taken");
    }
    let refused = keep_irqs_off(TOO_LONG_NS).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));

    // Off: nothing is seen.
    keep_irqs_off(SPAN_NS).unwrap();
    assert!(found_on_purpose().is_empty(), "{:?}", read());

    // Others may have had interrupts off for longer on a busy host, but not again and again.
    const TRIES: usize = 20;
    let mut seen = false;
    for _ in 0..TRIES {
        tell("on");
        tell("reset");
        keep_irqs_off(SPAN_NS).unwrap();
        let found = found_on_purpose();
        assert!(found.len() <= 1, "{found:?}");
        let are_long = found.iter().all(|longest| longest.span_ns >= SPAN_NS);
        assert!(are_long, "{found:?}");
        seen |= !found.is_empty();
        tell("reset");
        assert!(found_on_purpose().is_empty(), "{:?}", read());
        tell("off");
    }
    let last = read();
    assert!(
        seen,
        "{TRIES} spans of {SPAN_NS} ns were not found: {last:?}"
    );
    // On the console; the kernel's own tests read it.
    fs::write(BACKTRACE, "all").unwrap();
    println!("t_latency: OK");
}
