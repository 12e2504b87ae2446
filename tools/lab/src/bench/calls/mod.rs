//! `bench selected` and `bench shoot`: calls at any size, the engine's beside other kernels'.
//!
//! * [`mod@command`]: which machine, and the course of one bench on the simulated one ([`live`](super::live) has the others);
//! * [`lists`]: the lists of the command line;
//! * [`farm`]: rows on all processors of this host;
//! * [`selected`], [`shoot`]: the rows of each workload and its part of the result; [`selected_table`], [`shoot_table`]: how they are
//!   shown;
//! * [`spared_table`]: what `shoot` says of targets that need no interrupt;
//! * [`targets`]: what the engine is to reach in table T5;
//! * [`plot`]: the tables as pictures.

mod command;
mod farm;
mod lists;
mod plot;
mod selected;
mod selected_table;
mod shoot;
mod shoot_table;
mod spared_table;
mod targets;
mod text;

pub use command::command;
