//! [`Topology`]: which virtual CPUs are near each other.

use std::ops::Range;

/// How far apart two CPUs are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Distance {
    /// Threads of one core: they share its caches.
    Core,
    /// Cores of one socket.
    Socket,
    /// Different sockets.
    Machine,
}

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

impl Default for Topology {
    /// Single-threaded cores, each a socket and a cluster of its own.
    fn default() -> Self {
        Self {
            threads_per_core: 1,
            cores_per_socket: 1,
            cluster: 1,
        }
    }
}

impl Topology {
    /// The socket of a CPU.
    pub fn socket(&self, cpu: usize) -> usize {
        cpu / (self.threads_per_core * self.cores_per_socket)
    }

    /// The CPUs of the core that `cpu` is in.
    pub fn core_of(&self, cpu: usize) -> Range<usize> {
        let start = cpu - cpu % self.threads_per_core;
        start..start + self.threads_per_core
    }

    /// The CPUs of the socket that `cpu` is in.
    pub fn socket_of(&self, cpu: usize) -> Range<usize> {
        let cpus = self.threads_per_core * self.cores_per_socket;
        let start = cpu - cpu % cpus;
        start..start + cpus
    }

    /// How far two CPUs are apart.
    pub fn distance(&self, one: usize, other: usize) -> Distance {
        if self.core_of(one).contains(&other) {
            Distance::Core
        } else if self.socket(one) == self.socket(other) {
            Distance::Socket
        } else {
            Distance::Machine
        }
    }
}
