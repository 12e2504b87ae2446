//! [`Eager`]: TLBs with an eye on two pages.

use shootdown::{
    LocalFlush,
    tags::{Asid, TagEntries},
};
use shootdown_sim::explore::{Chooser, Hardware, Question, Walk, Weak};
use shootdown_sim::kernel::Adversary;
use shootdown_sim::oracle::Breach;
use shootdown_sim::walkthrough::{Fact, Subject};

/// The adversary, which knows what a scene is about: pages 0 and 1.
#[derive(Debug)]
pub struct Eager(pub Adversary);

impl Hardware for Eager {
    fn flush(&mut self, cpu: usize, operation: LocalFlush, now: &Walk) {
        self.0.flush(cpu, operation, now);
    }

    fn load_root(&mut self, cpu: usize, root: u64, asid: Asid, entries: TagEntries) {
        self.0.load_root(cpu, root, asid, entries);
    }

    fn facts(&self) -> Vec<Fact> {
        self.0.facts()
    }

    fn subject(&self) -> Option<Subject> {
        self.0.subject()
    }

    fn last_act(&mut self) -> Option<String> {
        self.0.last_act()
    }

    fn at_event(&mut self, memory: &mut Weak, chooser: &mut Chooser) -> Result<(), Breach> {
        let shared = &self.0.0;
        let cpus = shared.tlbs.borrow().len();
        let wish = chooser.choose(Question::Tlb, 1 + 2 * cpus).checked_sub(1);
        if let Some(wish) = wish {
            shared.translate(memory, chooser, wish / 2, wish % 2)?;
        }
        self.0.at_event(memory, chooser)
    }
}
