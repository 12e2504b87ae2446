//! What one access proves.
//!
//! An accessor loads, in this order: the slot's state, the slot's *floor* (the version below which
//! contents are gone), then accesses the page, then loads the state again. The worker that changes
//! the slot publishes the state of the change before it begins, and after it is done first the new
//! floor and then the new state. So:
//!
//! * Both states equal and at rest: the access happened while the slot was at rest. It must do
//!   exactly what the condition says, and content must have exactly the version of the floor.
//! * Both states belong to one change: it must do what the condition before *or* after says.
//! * More than one change passed: any condition may have held, but content still must not be
//!   older than the floor, nor newer than the second state.
//!
//! On x86 loads are not reordered with loads, nor stores with stores, and a flush reaches the CPU
//! as an interrupt, which is taken between instructions; `madvise::rule` explains why a load that
//! the processor executes early cannot lead to a wrong verdict. A store may become visible late,
//! but whether it *faults* is decided before it retires, hence before the interrupt of any flush
//! whose completion the first state shows. The thread may lose its CPU for any time between two of
//! its loads: that makes the second state later and the verdict milder, never wrong.
//!
//! Trial writes go to a word of their own, so that content stays exact. One may land after a
//! discard, in the fresh page, if its thread looked at the state before; therefore a trial write
//! to *this* page may be seen in any condition that can be read, and one to another page never.

use super::mark::{Mark, Sort};
use super::state::{Condition, State};

/// Where an access went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The number of the slot.
    pub slot: usize,
    /// The page in it.
    pub page: usize,
}

/// When an access happened, in terms of the slot's states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The state read first.
    pub before: State,
    /// The floor, read second: contents of lower versions are gone.
    pub floor: u32,
    /// The state read last.
    pub after: State,
}

/// What an access did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It was a load and faulted.
    LoadFault,
    /// It was a load and returned these words.
    Loaded {
        /// The content word.
        content: u64,
        /// The word for trial writes.
        scribble: u64,
    },
    /// It was a store and faulted.
    StoreFault,
    /// It was a store and went through.
    Stored,
}

/// An access: when it happened, and what it did.
pub type Seen = (Window, Effect);

impl Effect {
    /// A load that returned these words.
    pub const fn loaded(content: u64, scribble: u64) -> Self {
        Self::Loaded { content, scribble }
    }

    /// Whether the access faulted.
    pub const fn is_fault(self) -> bool {
        matches!(self, Self::LoadFault | Self::StoreFault)
    }
}

/// What the access proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing wrong, and the condition was known exactly.
    Exact,
    /// Nothing wrong that could be told: the slot changed meanwhile.
    Lenient,
    /// A load went through a translation that was no longer valid, to the slot's old content.
    StaleLoad,
    /// A store went through a translation that was no longer valid.
    StaleStore,
    /// A load showed something that was never this page's: its frame is in use elsewhere.
    Foreign,
    /// The page's content, or the page, was not there although it had to be.
    Lost,
}

impl Verdict {
    /// Whether the access must not have happened.
    pub fn is_violation(self) -> bool {
        !matches!(self, Self::Exact | Self::Lenient)
    }
}

/// Judges an access to `place`.
pub fn judge(place: Place, (window, effect): Seen) -> Verdict {
    let fine = match window.before == window.after && window.before.at_rest() {
        true => Verdict::Exact,
        false => Verdict::Lenient,
    };
    let faults: fn(Condition) -> bool = match effect {
        Effect::LoadFault | Effect::Loaded { .. } => Condition::load_faults,
        Effect::StoreFault | Effect::Stored => Condition::store_faults,
    };
    let may_fault = window.any(faults);
    let may_succeed = window.any(|condition| !faults(condition));
    match effect {
        Effect::LoadFault | Effect::StoreFault if may_fault => fine,
        Effect::LoadFault | Effect::StoreFault => Verdict::Lost,
        Effect::Stored if may_succeed => fine,
        Effect::Stored => Verdict::StaleStore,
        Effect::Loaded { content, scribble } => {
            let verdict = judge_content(place, window, content, fine);
            if verdict == fine && !scribble_belongs(place, window, scribble) {
                return Verdict::Foreign;
            }
            verdict
        }
    }
}

fn judge_content(place: Place, window: Window, content: u64, fine: Verdict) -> Verdict {
    if content == 0 {
        return if window.any(|condition| condition == Condition::Zero) {
            fine
        } else if window.any(Condition::shows_content) {
            Verdict::Lost
        } else {
            // Where every access faults, even a zero is the content of somebody else's frame.
            Verdict::Foreign
        };
    }
    let Some(version) = version_of(place, window, content, Sort::Content) else {
        return Verdict::Foreign;
    };
    let newest = match fine {
        Verdict::Exact => window.floor,
        _ => window.after.sequence,
    };
    match (window.floor..=newest).contains(&version) && window.any(Condition::shows_content) {
        true => fine,
        false => Verdict::StaleLoad,
    }
}

fn scribble_belongs(place: Place, window: Window, scribble: u64) -> bool {
    scribble == 0 || version_of(place, window, scribble, Sort::Scribble).is_some()
}

/// The version in a word, if it is such a mark of that place, and not from the future.
fn version_of(place: Place, window: Window, word: u64, sort: Sort) -> Option<u32> {
    let mark = Mark::from_word(word)?;
    let is_due = mark.version <= window.after.sequence;
    let expected = Mark::new(sort, place.slot, place.page, mark.version);
    (mark == expected && is_due).then_some(mark.version)
}

