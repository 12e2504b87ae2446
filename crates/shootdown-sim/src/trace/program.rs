//! What a program says about itself.

use crate::machine::Context;
use crate::trace::SpanKind;

impl Context<'_> {
    /// From now on this CPU executes `name`, in user mode or in the kernel. Free unless a trace is recorded; no
    /// event, takes no time.
    pub fn doing(self, kind: SpanKind, name: &'static str) {
        self.with(|state| state.record(|recorder, cpu, now| recorder.doing(cpu, now, kind, name)));
    }

    /// This CPU has come to the point `name`. As [`doing`](Self::doing).
    pub fn mark(self, name: &'static str) {
        self.with(|state| state.record(|recorder, cpu, now| recorder.mark(cpu, now, name)));
    }
}
