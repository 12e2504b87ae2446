//! Fixed stories against the adversarial TLB, under many schedules: each is named after what must hold.

mod calls;
mod lazy;
mod moves;
mod scene;
mod shootdowns;
mod tags;
