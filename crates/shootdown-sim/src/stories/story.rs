//! [`Story`]: one bug, as it is told.

use crate::kernel::Scenario;
use crate::stories::algorithm::{Algorithm, Part};

/// By what the TLBs of a story are kept right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The algorithm as it was described, which goes wrong.
    Described,
    /// The same with what mends it.
    Mended,
    /// The engine.
    Engine,
}

/// One bug that kernels have: an algorithm, and a story in which it goes wrong.
#[derive(Debug)]
pub struct Story {
    /// By which it is called for.
    pub name: &'static str,
    /// The bug in a few words.
    pub title: &'static str,
    /// What the algorithm does.
    pub algorithm: &'static str,
    /// What goes wrong.
    pub wrong: &'static str,
    /// What mends the algorithm; nothing where only another one helps.
    pub mending: Option<&'static str>,
    /// What the model was written from, and who told of the bug in public.
    pub source: &'static str,
    pub(super) cast: Cast,
}

/// What a story is played with.
#[derive(Debug)]
pub(super) enum Cast {
    /// What each CPU does, and the algorithm, mended or not.
    Parts {
        parts: &'static [Part],
        model: fn(is_mended: bool) -> Box<dyn Algorithm>,
        /// Whether the machine under the engine has a hypervisor, which takes CPUs off their processors.
        has_hypervisor: bool,
    },
    /// Scenarios of the virtual kernel.
    Scenarios {
        described: Scenario,
        engine: Scenario,
    },
}

impl Story {
    /// How many CPUs play it.
    pub fn cpus(&self) -> usize {
        match &self.cast {
            Cast::Parts { parts, .. } => parts.len(),
            Cast::Scenarios { .. } => Scenario::CPUS,
        }
    }

    /// The ways in which it can be played.
    pub fn ways(&self) -> impl Iterator<Item = Way> {
        let mended = self.mending.map(|_| Way::Mended);
        [Some(Way::Described), mended, Some(Way::Engine)]
            .into_iter()
            .flatten()
    }
}
