//! The stories: one file each, with the model of its algorithm. Nothing else knows them.

mod counted;
mod gives_up;
mod local_flag;
mod local_only;
mod lost_flush;
mod no_barrier;
mod no_wait;

use crate::stories::Story;

/// All of them, the simplest first.
pub const STORIES: &[&Story] = &[
    &local_only::STORY,
    &no_wait::STORY,
    &gives_up::STORY,
    &no_barrier::STORY,
    &counted::LEAVER,
    &counted::LATE,
    &local_flag::STORY,
    &lost_flush::STORY,
];
