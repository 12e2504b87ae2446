//! Workloads of the timed machine: what the published tables measure, on virtual CPUs.

mod collapse;
mod engine;
mod evacuate;
mod evacuated;
mod eviction;
mod fairness;
mod file_writes;
mod madvise;
mod measured;
pub mod on_cores;
mod order;
mod overcommit;
mod overcommitted;
mod peer;
mod pingpong;
mod preemptoff;
mod quiet;
mod reclaim;
mod selected;
mod shootdown;
mod spaces;
mod spared;
mod sweep;
mod threads;
mod volley;
mod zerocopy;

pub use collapse::{Collapse, Collapsed, WaitedFor};
pub use engine::{MAX_CPUS, on_large_stack};
pub use evacuate::Evacuate;
pub use evacuated::{Counted, Evacuated, Evacuation};
pub use eviction::{Candidates, Eviction, Victim};
pub use fairness::unfairness;
pub use file_writes::{FileWrites, FilesWritten, PUBLISHED_FILE_WRITES};
pub use madvise::{Madvise, PUBLISHED};
pub use measured::Measured;
pub use order::Order;
pub use overcommit::Overcommit;
pub use overcommitted::{Overcommitted, Sample, Telling};
pub use peer::{Built, bytes_of};
pub use pingpong::{Names, PUBLISHED_PINGPONG, Pingpong, Placement};
pub use preemptoff::{
    Counts, Findings, LOAD_FIGURES, Load, LoadFigure, Maxima, PUBLISHED_PREEMPTOFF, Preemptoff,
    System,
};
pub use quiet::{LeftAlone, Quiet, Quieted};
pub use reclaim::{Reclaim, Reclaimed, ReclaimedBy};
pub use selected::{PUBLISHED_SELECTED, Selected, SelectedResult};
pub use shootdown::{Shot, shoot};
pub use shootdown_peers::{Masks, Peer};
pub use spared::{Spared, Whereabouts, spared};
pub use sweep::{Change, Effect, Row, changes, sweep};
pub use threads::{Discarded, Threads};
pub use volley::{Called, Callers, Means, Operation, Volley, VolleyResult};
pub use zerocopy::{Mapping, PUBLISHED_ZEROCOPY, PublishedZerocopy, Served, Zerocopy};
