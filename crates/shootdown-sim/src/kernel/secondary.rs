//! Who keeps translations of a space besides CPUs: devices, and a [shadow table](Shadow). What the host does with them, and what the engine tells them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::num::NonZeroU64;

use shootdown::secondary::{Held as HeldBack, SecondaryFailed, SecondaryFlush};
use shootdown::{Capacity, FlushTicket, SpaceId, reclaim::PendingFlush, remote::FlushRequest};

use crate::explore::Question;
use crate::kernel::device::Bound;
use crate::kernel::shadow::Shadow;
use crate::kernel::theme::Draw;
use crate::kernel::{Lock, Sight, Space, World};
use crate::machine::{FailureKind, Listeners, SimPlatform, context};

/// Which devices keep entries of root tables only.
const DEVICES: [bool; 3] = [false, false, true];
/// The listener that is the shadow table; the others are devices.
pub(super) const SHADOW: usize = DEVICES.len();
const LISTENERS: usize = DEVICES.len() + 1;

/// The listeners of one machine.
#[derive(Default, Debug)]
pub(super) struct Secondary {
    /// Protects which space each listens to.
    lock: Lock,
    /// The number and the name of that.
    spaces: [Cell<Option<(u64, SpaceId)>>; LISTENERS],
    pub(super) shadow: Shadow,
    /// Tasks that know what to do with a flush that fails.
    may_fail: RefCell<BTreeSet<usize>>,
    failures: Cell<u32>,
}

impl Secondary {
    /// Whether a device that has failed is asked again. Every other time.
    fn fails_again(&self) -> bool {
        self.failures.set(self.failures.get() + 1);
        !self.failures.get().is_multiple_of(2)
    }
}

/// What a wait comes to.
type Outcome<'a, C, H> = Result<H, HeldBack<'a, SimPlatform<C>, H>>;

impl<C: Capacity> World<C> {
    /// The machine has devices.
    pub(super) fn add_listeners(&self) {
        self.hardware.add_devices(&DEVICES);
    }

    /// Which of some answers, 0 where nothing unusual happens.
    fn ask(answers: usize) -> usize {
        let choose = |state: &mut crate::machine::State| {
            let explore = state.explore();
            explore.map_or(0, |it| it.chooser.choose(Question::Workload, answers))
        };
        context().with(choose)
    }

    /// Has somebody listen to a space, or nobody any more.
    pub(super) fn change_listener(&self, draw: &mut Draw) {
        let Some(space) = self.get_space(draw.place()) else {
            return;
        };
        let (wanted, ends) = (draw.below(LISTENERS), draw.once_in(3));
        let held = self.secondary.lock.take(&self.engine);
        match space.listener.get() {
            Some(listener) if ends => self.unbind(&space, listener),
            None if self.secondary.spaces[wanted].get().is_none() => self.bind(&space, wanted),
            _ => {}
        }
        drop(held);
        self.put_space(space);
    }

    /// The same for the shadow table of a space, if there is none.
    pub(super) fn listen_by_shadow(&self, space: &Space<C>) {
        let held = self.secondary.lock.take(&self.engine);
        if space.listener.get().is_none() && self.secondary.spaces[SHADOW].get().is_none() {
            self.bind(space, SHADOW);
        }
        drop(held);
    }

    /// Listens before it walks.
    fn bind(&self, space: &Space<C>, listener: usize) {
        context().tell(|| format!("has listener {listener} listen to space {}", space.number));
        if space.lock.is_taken() {
            self.hardware.saw(Sight::ListensMidway);
        }
        let view = space.context();
        self.secondary.spaces[listener].set(Some((space.number, view.id())));
        space.listener.set(Some(listener));
        let Some(walk) = context().walk() else {
            return;
        };
        if listener != SHADOW {
            self.hardware.devices.borrow_mut()[listener].bound = Some(Bound {
                space: space.number,
                root: space.root,
                life: space.life,
                walk,
                walks: false,
            });
        }
        (self.engine.secondary_tlbs()).listen(&*view, listener as u64);
        match self.hardware.devices.borrow_mut().get_mut(listener) {
            Some(device) => {
                if let (Some(bound), Some(now)) = (&mut device.bound, context().walk()) {
                    bound.walk.join(&now);
                    bound.walks = true;
                }
            }
            None => self.secondary.shadow.begin(space.number),
        }
    }

    /// It walks no more before it stops to listen.
    fn unbind(&self, space: &Space<C>, listener: usize) {
        context().tell(|| format!("ends listener {listener}"));
        self.stop(listener);
        (self.engine.secondary_tlbs()).unlisten(&*space.context());
        self.forget_listener(space, listener);
    }

    fn stop(&self, listener: usize) {
        match listener {
            SHADOW => self.with_shadow(Shadow::end),
            device => self.hardware.stop_device(device),
        }
    }

    fn forget_listener(&self, space: &Space<C>, listener: usize) {
        if listener != SHADOW {
            self.hardware.free_device(listener);
        }
        self.secondary.spaces[listener].set(None);
        space.listener.set(None);
    }

    /// The space is over: whoever listens lets go of its tables.
    pub(super) fn release_listener(&self, space: &Space<C>) {
        let Some(listener) = space.listener.get() else {
            return;
        };
        let held = self.secondary.lock.take(&self.engine);
        let view = space.context();
        while self.engine.secondary_tlbs().release(&*view).is_err() {
            self.hardware.saw(Sight::ReleaseFailed);
        }
        self.forget_listener(space, listener);
        drop(held);
    }

