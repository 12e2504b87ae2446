//! Loading programs.
