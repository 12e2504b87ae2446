//! [`Topology`]: which virtual CPUs are near each other.

use crate::timed::Distance;

/// CPUs are numbered core by core, socket by socket; the threads of one core are neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Hardware threads of a core.
    pub threads_per_core: usize,
    /// Cores of a socket.
    pub cores_per_socket: usize,
    /// CPUs that one write of the interrupt controller can reach.
    pub cluster: usize,
}

impl Topology {
    /// The socket of a CPU.
    pub fn socket(&self, cpu: usize) -> usize {
        cpu / (self.threads_per_core * self.cores_per_socket)
    }

    /// How far two CPUs are apart.
    pub fn distance(&self, one: usize, other: usize) -> Distance {
        if one / self.threads_per_core == other / self.threads_per_core {
            Distance::Core
        } else if self.socket(one) == self.socket(other) {
            Distance::Socket
        } else {
            Distance::Machine
        }
    }
}
