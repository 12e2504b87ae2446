//! Fixed stories against the adversarial TLB, under many schedules: each is named after what must hold.

mod calls;
mod scene;
mod shootdowns;