impl Window {
    /// While the state was this one all the time.
    pub const fn of(state: State, floor: u32) -> Self {
        Self {
            before: state,
            floor,
            after: state,
        }
    }

    /// Whether `property` holds for any condition that the slot may have had at the access.
    fn any(self, property: impl Fn(Condition) -> bool) -> bool {
        let Self { before, after, .. } = self;
        if after.sequence.wrapping_sub(before.sequence) > 1 {
            return Condition::ALL.into_iter().any(property);
        }
        // One step apart at most, these four are the conditions of one change.
        let conditions = [before.from, before.to, after.from, after.to];
        conditions.into_iter().any(property)
    }
}

#[cfg(test)]
mod tests {
    use super::Condition::*;
    use super::*;

    const PLACE: Place = Place { slot: 3, page: 1 };

    fn rest(sequence: u32, condition: Condition) -> State {
        State {
            sequence,
            from: condition,
            to: condition,
        }
    }

    fn change(sequence: u32, from: Condition, to: Condition) -> State {
        State { sequence, from, to }
    }

    fn content(version: u32) -> Effect {
        Effect::loaded(Mark::new(Sort::Content, 3, 1, version).to_word(), 0)
    }

    const ZERO: Effect = Effect::loaded(0, 0);

    fn at_rest(condition: Condition, floor: u32, effect: Effect) -> Verdict {
        judge(PLACE, (Window::of(rest(10, condition), floor), effect))
    }

    #[test]
    fn at_rest_the_condition_is_exact() {
        use Effect::{LoadFault, StoreFault, Stored};
        for (condition, effect, verdict) in [
            (Absent, LoadFault, Verdict::Exact),
            (Absent, content(9), Verdict::StaleLoad),
            (Absent, ZERO, Verdict::Foreign),
            (Absent, Stored, Verdict::StaleStore),
            (Zero, ZERO, Verdict::Exact),
            (Zero, Stored, Verdict::Exact),
            (Zero, content(9), Verdict::StaleLoad),
            (Zero, LoadFault, Verdict::Lost),
            (Live, content(9), Verdict::Exact),
            (Live, content(7), Verdict::StaleLoad),
            (Live, ZERO, Verdict::Lost),
            (Live, StoreFault, Verdict::Lost),
            (ReadOnly, content(9), Verdict::Exact),
            (ReadOnly, StoreFault, Verdict::Exact),
            (ReadOnly, Stored, Verdict::StaleStore),
            (NoAccess, LoadFault, Verdict::Exact),
            (NoAccess, content(9), Verdict::StaleLoad),
            (NoAccess, Stored, Verdict::StaleStore),
        ] {
            let judged = at_rest(condition, 9, effect);
            assert_eq!(judged, verdict, "{condition:?} {effect:?}");
        }
    }

    #[test]
    fn during_a_change_both_conditions_are_fine_and_no_third() {
        let changing = change(11, Live, Absent);
        for (before, after) in [
            (rest(10, Live), changing),
            (changing, changing),
            (changing, rest(12, Absent)),
        ] {
            let window = Window {
                before,
                floor: 9,
                after,
            };
            for (effect, verdict) in [
                (content(9), Verdict::Lenient),
                (Effect::LoadFault, Verdict::Lenient),
                (ZERO, Verdict::Lost),
                (content(7), Verdict::StaleLoad),
            ] {
                assert_eq!(judge(PLACE, (window, effect)), verdict);
            }
        }
    }

    #[test]
    fn a_rewrite_shows_the_old_or_the_new_version() {
        let changing = change(11, Live, Live);
        let judged = |version| judge(PLACE, (Window::of(changing, 9), content(version)));
        assert_eq!([9, 11].map(judged), [Verdict::Lenient; 2]);
        assert_eq!(judged(13), Verdict::Foreign);
    }

    #[test]
    fn after_many_changes_only_the_floor_and_the_ceiling_hold() {
        let window = Window {
            before: rest(10, Live),
            floor: 9,
            after: rest(20, Absent),
        };
        let judged = |effect| judge(PLACE, (window, effect));
        let fine = [content(9), content(15), ZERO, Effect::LoadFault];
        for effect in fine.into_iter().chain([Effect::Stored]) {
            assert_eq!(judged(effect), Verdict::Lenient, "{effect:?}");
        }
        assert_eq!(judged(content(8)), Verdict::StaleLoad);
        assert_eq!(judged(content(21)), Verdict::Foreign);
    }

    #[test]
    fn marks_of_others_are_foreign_in_every_condition() {
        let marks = [
            Mark::new(Sort::Content, 4, 1, 9),
            Mark::new(Sort::Content, 3, 0, 9),
            Mark::new(Sort::Private, 3, 1, 9),
        ];
        for condition in Condition::ALL {
            for mark in marks {
                let loaded = Effect::loaded(mark.to_word(), 0);
                assert_eq!(at_rest(condition, 9, loaded), Verdict::Foreign);
            }
        }
    }

    #[test]
    fn a_trial_write_may_show_in_its_own_page_only() {
        let scribble = |owner| Mark::new(Sort::Scribble, owner, 1, 4).to_word();
        let zero_with = |scribble| Effect::loaded(0, scribble);
        assert_eq!(at_rest(Zero, 9, zero_with(scribble(3))), Verdict::Exact);
        assert_eq!(at_rest(Zero, 9, zero_with(scribble(2))), Verdict::Foreign);
        assert_eq!(at_rest(Zero, 9, zero_with(77)), Verdict::Foreign);
    }
}
