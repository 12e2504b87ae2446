//! The machines themselves, one a file.

mod forty_cores;
mod forty_cores_2018;
mod haswell_ep;
mod large_server;
mod sixteen_cores;
mod skylake_laptop;

pub(crate) use forty_cores::FORTY_CORES;
pub(crate) use forty_cores_2018::FORTY_CORES_2018;
pub(crate) use haswell_ep::HASWELL_EP;
pub(crate) use large_server::LARGE_SERVER;
pub(crate) use sixteen_cores::SIXTEEN_CORES;
pub(crate) use skylake_laptop::SKYLAKE_LAPTOP;
