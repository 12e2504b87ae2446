//! Remote Action Request: dropping translations on other CPUs without an interrupt (Intel, some processors).
//!
//! **Unproven on silicon.** Nobody has run this on a processor that has it, and no emulator executes it. What is tested is the protocol, on
//! an emulated machine. The author of Linux's patches saw processors say "success" while translations seemed to be left (his answer to N. Amit
//! in the thread of patch 5 below; whether the cause was the processor or the patches is not said there). Measure before use.
//!
//! Sources: Rik van Riel and Yu-cheng Yu, "[RFC PATCH v4 0/8] Intel RAR TLB invalidation", linux-kernel, 2025-06-19: `asm/rar.h` and
//! `mm/rar.c` (payloads, states, order of steps), `asm/msr-index.h` (registers), `asm/apicdef.h` of patch "x86/apic: Introduce Remote Action
//! Request Operations" (delivery mode). The state 0x02 is in v2 of 2025-05-20 only. They follow Intel, *Remote Action Request White Paper*, 341431-001, which was not at hand, but for
//! the list of operations, which the datasheet 655258, "Remote Action Request", has too.
//!
//! A request is a *payload* of 64 bytes in a table of 64. Each CPU has an *action vector*, a byte for each payload. An initiator writes a
//! payload, sets the byte of each target to "pending", and sends the targets a signal: an interrupt command with a delivery mode of its own,
//! which no handler sees. Each target carries out all payloads that are pending in its vector, at some time, in any order:
//!
//! | byte | means | [`State`] |
//! |---|---|---|
//! | 0x00 | success | `Done` |
//! | 0x01 | pending | `Pending` |
//! | 0x02 | acknowledged: begun | `Pending` |
//! | 0x80 | failure | `Failed` |
//!
//! Nobody may write to a payload, or to a target's byte, before that target has come to success or failure. So a [`Flight`] that is
//! dropped earlier leaves its slot to its targets; the slot is given out again when they are through.
//!
//! Targets act with interrupts off, too ([`RarTable::start`]): CPUs that wait for each other with interrupts off would wait for ever
//! otherwise. So a host whose walkers turn interrupts off to keep page tables from being freed needs another way.
//!
//! Of the operations only INVPCID's is used. Like the instruction it leaves global translations, but for [`Payload::all`].

mod payload;
mod port;
mod slots;
#[cfg(not(all(loom, test)))]
mod table;

pub use payload::Payload;
pub use port::{RarHardware, RarPort};
#[cfg(not(all(loom, test)))]
pub use table::{BeginError, Flight, RarTable, State};
