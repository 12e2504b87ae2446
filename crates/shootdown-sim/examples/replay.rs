//! Repeats one run and tells what happens: what `./lab sim replay --story` does, without the lab; after the word `torture` a run of
//! `./lab torture --machine sim`.
//!
//! `cargo run --release -p shootdown-sim --example replay -- [torture] --cpus N --seed S [--schedule ANSWERS]`

use shootdown_sim::{fuzz, torture};

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let is_torture = words.first().is_some_and(|word| word == "torture");
    if is_torture {
        words.remove(0);
    }
    let case: fuzz::Case = words.join(" ").parse().expect("options of a case");
    let (story, failure) = match is_torture {
        true => {
            let report = torture::run_with_story(&torture::Case {
                schedule: case.schedule,
                ..torture::Case::new(case.cpus, case.seed)
            });
            (report.story, report.failure)
        }
        false => {
            let report = fuzz::run_with_story(&case);
            (report.story, report.failure)
        }
    };
    println!("{}\n{failure:?}", story.join("\n"));
}
