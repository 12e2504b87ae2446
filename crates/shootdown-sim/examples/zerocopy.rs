//! Table T2 on the simulated machine, for fitting: threads, operations a second by mapping, against the published ones.

use shootdown_sim::timed::{Parameter, Preset};
use shootdown_sim::workload::{Mapping, PUBLISHED_ZEROCOPY, Zerocopy};

fn main() {
    let mut costs = Preset::named("40-core-2018").expect("there").costs();
    let mut shared = true;
    let mut one = false;
    let mut seed = 1;
    for word in std::env::args().skip(1) {
        if word == "alone" {
            shared = false;
            continue;
        }
        if let Some(n) = word.strip_prefix("seed=") {
            seed = n.parse().unwrap();
            continue;
        }
        if word == "one" {
            one = true;
            continue;
        }
        let (name, value) = word.split_once('=').expect("NAME=VALUE");
        Parameter::named(name)
            .unwrap()
            .set(&mut costs, value.parse().unwrap())
            .unwrap();
    }
    for row in PUBLISHED_ZEROCOPY {
        print!("{:>3}", row.threads);
        for mapping in Mapping::ALL {
            if one && mapping != Mapping::Ordinary {
                continue;
            }
            let what = Zerocopy {
                charges_shared: shared,
                seed,

                ..Zerocopy::new(mapping, row.threads, &costs)
            };
            let served = what.run();
            let published = row.per_s(mapping).unwrap_or(row.per_s[1]);
            print!(
                "  | {:>8.0} {:>+6.1}% {:>6.2}us ipi {:>5.2} lines {:>5.1} relax {:>5.2}",
                served.per_s(),
                (served.per_s() / published - 1.0) * 100.0,
                served.call_mean_us(),
                served.per_operation(served.stats.ipis_sent),
                served.per_operation(served.lines),
                served.per_operation(served.activity.relaxed_ps) / 1e6
            );
        }
        println!();
    }
}
