//! One schedule of a story, and the search for one that goes wrong.

use std::mem;

use crate::explore::{BackEnd, Chooser, Explore, Schedule, Strategy, shrink_schedule};
use crate::fuzz::{Case, Report, run, run_to_walk};
use crate::kernel::Scenario;
use crate::machine::{Failure, FailureKind, Machine, Model, Program, State};
use crate::stories::algorithm::{Algorithm, Part, Scene};
use crate::stories::ours::Ours;
use crate::stories::stage::Stage;
use crate::stories::story::{Cast, Story, Way};
use crate::walkthrough::{Recorded, Titles, Walkthrough};

/// More events than any story has that gets on.
const MOST_EVENTS: u64 = 60_000;

/// Who decides in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answers {
    /// Draws the answers.
    pub seed: u64,
    /// The answers, if they are not to be drawn.
    pub schedule: Option<Schedule>,
}

impl Answers {
    /// Those that a seed draws.
    pub fn of(seed: u64) -> Self {
        Self {
            seed,
            schedule: None,
        }
    }

    /// Few changes of priority make schedules that are short to read; some bugs take chance.
    fn strategy(&self) -> Strategy {
        let seed = self.seed;
        match &self.schedule {
            Some(schedule) => Strategy::Replay(schedule.clone()),
            None if seed.is_multiple_of(4) => Strategy::Priorities {
                seed,
                changes: 1 + (seed / 4 % 6) as u32,
            },
            None => Strategy::Random(seed),
        }
    }
}

/// What one run came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Played {
    /// The promise that was broken, if any.
    pub failure: Option<Failure>,
    /// The unusual answers.
    pub schedule: Schedule,
}

/// A run that went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Whose schedule it is.
    pub seed: u64,
    /// Which promise was broken.
    pub failure: Failure,
    /// The unusual answers.
    pub schedule: Schedule,
}

impl Story {
    /// Plays it once. Deterministic.
    ///
    /// # Panics
    /// Where it cannot be played in this way: see [`ways`](Self::ways).
    pub fn play(&self, way: Way, answers: &Answers) -> Played {
        match &self.cast {
            Cast::Scenarios { .. } => played(run(&self.case(way, answers))),
            Cast::Parts { parts, .. } => {
                let (mut state, failure) = self.stage_play(parts, way, answers, false);
                Played {
                    failure,
                    schedule: taken(&mut state),
                }
            }
        }
    }

    /// The same run, to walk through.
    ///
    /// # Panics
    /// As [`play`](Self::play).
    pub fn walk(&self, way: Way, answers: &Answers, titles: Titles<'_>) -> Walkthrough {
        let Cast::Parts { parts, .. } = &self.cast else {
            let mut walkthrough = run_to_walk(&self.case(way, answers)).1;
            walkthrough.title = titles.title.to_owned();
            walkthrough.command = titles.command.to_owned();
            return walkthrough;
        };
        let (mut state, failure) = self.stage_play(parts, way, answers, true);
        let recorded = Recorded::of(&mut state).expect("it was asked for");
        recorded.explored(titles, failure.as_ref())
    }

    /// The first of these seeds whose schedule goes wrong. Of the algorithm as it was described that is a stale access: its CPUs look again and
    /// again for what they wait for, and in a few schedules nobody else ever gets on.
    ///
    /// # Panics
    /// As [`play`](Self::play).
    pub fn find(&self, way: Way, mut seeds: impl Iterator<Item = u64>) -> Option<Found> {
        seeds.find_map(|seed| self.found(way, seed))
    }

    fn found(&self, way: Way, seed: u64) -> Option<Found> {
        let played = self.play(way, &Answers::of(seed));
        let schedule = played.schedule;
        let is_sought = |it: &Failure| it.kind == FailureKind::StaleAccess || way != Way::Described;
        played.failure.filter(is_sought).map(|failure| Found {
            seed,
            failure,
            schedule,
        })
    }

    /// The same promise broken with as few unusual answers as are found.
    ///
    /// # Panics
    /// As [`play`](Self::play).
    pub fn shrink(&self, way: Way, found: &Found) -> Answers {
        let answers = |schedule: &Schedule| Answers {
            seed: found.seed,
            schedule: Some(schedule.clone()),
        };
        let shrunk = shrink_schedule(&found.schedule, |schedule| {
            let again = self.play(way, &answers(schedule));
            let again_as = again.failure.map(|failure| failure.kind);
            (again_as == Some(found.failure.kind)).then_some(again.schedule)
        });
        answers(&shrunk)
    }

    fn case(&self, way: Way, answers: &Answers) -> Case {
        let Cast::Scenarios { described, engine } = self.cast else {
            unreachable!("only scenarios have cases");
        };
        let scenario: Scenario = match way {
            Way::Described => described,
            Way::Engine => engine,
            Way::Mended => panic!("{} cannot be mended", self.name),
        };
        Case {
            schedule: answers.schedule.clone(),
            ..Case::of(scenario, answers.seed)
        }
    }

    fn algorithm(&self, way: Way) -> Box<dyn Algorithm> {
        match (&self.cast, way) {
            (Cast::Parts { model, .. }, Way::Described) => model(false),
            (Cast::Parts { model, .. }, Way::Mended) => model(true),
            _ => Box::new(Ours::new(self.cpus())),
        }
    }

    /// What is under the engine.
    fn back_end(&self) -> BackEnd {
        match self.cast {
            Cast::Parts {
                has_hypervisor: true,
                ..
            } => BackEnd::Hypervisor,
            _ => BackEnd::None,
        }
    }

    fn stage_play(
        &self,
        parts: &[Part],
        way: Way,
        answers: &Answers,
        is_walked: bool,
    ) -> (State, Option<Failure>) {
        let scene = Scene {
            stage: Stage::new(parts.len()),
            algorithm: self.algorithm(way),
        };
        // What is wrong is wrong without speculation; what is right is right with it.
        let tlbs = scene.place(parts, way == Way::Described);
        let strategy = answers.strategy();
        let chooser = Chooser::new(strategy, parts.len());
        let explore = Explore::new(parts.len(), chooser, tlbs, MOST_EVENTS);
        let explore = match way {
            Way::Described => explore.with_eager_spinners(),
            Way::Mended => explore,
            Way::Engine => explore.with_back_end(self.back_end()),
        };
        let handler = || scene.algorithm.interrupt(&scene.stage);
        let mut machine = Machine::new(parts.len(), Model::Explore(Box::new(explore)), handler);
        if is_walked {
            machine = machine.with_steps(|address| scene.algorithm.line_name(address));
        }
        let programs = parts.iter().map(|part| -> Program<'_> {
            let scene = &scene;
            Box::new(move |_| scene.play(part))
        });
        let (state, failure) = machine.run(programs.collect());
        if failure.is_some() {
            // Spaces are still loaded on CPUs that no longer exist, which their drop would rightly refuse.
            mem::forget(scene);
        }
        (state, failure)
    }
}

fn played(report: Report) -> Played {
    Played {
        failure: report.failure,
        schedule: report.schedule,
    }
}

fn taken(state: &mut State) -> Schedule {
    let explore = state.explore();
    explore.map_or_else(Schedule::default, |explore| explore.chooser.taken().clone())
}
