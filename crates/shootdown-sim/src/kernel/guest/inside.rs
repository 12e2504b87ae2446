//! What a virtual CPU does in guest mode: loads and stores, each of them judged, and changes of its own page tables.

use shootdown::Capacity;
use shootdown::sim::Ordering;

use crate::kernel::World;
use crate::kernel::guest::adversary::Found;
use crate::kernel::guest::enter::Exit;
use crate::kernel::guest::layout::{GUEST_PAGES, VIRTUAL_PAGES};
use crate::kernel::guest::tlb::Combined;
use crate::kernel::guest::vm::{VirtualCpu, Vm};
use crate::kernel::sightings::Sight;
use crate::kernel::theme::Draw;
use crate::machine::context;
use crate::oracle::Mark;

/// A guest runs for so many steps, at most.
const LONGEST_STAY: usize = 10;

impl<C: Capacity> World<C> {
    /// Guest mode, until something ends it.
    pub(super) fn live_in_guest(&self, vm: &Vm<C>, vcpu: &VirtualCpu, draw: &mut Draw) -> Exit {
        for _ in 0..draw.below(LONGEST_STAY) {
            context().work(1);
            if context().interrupt_ends_guest() {
                return Exit::Interrupted;
            }
            let virtual_page = draw.below(VIRTUAL_PAGES);
            let exit = match draw.below(8) {
                0 => {
                    self.move_virtual(vcpu, virtual_page, draw);
                    None
                }
                1 => self.ask_for_flush(vcpu, virtual_page, draw),
                choice => self.access_in_guest(vm, vcpu, virtual_page, choice < 5),
            };
            if let Some(exit) = exit {
                return exit;
            }
        }
        Exit::Idle
    }

    /// One access at one moment; what makes the guest leave if it does not go through.
    fn access_in_guest(
        &self,
        vm: &Vm<C>,
        vcpu: &VirtualCpu,
        virtual_page: usize,
        writes: bool,
    ) -> Option<Exit> {
        let entry = match self.find_in_guest(virtual_page)? {
            Found::Frame(entry) => entry,
            Found::Missing(page) => return Some(self.violation(page, writes)),
        };
        let leaf = entry.leaf;
        if writes && !leaf.writable {
            return Some(self.violation(leaf.page, writes));
        }
        let verb = if writes { "stores to" } else { "loads from" };
        context().tell(|| format!("in guest {}, {verb} {entry:?}", vm.number));
        self.check_guest_access(vm, vcpu, entry, writes);
        self.check_guest_usable(vm, vcpu);
        self.use_frame(leaf.frame);
        if writes {
            vm.log.note_write(leaf.page);
        }
        None
    }

    fn violation(&self, page: usize, writes: bool) -> Exit {
        self.hardware.guests.borrow_mut()[context().cpu()].drop_nested(page);
        Exit::Violation { page, writes }
    }

    fn find_in_guest(&self, virtual_page: usize) -> Option<Found> {
        let outcome = context().with(|state| {
            let cpu = state.running;
            let explore = state.explore()?;
            let (memory, chooser) = (&mut explore.memory, &mut explore.chooser);
            Some(
                self.hardware
                    .translate_guest(memory, chooser, cpu, virtual_page),
            )
        });
        self.insist(outcome?)
    }

    fn check_guest_access(&self, vm: &Vm<C>, vcpu: &VirtualCpu, entry: Combined, writes: bool) {
        let Combined { virtual_page, leaf } = entry;
        let book = self.hardware.book.borrow();
        let outcome = book
            .check_access(vm.number, leaf.page, leaf.frame, writes)
            .and_then(|()| book.check_access(vcpu.number, virtual_page, leaf.page as u16, false));
        drop(book);
        self.insist(outcome);
    }

    /// The guest could use any translation that is cached here under its tag, instead of the one that it does use.
    fn check_guest_usable(&self, vm: &Vm<C>, vcpu: &VirtualCpu) {
        let guests = self.hardware.guests.borrow();
        let tlb = &guests[context().cpu()];
        for entry in tlb.combined() {
            self.check_guest_access(vm, vcpu, entry, entry.leaf.writable);
        }
        for leaf in tlb.leaves() {
            let book = self.hardware.book.borrow();
            self.insist(book.check_access(vm.number, leaf.page, leaf.frame, leaf.writable));
        }
    }

    /// The guest has a page of its own lead elsewhere, and flushes it here, or all.
    fn move_virtual(&self, vcpu: &VirtualCpu, virtual_page: usize, draw: &mut Draw) {
        let mark = self.change_virtual(vcpu, virtual_page, draw);
        context().work(1);
        let named = draw.random.bool().then_some(virtual_page);
        self.hardware.guests.borrow_mut()[context().cpu()].flush_virtual(named);
        self.hardware.saw(Sight::GuestFlushedItself);
        self.withdraw_virtual(vcpu, virtual_page, mark);
    }

    /// The same, but it has the host flush.
    fn ask_for_flush(
        &self,
        vcpu: &VirtualCpu,
        virtual_page: usize,
        draw: &mut Draw,
    ) -> Option<Exit> {
        let mark = self.change_virtual(vcpu, virtual_page, draw);
        Some(Exit::AsksForFlush { virtual_page, mark })
    }

    fn change_virtual(&self, vcpu: &VirtualCpu, virtual_page: usize, draw: &mut Draw) -> Mark {
        let page = draw.page() % GUEST_PAGES;
        let mark = self.mark();
        let mut book = self.hardware.book.borrow_mut();
        book.promise_inside(vcpu.number, virtual_page, page as u16, true);
        drop(book);
        context().tell(|| format!("has virtual page {virtual_page} lead to {page}"));
        // ORDERING: Release, as entries of the host's tables.
        vcpu.tables[virtual_page].store(page as u64, Ordering::Release);
        mark
    }

    /// The guest has dropped where a page of its own led before.
    pub(super) fn withdraw_virtual(&self, vcpu: &VirtualCpu, virtual_page: usize, mark: Mark) {
        let mut book = self.hardware.book.borrow_mut();
        book.withdraw(vcpu.number, virtual_page, mark, context().events());
    }
}
