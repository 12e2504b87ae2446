//! Who keeps translations of a space, a guest or the kernel's part besides CPUs: devices, and a [shadow table](Shadow). What the host does with them, and what the engine tells them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::num::NonZeroU64;

use shootdown::secondary::{Held as HeldBack, SecondaryFailed, SecondaryFlush};
use shootdown::{
    AddressSpace, Capacity, FlushScope, FlushTicket, SpaceId, guest::GuestSpace,
    reclaim::PendingFlush, remote::FlushRequest,
};

use crate::explore::Question;
use crate::kernel::device::Bound;
use crate::kernel::guest::Vm;
use crate::kernel::layout::KERNEL;
use crate::kernel::shadow::Shadow;
use crate::kernel::theme::Draw;
use crate::kernel::{Lock, Sight, Space, World};
use crate::machine::{FailureKind, Listeners, SimPlatform, context};

/// Which devices keep entries of root tables only.
const DEVICES: [bool; 3] = [false, false, true];
/// The listener that is the shadow table; the others are devices.
pub(super) const SHADOW: usize = DEVICES.len();
const LISTENERS: usize = DEVICES.len() + 1;

/// The number of some tables, and their [name](Tables::name).
type Listened = (u64, Option<SpaceId>);

/// The listeners of one machine.
#[derive(Default, Debug)]
pub(super) struct Secondary {
    /// Protects which tables each listens to.
    lock: Lock,
    tables: [Cell<Option<Listened>>; LISTENERS],
    /// The one of the kernel's part.
    of_kernel: Cell<Option<usize>>,
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

/// What somebody may listen to.
pub(super) struct Tables<'s, C: Capacity> {
    number: u64,
    root: u16,
    life: u32,
    scope: FlushScope<'s, C>,
    lock: &'s Lock,
    /// Who listens.
    listener: &'s Cell<Option<usize>>,
}

impl<C: Capacity> Tables<'_, C> {
    /// By which requests name them; the kernel's part they do not name.
    fn name(&self) -> Option<SpaceId> {
        match self.scope {
            FlushScope::Space(space) => Some(space.id()),
            FlushScope::Guest(guest) => Some(guest.id()),
            FlushScope::Kernel => None,
        }
    }
}

impl<C: Capacity> Space<C> {
    pub(super) fn tables<'s>(&'s self, view: &'s AddressSpace<C>) -> Tables<'s, C> {
        Tables {
            number: self.number,
            root: self.root,
            life: self.life,
            scope: view.into(),
            lock: &self.lock,
            listener: &self.listener,
        }
    }
}

