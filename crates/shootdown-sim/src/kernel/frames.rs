//! [`Frames`]: the frame allocator. What was freed last is taken first, so a frame that somebody still uses is soon
//! somebody else's.

use std::cell::RefCell;

use shootdown::Capacity;
use shootdown::sim::{Ordering, Plain};

use crate::kernel::guest::GuestTlb;
use crate::kernel::layout::{ENTRIES, FRAMES};
use crate::kernel::{Held, Lock, REGIONS, World};
use crate::machine::{FailureKind, context};
use crate::oracle::FrameKind;
use crate::walkthrough::Subject;

/// The free frames, and how many pages share each used one.
#[derive(Debug)]
pub(super) struct Frames {
    lock: Lock,
    free: RefCell<Vec<u16>>,
    sharers: RefCell<[u8; FRAMES]>,
}

impl Frames {
    pub(super) fn from(first: u16) -> Self {
        Self {
            lock: Lock::new(),
            free: RefCell::new((first..FRAMES as u16).rev().collect()),
            sharers: RefCell::new([0; FRAMES]),
        }
    }
}

impl<C: Capacity> World<C> {
    /// A frame for data, with one sharer; `None` when memory is full.
    pub(super) fn take_data(&self) -> Option<u16> {
        let frame = self.take(FrameKind::Data)?;
        self.frames.sharers.borrow_mut()[usize::from(frame)] = 1;
        Some(frame)
    }

    /// An empty table.
    pub(super) fn take_table(&self) -> Option<u16> {
        let frame = self.take(FrameKind::Table)?;
        for index in 0..ENTRIES {
            let cell = self.hardware.physical.entry(frame, index);
            // Nobody can walk it yet; the entry that will lead here publishes this.
            cell.store(0, Ordering::Relaxed);
        }
        Some(frame)
    }

    fn take(&self, kind: FrameKind) -> Option<u16> {
        let held = self.frames.lock.take(&self.engine);
        let frame = self.frames.free.borrow_mut().pop();
        if let Some(frame) = frame {
            self.hardware.book.borrow_mut().take(frame, kind);
            // The new owner clears it: whatever others did with it must be over, and known to be.
            context().plain(self.hardware.physical.content(frame), Plain::Write);
        }
        drop(held);
        frame
    }

    /// One more page maps the frame.
    pub(super) fn share(&self, frame: u16) {
        self.frames.sharers.borrow_mut()[usize::from(frame)] += 1;
    }

    /// Whether one page alone maps the frame.
    pub(super) fn is_sole(&self, frame: u16) -> bool {
        self.frames.sharers.borrow()[usize::from(frame)] == 1
    }

    /// A page that mapped the frame is gone, and so are its translations; frees it after the last.
    pub(super) fn release_data(&self, frame: u16) {
        let held = self.frames.lock.take(&self.engine);
        let sharers = &self.frames.sharers;
        sharers.borrow_mut()[usize::from(frame)] -= 1;
        if sharers.borrow()[usize::from(frame)] == 0 {
            self.release(frame, &held);
        }
        drop(held);
    }

    /// Frees a table, which no CPU may be able to walk any more.
    pub(super) fn release_table(&self, table: u16) {
        let walker = (self.hardware.tlbs.borrow().iter()).position(|tlb| tlb.reaches_table(table));
        if let Some(walker) = walker {
            let story =
                format!("the table in frame {table} is freed, and cpu{walker} can still walk it");
            self.fail_walk(table, story);
        }
        self.check_no_device_walks(table);
        self.check_not_walked(table);
        self.check_unlinked(table);
        self.check_no_guest_walks(table);
        let held = self.frames.lock.take(&self.engine);
        self.release(table, &held);
        drop(held);
    }

    /// The run is over and all spaces are gone: only the kernel has frames, a root, a table and what it maps.
    pub(super) fn check_all_freed(&self) -> Result<(), String> {
        let host_roots = self.host_roots.count_frames();
        let apart = host_roots + self.forgotten.count_frames();
        let kernel = 2 + apart + self.kernel_pages.borrow().iter().flatten().count();
        let free = self.frames.free.borrow().len();
        match FRAMES.checked_sub(kernel + free) {
            Some(0) => Ok(()),
            Some(lost) => Err(format!("{lost} frames never came back")),
            None => Err(format!(
                "{kernel} frames are kept and {free} free, of {FRAMES}"
            )),
        }
    }

    fn fail_walk(&self, table: u16, story: String) -> ! {
        self.hardware.book.borrow().blame(Subject::Table(table));
        context().fail(FailureKind::FreedTable, story)
    }

    fn check_no_device_walks(&self, table: u16) {
        let devices = self.hardware.devices.borrow();
        if let Some(walker) = devices.iter().position(|it| it.reaches_table(table)) {
            let story = format!(
                "the table in frame {table} is freed, and device {walker} can still walk it"
            );
            self.fail_walk(table, story);
        }
    }

    /// No CPU is reading it without its lock.
    fn check_not_walked(&self, table: u16) {
        let walker = self
            .walked
            .iter()
            .position(|walked| walked.get() == Some(table));
        if let Some(walker) = walker {
            let story =
                format!("the table in frame {table} is freed, and cpu{walker} is reading it");
            self.fail_walk(table, story);
        }
    }

    /// Has a look under the allocator's lock.
    pub(super) fn look_at_frames(&self) {
        drop(self.frames.lock.take(&self.engine));
    }

    /// No root that is loaded leads to the table, whoever walks it now.
    fn check_unlinked(&self, table: u16) {
        for (cpu, tlb) in self.hardware.tlbs.borrow().iter().enumerate() {
            let root = tlb.root().0;
            let mut entries =
                (0..REGIONS).map(|region| self.hardware.physical.newest(root, region));
            if entries.any(|entry| entry.frame() == Some(table)) {
                let story = format!(
                    "the table in frame {table} is freed, and the root in frame {root} that cpu{cpu} has loaded leads to it"
                );
                self.fail_walk(table, story);
            }
        }
    }

    /// No guest that runs can come through the table.
    fn check_no_guest_walks(&self, table: u16) {
        let guests = self.hardware.guests.borrow();
        let leads_there = |root| {
            let mut entries =
                (0..REGIONS).map(|region| self.hardware.physical.newest(root, region));
            entries.any(|entry| entry.frame() == Some(table))
        };
        let walks =
            |guest: &GuestTlb| guest.reaches_table(table) || guest.root().is_some_and(leads_there);
        if let Some(walker) = guests.iter().position(walks) {
            let story = format!(
                "the table in frame {table} is freed, and the guest on cpu{walker} can still walk it"
            );
            self.fail_walk(table, story);
        }
    }

    fn release(&self, frame: u16, _held: &Held<'_>) {
        self.hardware.book.borrow_mut().release(frame);
        self.frames.free.borrow_mut().push(frame);
    }
}
