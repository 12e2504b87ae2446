//! Fixed stories against the adversarial TLB, under many schedules: each is named after what must hold.

mod calls;
mod eager;
mod lazy;
mod moves;
mod play;
mod scene;
mod shootdowns;
mod tags;
mod walks;
