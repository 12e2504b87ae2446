//! Placeholder until the first slice lands.
#![no_std]
