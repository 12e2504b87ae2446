//! Physical frames.
