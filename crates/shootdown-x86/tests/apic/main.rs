//! The local APIC against a recorder: register sequences, and who gets an interrupt.

mod control;
mod machine;
mod map;
mod multicast;
mod send;
mod sender;
