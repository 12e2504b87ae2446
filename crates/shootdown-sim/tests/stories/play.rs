//! [`explore`]: plays a story under many schedules, and writes the one to walk through.

use std::mem;
use std::path::Path;

use shootdown_sim::explore::{Chooser, Explore, Strategy};
use shootdown_sim::kernel::{Adversary, KernelPages};
use shootdown_sim::machine::{Model, State};
use shootdown_sim::walkthrough::{Recorded, Titles, Walkthrough, page};
use shootdown_sim::{Machine, Program};

use crate::eager::Eager;
use crate::scene::Scene;

/// Schedules of each story.
const RUNS: u64 = 1500;
/// More events than any story has that gets on.
const MOST_EVENTS: u64 = 60_000;

/// One CPU's part in a story.
pub type Part = fn(&Scene);

/// What a story needs of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// Hardware tags of each CPU.
    pub asid_slots: usize,
    pub kernel_pages: KernelPages,
    /// Where non-maskable interrupts lead.
    pub nmi: Part,
    /// Parts begin when all CPUs are online, not before their own is.
    pub is_online: bool,
}

impl Stage {
    /// No tags, and nothing that is not maskable.
    pub const PLAIN: Self = Self {
        asid_slots: 0,
        kernel_pages: KernelPages::Global,
        nmi: |_| (),
        is_online: true,
    };
    /// Each part comes online by itself.
    pub const OFFLINE: Self = Self {
        is_online: false,
        ..Self::PLAIN
    };
    /// Tags for some spaces.
    pub const TAGGED: Self = Self {
        asid_slots: 4,
        ..Self::PLAIN
    };
}

/// Tells a story under many schedules; part `n` is CPU n's.
pub fn explore(parts: &[Part]) {
    explore_on(Stage::PLAIN, parts);
}

/// The same for parts that come online by themselves.
pub fn explore_offline(parts: &[Part]) {
    explore_on(Stage::OFFLINE, parts);
}

/// The same on a machine that is not plain. With `STORIES_HTML=FOLDER` the schedule that fails, or the first one, is written there as a page to
/// walk through, named after the test.
pub fn explore_on(stage: Stage, parts: &[Part]) {
    let folder = std::env::var_os("STORIES_HTML");
    for seed in 0..RUNS {
        let Some(failure) = play(stage, parts, seed, false).failure else {
            continue;
        };
        if let Some(folder) = folder {
            write_page(folder.as_ref(), walk(stage, parts, seed));
        }
        panic!("seed {seed}: {failure}");
    }
    if let Some(folder) = folder {
        write_page(folder.as_ref(), walk(stage, parts, 0));
    }
}

/// One schedule of a story, to walk through.
pub fn walk(stage: Stage, parts: &[Part], seed: u64) -> Walkthrough {
    let mut played = play(stage, parts, seed, true);
    let recorded = Recorded::of(&mut played).expect("it was asked for");
    let titles = Titles {
        title: &format!("{}, seed {seed}", test_name()),
        command: &format!(
            "STORIES_HTML=FOLDER cargo test -p shootdown-sim --test stories {}",
            test_name()
        ),
    };
    recorded.explored(titles, played.failure.as_ref())
}

fn test_name() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("story").to_owned()
}

fn write_page(folder: &Path, walkthrough: Walkthrough) {
    let path = folder.join(test_name().replace("::", "-") + ".html");
    std::fs::write(&path, page(&[walkthrough]))
        .expect("STORIES_HTML is a folder that can be written");
}

fn strategy(seed: u64) -> Strategy {
    match seed % 3 {
        0 => Strategy::Priorities {
            seed,
            changes: 1 + (seed / 3 % 6) as u32,
        },
        _ => Strategy::Random(seed),
    }
}

/// Tells a story once, under the schedule of a seed.
fn play(stage: Stage, parts: &[Part], seed: u64, is_walked: bool) -> State {
    let scene = Scene::new(parts.len(), stage);
    let chooser = Chooser::new(strategy(seed), parts.len());
    let tlbs = Box::new(Eager(Adversary(scene.hardware.clone())));
    let model =
        Explore::new(parts.len(), chooser, tlbs, MOST_EVENTS).with_asid_slots(stage.asid_slots);
    let handler = || {
        scene.engine.handle_ipi();
    };
    let mut machine = Machine::new(parts.len(), Model::Explore(Box::new(model)), handler)
        .with_nmi(|| (stage.nmi)(&scene));
    if is_walked {
        machine = machine.with_steps(|address| scene.line_name(address));
    }
    let programs = parts.iter().map(|part| -> Program<'_> {
        let scene = &scene;
        Box::new(move |_| {
            if stage.is_online {
                scene.online_all(parts.len());
            }
            part(scene);
        })
    });
    let (state, failure) = machine.run(programs.collect());
    if failure.is_some() {
        // The space is still loaded on CPUs that no longer exist, which its drop would rightly refuse.
        mem::forget(scene);
    }
    state
}