impl<C: Capacity> Vm<C> {
    pub(super) fn tables<'s>(&'s self, view: &'s GuestSpace<C>) -> Tables<'s, C> {
        Tables {
            number: self.number,
            root: self.root,
            life: self.life,
            scope: view.into(),
            lock: &self.lock,
            listener: &self.listener,
        }
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

    /// Has somebody listen to a space, to a guest or the kernel's part, or nobody any more.
    pub(super) fn change_listener(&self, draw: &mut Draw) {
        match draw.below(6) {
            0 => {
                let life = self.hardware.book.borrow().life_of_table(Self::KERNEL_ROOT);
                let tables = Tables {
                    number: KERNEL,
                    root: Self::KERNEL_ROOT,
                    life: self.insist(life),
                    scope: FlushScope::Kernel,
                    lock: &self.kernel_lock,
                    listener: &self.secondary.of_kernel,
                };
                self.change_listener_of(&tables, DEVICES.len(), draw);
            }
            1 if draw.has_guests() => {
                if let Some(vm) = self.get_vm(draw.vm_place()) {
                    self.change_listener_of(&vm.tables(&vm.space()), DEVICES.len(), draw);
                    self.put_vm(vm);
                }
            }
            _ => {
                if let Some(space) = self.get_space(draw.place()) {
                    self.change_listener_of(&space.tables(&space.context()), LISTENERS, draw);
                    self.put_space(space);
                }
            }
        }
    }

    /// The same, by one of the first `listeners`.
    fn change_listener_of(&self, tables: &Tables<'_, C>, listeners: usize, draw: &mut Draw) {
        let (wanted, ends) = (draw.below(listeners), draw.once_in(3));
        let held = self.secondary.lock.take(&self.engine);
        match tables.listener.get() {
            Some(listener) if ends => self.unbind(tables, listener),
            None if self.secondary.tables[wanted].get().is_none() => self.bind(tables, wanted),
            _ => {}
        }
        drop(held);
    }

    /// The same for the shadow table of a space, if there is none.
    pub(super) fn listen_by_shadow(&self, space: &Space<C>) {
        let held = self.secondary.lock.take(&self.engine);
        if space.listener.get().is_none() && self.secondary.tables[SHADOW].get().is_none() {
            self.bind(&space.tables(&space.context()), SHADOW);
        }
        drop(held);
    }

    /// Listens before it walks.
    fn bind(&self, tables: &Tables<'_, C>, listener: usize) {
        let number = tables.number;
        context().tell(|| format!("has listener {listener} listen to tables {number}"));
        if tables.lock.is_taken() {
            self.hardware.saw(Sight::ListensMidway);
        }
        self.secondary.tables[listener].set(Some((number, tables.name())));
        tables.listener.set(Some(listener));
        let Some(walk) = context().walk() else {
            return;
        };
        if listener != SHADOW {
            self.hardware.devices.borrow_mut()[listener].bound = Some(Bound {
                space: number,
                root: tables.root,
                life: tables.life,
                walk,
                walks: false,
            });
        }
        (self.engine.secondary_tlbs()).listen(tables.scope, listener as u64);
        match self.hardware.devices.borrow_mut().get_mut(listener) {
            Some(device) => {
                if let (Some(bound), Some(now)) = (&mut device.bound, context().walk()) {
                    bound.walk.join(&now);
                    bound.walks = true;
                }
            }
            None => self.secondary.shadow.begin(number),
        }
    }

    /// It walks no more before it stops to listen.
    fn unbind(&self, tables: &Tables<'_, C>, listener: usize) {
        context().tell(|| format!("ends listener {listener}"));
        self.stop(listener);
        (self.engine.secondary_tlbs()).unlisten(tables.scope);
        self.forget_listener(tables, listener);
    }

    fn stop(&self, listener: usize) {
        match listener {
            SHADOW => self.with_shadow(Shadow::end),
            device => self.hardware.stop_device(device),
        }
    }

    fn forget_listener(&self, tables: &Tables<'_, C>, listener: usize) {
        if listener != SHADOW {
            self.hardware.free_device(listener);
        }
        self.secondary.tables[listener].set(None);
        tables.listener.set(None);
    }

    /// A space or guest is over: whoever listens lets go of its tables.
    pub(super) fn release_listener(&self, tables: &Tables<'_, C>) {
        let Some(listener) = tables.listener.get() else {
            return;
        };
        let held = self.secondary.lock.take(&self.engine);
        while (self.engine.secondary_tlbs())
            .release(tables.scope)
            .is_err()
        {
            self.hardware.saw(Sight::ReleaseFailed);
        }
        self.forget_listener(tables, listener);
        drop(held);
    }

    /// What a promise that has ended covered, nobody keeps.
    pub(super) fn check_listeners(&self, tables: u64) {
        let listens = |listener: usize| {
            let of = self.secondary.tables[listener].get();
            of.is_some_and(|(number, _)| number == tables)
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

    /// How a listener to these tables is told: beside a CPU that has them loaded, or alone.
    fn sight_of(&self, tables: u64, request: &FlushRequest) -> Sight {
        match request.space() {
            None => Sight::ToldOfKernel,
            _ if self.is_loaded_elsewhere(tables) => Sight::ToldBesideTargets,
            _ if (self.all_spaces.borrow().iter()).any(|space| space.number == tables) => {
                Sight::ToldAlone
            }
            _ => Sight::ToldOfGuest,
        }
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
        let Some((number, name)) = self.secondary.tables[listener].get() else {
            let story = format!("listener {listener} is told of a flush, and does not listen");
            context().fail(FailureKind::Other, story);
        };
        if request.space() != name {
            let story = format!("listener {listener} of tables {number} is told of {request:?}");
            context().fail(FailureKind::Other, story);
        }
        self.hardware.saw(self.sight_of(number, request));
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
        let mut tables = self.secondary.tables.iter().filter_map(Cell::get);
        if space.is_some() && tables.any(|(_, name)| name == space) {
            self.hardware.saw(match everywhere {
                true => Sight::ToldBesideEverywhere,
                false => Sight::ToldBesideBackEnd,
            });
        }
    }
}