    /// What a promise that has ended covered, nobody keeps.
    pub(super) fn check_listeners(&self, space: u64) {
        let listens = |listener: usize| {
            let of = self.secondary.spaces[listener].get();
            of.is_some_and(|(number, _)| number == space)
        };
        for device in (0..SHADOW).filter(|device| listens(*device)) {
            let outcome = self.hardware.check_device(device);
            self.insist(
                outcome.map_err(|(kind, story)| (kind, format!("device {device}: {story}"))),
            );
        }
        if listens(SHADOW) {
            self.check_shadow();
        }
    }

    /// Waits for a flush whatever listeners do.
    pub(super) fn wait<H>(&self, ticket: FlushTicket<'_, SimPlatform<C>, H>) -> H {
        self.wait_by(|| ticket.try_wait())
    }

    /// The same for one that another task has submitted.
    pub(super) fn wait_pending<H>(&self, pending: PendingFlush<'_, SimPlatform<C>, H>) -> H {
        self.wait_by(|| pending.try_wait())
    }

    fn wait_by<'a, H>(&self, wait: impl FnOnce() -> Outcome<'a, C, H>) -> H {
        let task = context().task();
        self.secondary.may_fail.borrow_mut().insert(task);
        let mut outcome = wait();
        let held = loop {
            match outcome {
                Ok(held) => break held,
                Err(kept) if self.secondary.fails_again() => {
                    self.hardware.saw(Sight::SecondaryRetried);
                    outcome = kept.retry();
                }
                Err(kept) => {
                    context().tell(|| "resets all devices".to_owned());
                    self.hardware.saw(Sight::SecondaryReset);
                    (0..DEVICES.len()).for_each(|device| self.hardware.reset_device(device));
                    // SAFETY: 1. they keep nothing, and have seen the change.
                    break unsafe { kept.release() };
                }
            }
        };
        self.secondary.may_fail.borrow_mut().remove(&task);
        held
    }

    /// Whether another CPU has the space loaded to which a listener listens.
    fn is_loaded_elsewhere(&self, space: u64) -> bool {
        let me = context().cpu();
        let others = (0..self.current.len()).filter(|cpu| *cpu != me);
        let mut loaded = others.filter_map(|cpu| self.current[cpu].borrow().clone());
        loaded.any(|loaded| loaded.number == space)
    }
}

impl<C: Capacity> Listeners for &World<C> {
    fn begin(
        &self,
        listener: u64,
        request: &FlushRequest,
        before: Option<NonZeroU64>,
    ) -> Option<NonZeroU64> {
        if context().with(|state| state.me().interrupts_on) {
            let story = "a listener is told of a flush with interrupts on".to_owned();
            context().fail(FailureKind::Other, story);
        }
        context().event();
        let listener = listener as usize;
        let Some((number, name)) = self.secondary.spaces[listener].get() else {
            let story = format!("listener {listener} is told of a flush, and does not listen");
            context().fail(FailureKind::Other, story);
        };
        if request.space() != Some(name) {
            let story = format!("listener {listener} of space {number} is told of {request:?}");
            context().fail(FailureKind::Other, story);
        }
        let sight = match self.is_loaded_elsewhere(number) {
            true => Sight::ToldBesideTargets,
            false => Sight::ToldAlone,
        };
        self.hardware.saw(sight);
        context().tell(|| format!("tells listener {listener} of {request:?}"));
        if listener == SHADOW {
            self.with_shadow(|shadow| shadow.drop_named(request));
            return before;
        }
        if !self.hardware.devices.borrow()[listener].heeds(request) {
            self.hardware.saw(Sight::NotHeeded);
            return before;
        }
        let now = context().walk()?;
        Some((self.hardware).tell_device(listener, request, now, before))
    }

    fn finish(&self, token: NonZeroU64) -> SecondaryFlush {
        context().event();
        let open = self.hardware.open_notices(token);
        if open.is_empty() {
            return SecondaryFlush::Done;
        }
        let may_fail = self.secondary.may_fail.borrow().contains(&context().task());
        match World::<C>::ask(3 + usize::from(may_fail)) {
            0 => {
                self.hardware.finish_notices(&open);
                SecondaryFlush::Done
            }
            1 | 2 => {
                self.hardware.saw(Sight::SecondaryBusy);
                SecondaryFlush::Busy
            }
            _ => SecondaryFlush::Failed,
        }
    }

    fn release(&self, listener: u64) -> Result<(), SecondaryFailed> {
        context().event();
        if World::<C>::ask(2) > 0 {
            return Err(SecondaryFailed);
        }
        self.stop(listener as usize);
        self.hardware.saw(Sight::ListenerReleased);
        Ok(())
    }

    fn see_back_end(&self, request: &FlushRequest, everywhere: bool) {
        let space = request.space();
        let is_known = |name| self.all_spaces.borrow().iter().any(|it| it.name == name);
        if !space.is_none_or(is_known) {
            let story = format!("a back end is asked for {space:?}, which is no space");
            context().fail(FailureKind::Other, story);
        }
        let mut spaces = self.secondary.spaces.iter().filter_map(Cell::get);
        if spaces.any(|(_, name)| Some(name) == space) {
            self.hardware.saw(match everywhere {
                true => Sight::ToldBesideEverywhere,
                false => Sight::ToldBesideBackEnd,
            });
        }
    }
}
