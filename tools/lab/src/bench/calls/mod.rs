//! Contests: cross-CPU calls at any size, the engine's beside other kernels'.
//!
//! * [`contest`]: what describes one, and its course on the simulated machine ([`live`](super::live) has the others);
//! * [`lists`]: the lists of the command line;
//! * [`farm`]: rows on all processors of this host;
//! * [`plot`]: tables as pictures.

mod contest;
mod farm;
mod lists;
mod plot;

pub use contest::{Contest, Findings, command, machine_size};
pub use farm::all;
pub use lists::{Count, counts, draws, functions_ps, number_of_calls, peers};
pub use plot::{Panel, Picture, Up};
