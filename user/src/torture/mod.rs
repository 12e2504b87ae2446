//! Random changes of mappings under fire, with every access checked.
//!
//! Worker threads on all CPUs share a few *slots*, runs of pages at fixed addresses. One worker at
//! a time changes a slot: maps it, fills it, makes it read-only or inaccessible, discards it,
//! unmaps it. Others read and write it meanwhile, from user mode, in loops tight enough that their
//! translations stay in the TLB until something flushes them. Every page's content names its slot
//! and the change that wrote it, and every access is judged by what the slot's published state
//! promised while the access was made.
//!
//! * [`options`]: the command line;
//! * [`mark`]: what is written into pages;
//! * [`state`]: what a slot promises, and the word that publishes it;
//! * [`rule`]: the judgement, and why it is sound;
//! * [`promise`]: the words in which that is published;
//! * [`probe`]: an access that survives its fault;
//! * [`slot`] and [`change`]: shared pages and the changes made to them;
//! * [`private`]: pages of one worker, which take frames into use as soon as they are free;
//! * [`heir`] and [`finding`]: forked children, whose memory must stay as it was at the fork, and what they say;
//! * [`board`] and [`evidence`]: what workers share, and what they found;
//! * [`worker`] and [`tally`]: the turns that a worker takes, and their count;
//! * [`lending`]: servers with windows of their own on each CPU, and their clients;
//! * [`churn`]: CPUs that leave and come back meanwhile;
//! * [`run`]: time, policies, rows, exit code.

pub mod board;
pub mod change;
pub mod churn;
pub mod evidence;
pub mod finding;
pub mod heir;
pub mod lending;
pub mod mark;
pub mod options;
pub mod private;
pub mod probe;
pub mod promise;
pub mod rule;
pub mod run;
pub mod slot;
pub mod state;
pub mod tally;
pub mod worker;

pub use run::main;
