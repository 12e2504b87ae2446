//! The life of a CPU: before it comes online, online, out of service for a while or for good. What it does while it is no target.

use shootdown::{Capacity, Platform};

use crate::kernel::sightings::Sight;
use crate::kernel::theme::Draw;
use crate::kernel::{PAGES_PER_TABLE, World};
use crate::machine::context;

/// Operations of a CPU that is not online, at most.
const MOST_UNSEEN: usize = 4;

impl<C: Capacity> World<C> {
    pub(super) fn come_online(&self, me: usize) {
        self.with_interrupts(true, || {
            self.knew[me].replace(context().knowledge());
            self.engine.online();
            if let Some(second) = &self.second {
                second.online();
            }
            self.online[me].set(true);
            self.check_kernel_pages(me);
        });
    }

    /// No call and no flush reaches this CPU from its return on.
    fn leave(&self, me: usize) {
        self.with_interrupts(true, || {
            self.online[me].set(false);
            // In this order: nobody waits here for an answer of the first engine when the second is left, which serves its own only.
            self.engine.offline();
            if let Some(second) = &self.second {
                second.offline();
            }
            if let Some(guests) = self.hardware.guests.borrow_mut().get_mut(me) {
                guests.mix_tags();
            }
        });
    }

    /// Out of service for a while. No lock is held, and no space is loaded.
    pub(super) fn go_offline(&self, draw: &mut Draw) {
        let me = context().cpu();
        self.switch(None);
        context().preempt_disable();
        self.leave(me);
        self.start_processor();
        self.rest_awhile(draw);
        self.act_unseen(draw);
        self.come_online(me);
        context().preempt_enable();
    }

    /// Goes offline and takes no interrupt before all others are done: nobody may need this CPU any more.
    pub(super) fn leave_for_good(&self, draw: &mut Draw) {
        context().preempt_disable();
        self.leave(context().cpu());
        self.act_unseen(draw);
        self.finish();
        self.with_interrupts(true, || {
            while self.busy.get() > 0 {
                self.engine.platform().relax();
            }
        });
    }

    /// What a CPU does that is no target: it calls others, flushes what they may have, and changes spaces. It uses no memory that is
    /// mapped by what it changes: its own translations are dropped when it comes online.
    pub(super) fn act_unseen(&self, draw: &mut Draw) {
        if draw.once_in(2) {
            return;
        }
        for _ in 0..=draw.below(MOST_UNSEEN) {
            self.hardware.saw(Sight::ActedUnseen);
            let index = draw.below(PAGES_PER_TABLE);
            match draw.below(8) {
                0..3 => self.call_somebody(draw),
                3 => self.hold_requests(draw),
                4 => self.map_kernel(index),
                5 => self.unmap_kernel(index, draw.once_in(3)),
                6 => self.change_any(draw),
                _ => context().work(1),
            }
        }
    }
}
