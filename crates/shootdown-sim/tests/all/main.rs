//! All tests of the simulator in one program, a module for each file: the engine, which is generic, is compiled and linked once for all. Programs
//! of their own are `stories`, whose machines are of a size of their own, and `unwinding`, which starts itself again and again.

mod broadcasts;
mod conduct;
mod cores;
mod departures;
mod early_acks;
mod explore;
mod fairness;
mod field_stories;
mod flaws;
mod hosts;
mod machine;
mod peers;
mod storms;
mod timed_closed_form;
mod timed_evacuate;
mod timed_madvise;
mod timed_overcommit;
mod timed_pingpong;
mod timed_preemptoff;
mod timed_quiet;
mod timed_spared;
mod timed_volley;
mod timed_zerocopy;
mod torture;
mod trace;
mod walkthrough;
mod watchdog;
mod windows;
