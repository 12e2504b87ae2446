//! AArch64 building blocks for cross-CPU calls and TLB shootdown.
#![no_std]
