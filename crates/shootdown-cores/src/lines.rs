//! What transfers of cache lines between two cores cost, measured first; and the placement that this shows.
//!
//! A host may run two virtual CPUs on one core or on two, and change that at any time.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use serde::Serialize;

use crate::cpu::{self, Line, cycles, cycles_after};

/// Where the CPUs of a round were.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// On one core.
    Near,
    /// On two cores that share a cache close to them.
    #[serde(rename = "shared cache")]
    SharedCache,
    /// On two others.
    Far,
}

/// A line that goes there and back within fewer cycles does not leave a core and its first caches.
const NEAR: u64 = 130;
/// Within fewer than these it goes by a cache that both cores share.
const SHARED_CACHE: u64 = 270;
const TURNS: u64 = 2000;

/// Cycles of single transfers, medians.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Transfers {
    /// A line that both write, there and back.
    pub round_trip: u64,
    /// A store to a line that the other has read, until a locked operation behind it is done.
    pub upgrade: u64,
    /// A load of a line that the other has written.
    pub load: u64,
    /// A locked operation on such a line.
    pub locked: u64,
    /// A locked operation on an own line behind eight stores to lines that the other has written.
    pub drain: u64,
    /// A locked operation on an own line.
    pub own: u64,
    /// A PAUSE, of many.
    pub pause: u64,
    /// Nothing: what all but `round_trip` and `pause` have besides.
    pub nothing: u64,
}

static BALL: Line<AtomicU64> = Line(AtomicU64::new(0));
static LINES: [Line<AtomicU64>; 9] = [const { Line(AtomicU64::new(0)) }; 9];

/// Steps of the two sides, one after the other: `mine` here on turn 2n, `theirs` on CPU 1 on turn 2n + 1.
fn throw(is_first: bool, turns: u64, mut act: impl FnMut() -> Option<u64>) -> Vec<u64> {
    let mut taken = Vec::new();
    let first = u64::from(!is_first);
    for turn in 0..turns {
        let wanted = 2 * turn + first;
        // ORDERING: sees what the other side did before it threw; pairs with the Release below.
        while BALL.0.load(Ordering::Acquire) != wanted {
            core::hint::spin_loop();
        }
        taken.extend(act());
        BALL.0.store(wanted + 1, Ordering::Release);
    }
    taken
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// What one side measures, and what the other does before.
type Side = fn() -> Option<u64>;

fn pause() {
    // What was written is on its way, and arrives.
    cpu::spend(600);
}

/// Of which the time is taken together.
const PAUSES: u64 = 100;

const KINDS: [(Side, Side); 7] = [
    // upgrade: the other has read the line since this side wrote it
    (
        || {
            let taken = timed(|| LINES[0].0.fetch_add(1, Ordering::SeqCst));
            pause();
            taken
        },
        || {
            let _ = LINES[0].0.load(Ordering::Acquire);
            pause();
            None
        },
    ),
    // load
    (|| timed(|| LINES[0].0.load(Ordering::Acquire)), dirty_one),
    // locked
    (
        || timed(|| LINES[0].0.fetch_add(1, Ordering::SeqCst)),
        dirty_one,
    ),
    // drain
    (
        || {
            timed(|| {
                LINES[1..]
                    .iter()
                    .for_each(|line| line.0.store(1, Ordering::Relaxed));
                fence(Ordering::SeqCst);
                0
            })
        },
        || {
            LINES[1..]
                .iter()
                .for_each(|line| line.0.store(2, Ordering::Relaxed));
            pause();
            None
        },
    ),
    // own
    (
        || {
            LINES[0].0.fetch_add(1, Ordering::SeqCst);
            timed(|| LINES[0].0.fetch_add(1, Ordering::SeqCst))
        },
        || None,
    ),
    // pause
    (
        || {
            let taken = timed(|| {
                (0..PAUSES).for_each(|_| core::hint::spin_loop());
                0
            });
            taken.map(|taken| taken / PAUSES)
        },
        || None,
    ),
    // nothing
    (|| timed(|| 0), || None),
];

fn dirty_one() -> Option<u64> {
    LINES[0].0.fetch_add(1, Ordering::SeqCst);
    pause();
    None
}

fn timed(act: impl FnOnce() -> u64) -> Option<u64> {
    // A processor whose fences let instructions pass would read the counter while it waits for the ball.
    cpu::serialize();
    let start = cycles();
    core::hint::black_box(act());
    fence(Ordering::Acquire);
    Some(cycles_after() - start)
}

/// CPU 1's part, while CPU 0 [asks](ask).
pub fn answer(kind: Kind) {
    match kind {
        Kind::RoundTrip => drop(throw(false, TURNS, || None)),
        Kind::Of(index) => drop(throw(false, TURNS, KINDS[index].1)),
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The ball itself.
    RoundTrip,
    /// One of the others.
    Of(usize),
}

/// All kinds, in order.
pub fn kinds() -> impl Iterator<Item = Kind> {
    [Kind::RoundTrip]
        .into_iter()
        .chain((0..KINDS.len()).map(Kind::Of))
}

/// CPU 0's part: cycles of that kind. CPU 1 must [answer] it.
pub fn ask(kind: Kind) -> u64 {
    BALL.0.store(0, Ordering::SeqCst);
    match kind {
        Kind::RoundTrip => {
            let mut last = cycles();
            median(throw(true, TURNS, || {
                let since = std::mem::replace(&mut last, cycles());
                Some(last - since)
            }))
        }
        Kind::Of(index) => median(throw(true, TURNS, KINDS[index].0)),
    }
}

impl Placement {
    /// That of a round in which a line took so long there and back.
    pub fn of(round_trip: u64) -> Self {
        match round_trip {
            ..NEAR => Self::Near,
            NEAR..SHARED_CACHE => Self::SharedCache,
            _ => Self::Far,
        }
    }
}
