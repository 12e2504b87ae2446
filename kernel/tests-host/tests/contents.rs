//! Random operations on a few processes, compared byte by byte with a model that copies where the kernel shares: what a program reads,
//! which accesses it is refused, and what its file holds. Now and then there is hardly any frame, or the kernel's heap is full: what fails then changes
//! nothing. A failure names its seed.

mod support;

use shootdown_kernel_tests::errno::Errno;
use shootdown_kernel_tests::mm::file::{Copy, PageRange};
use shootdown_kernel_tests::mm::range::UserRange;
use shootdown_kernel_tests::mm::{Advice, AreaKind, Destination, FaultError, FileArea, Lending};
use shootdown_kernel_tests::mm::{MapError, MapRequest, MemoryFile, MemorySpace, PAGE_SIZE, Prot};
use shootdown_kernel_tests::mm::{SharedArea, SyncWhen, frames, lend};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use support::random::Random;
use support::{
    READ, REFUSED, Turn, WRITE, at, bytes, entry, exhaust, give_back, may_write, request,
};

const SEEDS: u64 = 200;
const STEPS: usize = 60;
/// Pages on both sides of each border between two tables, which are so many pages apart.
const FIRST: usize = 506;
const PAGES: usize = 12;
const BORDERS: usize = 3;
const TABLE_PAGES: usize = 512;
const HEAP: usize = 4 * TABLE_PAGES;
const HEAP_PAGES: usize = 6;
const MOST_PROCESSES: usize = 3;

/// The heap, which has nothing for calls of the kernel while it is full.
struct KernelHeap;

#[global_allocator]
static ALLOCATOR: KernelHeap = KernelHeap;

thread_local! {
    /// Whether calls find it full, and whether one is under way.
    static IS_FULL: Cell<bool> = const { Cell::new(false) };
    static IS_CALL: Cell<bool> = const { Cell::new(false) };
}

impl KernelHeap {
    fn refuses() -> bool {
        IS_FULL.get() && IS_CALL.get()
    }
}

// SAFETY: the system's, or none.
unsafe impl GlobalAlloc for KernelHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match Self::refuses() {
            true => std::ptr::null_mut(),
            // SAFETY: the caller's.
            false => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match Self::refuses() {
            true => std::ptr::null_mut(),
            // SAFETY: the caller's.
            false => unsafe { System.realloc(block, layout, size) },
        }
    }
}

/// A call of the kernel.
fn call<R>(work: impl FnOnce() -> R) -> R {
    IS_CALL.set(true);
    let result = work();
    IS_CALL.set(false);
    result
}

type Page = [u8; PAGE_SIZE];
const ZEROES: Page = [0; PAGE_SIZE];

/// What a page of a process shows.
#[derive(Clone, PartialEq)]
enum Shows {
    Own(Box<Page>),
    Shared(usize),
    File(usize),
}

impl Shows {
    fn nothing() -> Self {
        Self::Own(Box::new(ZEROES))
    }

    /// Whether an area may hold `next` behind this.
    fn is_before(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Own(_), Self::Own(_)) => true,
            (Self::Shared(one), Self::Shared(next)) | (Self::File(one), Self::File(next)) => {
                one + 1 == *next
            }
            _ => false,
        }
    }

    fn plus(&self, pages: usize) -> Self {
        match self {
            Self::Own(_) => Self::nothing(),
            Self::Shared(first) => Self::Shared(first + pages),
            Self::File(first) => Self::File(first + pages),
        }
    }
}

struct Process {
    space: Arc<MemorySpace>,
    pages: BTreeMap<usize, (Prot, Shows)>,
    /// Where its heap ends.
    heap: usize,
}

struct World {
    processes: Vec<Process>,
    shared: (SharedArea, BTreeMap<usize, Page>),
    file: Arc<MemoryFile>,
    /// The file's pages, also what programs have written behind its end.
    contents: BTreeMap<usize, Page>,
    size: usize,
    /// There are hardly any free frames, or the heap is full: what is allowed may fail, and changes nothing then.
    is_scarce: bool,
}

impl World {
    fn new(random: &mut Random) -> Self {
        let mut world = Self {
            processes: Vec::new(),
            shared: (SharedArea::new().unwrap(), BTreeMap::new()),
            file: MemoryFile::new("file", &[]).unwrap(),
            contents: BTreeMap::new(),
            size: 0,
            is_scarce: false,
        };
        world.resize(PAGES * PAGE_SIZE - 100);
        world.load(random);
        world.load(random);
        world
    }

    /// A process as a loader makes it.
    fn load(&mut self, random: &mut Random) {
        let process = Process {
            space: MemorySpace::new().unwrap(),
            pages: BTreeMap::new(),
            heap: at(HEAP),
        };
        process.space.set_heap_start(at(HEAP));
        self.add(process);
        let number = self.processes.len() - 1;
        // Where nothing is mapped, there are no tables either.
        for border in 0..BORDERS {
            if random.below(3) > 0 {
                self.map(number, random, (FIRST + border * TABLE_PAGES, PAGES));
            }
        }
        let process = &mut self.processes[number];
        let (kind, shows) = (AreaKind::Anonymous, Shows::nothing());
        process.map((FIRST, 2), Prot::READ, kind, &shows);
        let data = [random.byte() | 1; 100];
        let from = random.below(2 * PAGE_SIZE - data.len());
        process
            .space
            .write_initial(at(FIRST) + from, &data)
            .unwrap();
        for (offset, byte) in (from..).zip(data) {
            let (_, shows) = process
                .pages
                .get_mut(&(FIRST + offset / PAGE_SIZE))
                .unwrap();
            let Shows::Own(page) = shows else {
                unreachable!()
            };
            page[offset % PAGE_SIZE] = byte;
        }
    }

    fn add(&mut self, process: Process) {
        if self.processes.len() == MOST_PROCESSES {
            self.processes.remove(0);
        }
        self.processes.push(process);
    }

    fn fork(&mut self, of: usize) {
        if IS_FULL.get() {
            // A new space is more than fits.
            return;
        }
        let parent = &self.processes[of];
        let forked = parent.space.fork();
        assert!(forked.is_ok() || self.is_scarce);
        let Ok(space) = forked else { return };
        let child = Process {
            space,
            pages: parent.pages.clone(),
            heap: parent.heap,
        };
        self.add(child);
    }

    /// What a page is expected to hold; `None` behind the file's end.
    fn expected<'a>(&'a self, shows: &'a Shows) -> Option<&'a Page> {
        match shows {
            Shows::Own(page) => Some(page),
            Shows::Shared(index) => Some(self.shared.1.get(index).unwrap_or(&ZEROES)),
            Shows::File(index) if index * PAGE_SIZE >= self.size => None,
            Shows::File(index) => Some(self.contents.get(index).unwrap_or(&ZEROES)),
        }
    }

    /// The same, to be written to.
    fn written(&mut self, process: usize, page: usize) -> &mut Page {
        match &mut self.processes[process].pages.get_mut(&page).unwrap().1 {
            Shows::Own(page) => page,
            Shows::Shared(index) => self.shared.1.entry(*index).or_insert(ZEROES),
            Shows::File(index) => self.contents.entry(*index).or_insert(ZEROES),
        }
    }

    /// A program stores a byte in each page of a stretch, as far as it may.
    fn store(&mut self, process: usize, random: &mut Random) {
        let (first, count) = match random.below(4) {
            0 => (HEAP + random.below(HEAP_PAGES), 1),
            _ => random.range(),
        };
        for page in first..first + count {
            let (offset, byte) = (random.below(PAGE_SIZE), random.byte());
            if self.may_store(process, page) {
                bytes(&self.processes[process].space, page)[offset] = byte;
                self.written(process, page)[offset] = byte;
            }
        }
    }

    /// As a processor finds out, with the faults that it takes.
    fn may_store(&self, process: usize, page: usize) -> bool {
        let Process { space, pages, .. } = &self.processes[process];
        let known = pages.get(&page).filter(|(prot, _)| prot.write());
        let is_allowed = known.is_some_and(|(_, shows)| self.expected(shows).is_some());
        while !may_write(space, page) {
            let is_there = entry(space, page).is_some();
            let fault = call(|| space.fault(at(page), if is_there { REFUSED } else { WRITE }));
            if fault.is_err() {
                let is_excused = self.is_scarce && fault == Err(FaultError::OutOfMemory);
                assert!(is_excused || !is_allowed, "page {page}: {fault:?}");
                return false;
            }
            assert!(is_allowed, "page {page}");
        }
        assert!(is_allowed, "page {page} may be written to");
        true
    }

    /// A server reads pages that the program lends, or writes to them.
    fn lend(&mut self, process: usize, random: &mut Random, lending: Lending) {
        let (first, count) = random.range();
        let Process { space, pages, .. } = &self.processes[process];
        let is_writing = lending == Lending::Writing;
        let is_lent = |page| {
            pages.get(&page).is_some_and(|(prot, shows)| {
                let is_file = matches!(shows, Shows::File(_));
                let may = if is_writing {
                    prot.write() && !is_file
                } else {
                    prot.any()
                };
                may && self.expected(shows).is_some()
            })
        };
        let is_all = (first..first + count).all(is_lent);
        let range = UserRange::new(at(first), count * PAGE_SIZE).unwrap();
        let mut shares = Vec::with_capacity(count);
        let outcome = call(|| space.lend(range, lending, &mut shares, || false));
        let is_excused = self.is_scarce && outcome == Err(Errno::ENOMEM);
        assert!(is_excused || outcome.is_ok() == is_all, "{outcome:?}");
        for (page, share) in (first..).zip(&shares) {
            let frame = share.address().to_direct().cast::<Page>();
            // SAFETY: a frame of the simulated memory, of which we hold a share.
            let frame = unsafe { &mut *frame };
            let (_, shows) = &self.processes[process].pages[&page];
            assert!(self.expected(shows) == Some(&*frame), "page {page} is lent");
            if is_writing {
                let byte = random.byte();
                frame[7] = byte;
                self.written(process, page)[7] = byte;
            }
        }
        lend::release(&mut shares);
    }

    fn map(&mut self, process: usize, random: &mut Random, range: (usize, usize)) {
        let offset = random.below(PAGES / 4);
        let (kind, shows) = match random.below(4) {
            0 => (AreaKind::Anonymous, Shows::nothing()),
            1 => (AreaKind::Shared(self.shared.0.clone()), Shows::Shared(0)),
            _ => {
                let part = FileArea::new(self.file.clone(), offset * PAGE_SIZE, true);
                (AreaKind::SharedFile(part), Shows::File(offset))
            }
        };
        self.processes[process].map(range, Prot::READ_WRITE, kind, &shows);
    }

    fn resize(&mut self, size: usize) {
        let resized = call(|| self.file.change().set_size(size as u64));
        assert!(resized.is_ok() || IS_FULL.get(), "{resized:?}");
        if resized.is_err() {
            return;
        }
        self.clear_behind(self.size.min(size));
        self.size = size;
    }

    /// What the file has behind `end` is gone.
    fn clear_behind(&mut self, end: usize) {
        self.contents.retain(|index, _| index * PAGE_SIZE < end);
        if let Some(page) = self.contents.get_mut(&(end / PAGE_SIZE)) {
            page[end % PAGE_SIZE..].fill(0);
        }
    }

    /// A call writes to the file.
    fn write(&mut self, random: &mut Random) {
        let offset = random.below(PAGES * PAGE_SIZE);
        let most = *random.pick(&[300, 3 * PAGE_SIZE]);
        let data = vec![random.byte(); 1 + random.below(most)];
        let outcome = call(|| self.file.change().write(offset as u64, &data));
        let done = outcome.unwrap_or(0);
        assert!(done == data.len() || self.is_scarce, "{outcome:?}");
        if done > 0 && offset + done > self.size {
            self.clear_behind(self.size);
            self.size = offset + done;
        }
        for place in offset..offset + done {
            let page = self.contents.entry(place / PAGE_SIZE).or_insert(ZEROES);
            page[place % PAGE_SIZE] = data[0];
        }
    }

    /// A step, one in eight of which finds hardly any frame, and two in eight a full heap.
    fn step(&mut self, random: &mut Random) {
        let mut hoard = Vec::new();
        match random.below(8) {
            0 => {
                hoard = exhaust();
                hoard.drain(..random.below(5)).for_each(frames::free);
            }
            1 | 2 => IS_FULL.set(true),
            _ => {}
        }
        self.is_scarce = !hoard.is_empty() || IS_FULL.get();
        self.act(random);
        IS_FULL.set(false);
        give_back(hoard);
    }

    fn act(&mut self, random: &mut Random) {
        let process = random.below(self.processes.len());
        match random.below(25) {
            0..2 => {
                let range = random.range();
                self.map(process, random, range);
            }
            2..9 => self.store(process, random),
            9 => match random.below(3) {
                0 if !self.is_scarce => self.load(random),
                _ => self.fork(process),
            },
            10 => self.processes[process].brk(random),
            11 => self.lend(process, random, Lending::Reading),
            12 => self.lend(process, random, Lending::Writing),
            13 => {
                // Often within a page.
                let around = self.size.saturating_sub(1000) + random.below(2000);
                let anywhere = random.below(PAGES * PAGE_SIZE);
                let size = *random.pick(&[anywhere, around]);
                self.resize(size);
            }
            14 => self.write(random),
            15 => assert!(call(|| self.file.sync(PageRange::WHOLE)).is_ok() || self.is_scarce),
            16 => assert!(call(|| self.file.evict()).is_ok() || self.is_scarce),
            _ => self.processes[process].step(random, self.is_scarce),
        }
    }

    /// Everything that can be seen; some of the absent pages of one process are asked for, which makes tables for them.
    fn compare(&self, random: &mut Random, is_synced: bool) {
        let asked = random.below(2 * self.processes.len());
        let asked_pages = random.range();
        for (number, Process { space, pages, .. }) in self.processes.iter().enumerate() {
            let borders = (0..BORDERS).map(|border| FIRST + border * TABLE_PAGES);
            let pages_of = borders.flat_map(|first| first..first + PAGES);
            for page in pages_of.chain(HEAP..HEAP + HEAP_PAGES) {
                let known = pages.get(&page).filter(|(prot, _)| prot.any());
                let wanted = known.and_then(|(prot, shows)| Some((prot, self.expected(shows)?)));
                let is_asked = (asked_pages.0..asked_pages.0 + asked_pages.1).contains(&page);
                if number == asked && is_asked && entry(space, page).is_none() {
                    assert_eq!(
                        space.fault(at(page), READ).is_ok(),
                        wanted.is_some(),
                        "page {page}"
                    );
                }
                match (entry(space, page), wanted) {
                    (Some(_), Some((prot, wanted))) => {
                        assert!(prot.write() || !may_write(space, page), "page {page}");
                        assert!(bytes(space, page) == wanted, "page {page} of {number}");
                    }
                    (Some(_), None) => panic!("page {page} of {number} may be read"),
                    (None, _) => {}
                }
            }
        }
        self.compare_file(Copy::InMemory);
        if is_synced {
            self.compare_file(Copy::Stored);
        }
    }

    fn compare_file(&self, copy: Copy) {
        for start in (0..self.size + 1).step_by(PAGE_SIZE) {
            let mut found = [0x5a; PAGE_SIZE];
            let len = self.file.read(copy, start as u64, &mut found);
            assert_eq!(len, (self.size - start).min(PAGE_SIZE), "{copy:?}");
            let wanted = self.contents.get(&(start / PAGE_SIZE)).unwrap_or(&ZEROES);
            assert!(found[..len] == wanted[..len], "{copy:?} at {start:#x}");
        }
    }
}

impl Process {
    fn map(&mut self, (first, count): (usize, usize), prot: Prot, kind: AreaKind, shows: &Shows) {
        let request = MapRequest {
            prot,
            kind,
            ..request(at(first), count)
        };
        let mapped = call(|| self.space.map(request));
        assert!(mapped.is_ok() || IS_FULL.get(), "{mapped:?}");
        if mapped.is_err() {
            return;
        }
        let new = (0..count).map(|index| (first + index, (prot, shows.plus(index))));
        self.pages.extend(new);
    }

    /// What one process does alone.
    fn step(&mut self, random: &mut Random, is_scarce: bool) {
        let (first, count) = random.range();
        let (addr, len) = (at(first), count * PAGE_SIZE);
        let is_whole = (first..first + count).all(|page| self.pages.contains_key(&page));
        match random.below(8) {
            0 => {
                let unmapped = call(|| self.space.unmap(addr, len));
                assert!(unmapped.is_ok() || IS_FULL.get(), "{unmapped:?}");
                if unmapped.is_ok() {
                    self.pages
                        .retain(|page, _| !(first..first + count).contains(page));
                }
            }
            1 | 2 => {
                let any = Prot::from_linux(random.below(8)).unwrap();
                let prot = *random.pick(&[any, Prot::NONE, Prot::READ_WRITE]);
                let is_done = call(|| self.space.protect(addr, len, prot)).is_ok();
                assert!(is_done == is_whole || IS_FULL.get());
                let known = self.pages.range_mut(first..first + count);
                known
                    .filter(|_| is_done)
                    .for_each(|(_, page)| page.0 = prot);
            }
            3 => {
                let outcome = call(|| self.space.advise(addr, len, Advice::Discard));
                assert_eq!(outcome.is_ok(), is_whole);
                for (_, (_, shows)) in self.pages.range_mut(first..first + count) {
                    if let Shows::Own(page) = shows {
                        **page = ZEROES;
                    }
                }
            }
            4 => {
                let outcome = call(|| self.space.sync(addr, len, SyncWhen::Now));
                assert!(outcome.is_ok() == is_whole || is_scarce, "{outcome:?}");
            }
            _ => self.remap(random, (first, count), is_whole, is_scarce),
        }
    }

    fn remap(
        &mut self,
        random: &mut Random,
        (first, count): (usize, usize),
        is_whole: bool,
        is_scarce: bool,
    ) {
        let (to, new_count) = random.range();
        let is_one_area = is_whole
            && (first + 1..first + count).all(|page| {
                let (before, here) = (&self.pages[&(page - 1)], &self.pages[&page]);
                before.0 == here.0 && before.1.is_before(&here.1)
            });
        let fixed = Destination::Fixed(at(to));
        let destination = *random.pick(&[fixed, fixed, Destination::Stay, Destination::MayMove]);
        let sizes = (count * PAGE_SIZE, new_count * PAGE_SIZE);
        let outcome = call(|| self.space.remap(at(first), sizes.0, sizes.1, destination));
        if destination != fixed {
            let is_excused = is_scarce && outcome == Err(MapError::NoMemory);
            let may_move = destination == Destination::MayMove;
            let sizes = (count, new_count);
            return self.resized((first, sizes), outcome, is_one_area, (may_move, is_excused));
        }
        let is_apart = first + count <= to || to + new_count <= first;
        let is_allowed = is_one_area && is_apart;
        if is_allowed && is_scarce && outcome == Err(MapError::NoMemory) {
            // As on Linux, what was in the way is lost, if it came to that.
            let space = &self.space;
            let is_there = |page| space.advise(at(page), PAGE_SIZE, Advice::Ignore).is_ok();
            self.pages
                .retain(|&page, _| !(to..to + new_count).contains(&page) || is_there(page));
            return;
        }
        assert_eq!(outcome.is_ok(), is_allowed, "{outcome:?}");
        if outcome.is_err() {
            return;
        }
        let old: Vec<_> = (first..first + count)
            .map(|page| self.pages.remove(&page).unwrap())
            .collect();
        for index in 0..new_count {
            let new = match old.get(index) {
                Some(moved) => moved.clone(),
                None => (old[0].0, old[0].1.plus(index)),
            };
            self.pages.insert(to + index, new);
        }
    }

    /// A mapping was made longer or shorter, where it was if there is room.
    fn resized(
        &mut self,
        (first, (count, new_count)): (usize, (usize, usize)),
        outcome: Result<usize, MapError>,
        is_one_area: bool,
        (may_move, is_excused): (bool, bool),
    ) {
        let has_room =
            (first + count..first + new_count).all(|page| !self.pages.contains_key(&page));
        let is_allowed = is_one_area && (has_room || may_move);
        assert!(outcome.is_ok() == is_allowed || is_excused, "{outcome:?}");
        let Ok(start) = outcome else { return };
        assert_eq!(
            start == at(first),
            has_room,
            "it moves for want of room only"
        );
        let (prot, shows) = self.pages[&first].clone();
        if start != at(first) {
            self.pages
                .retain(|page, _| !(first..first + count).contains(page));
            return self.space.unmap(start, new_count * PAGE_SIZE).unwrap();
        }
        self.pages
            .retain(|page, _| !(first + new_count..first + count).contains(page));
        let grown = (count..new_count).map(|index| (first + index, (prot, shows.plus(index))));
        self.pages.extend(grown);
    }

    fn brk(&mut self, random: &mut Random) {
        let wanted = at(HEAP) - 1 + random.below(HEAP_PAGES * PAGE_SIZE);
        let end = call(|| self.space.brk(wanted));
        let stays = wanted < at(HEAP) || IS_FULL.get() && end == self.heap;
        if !stays {
            let pages = |end: usize| (end - at(0)).div_ceil(PAGE_SIZE);
            let (old, new) = (pages(self.heap), pages(wanted));
            self.pages.retain(|page, _| *page < HEAP || *page < new);
            let grown = (old..new).map(|page| (page, (Prot::READ_WRITE, Shows::nothing())));
            self.pages.extend(grown);
            self.heap = wanted;
        }
        assert_eq!(end, self.heap);
        assert_eq!(self.space.brk(0), self.heap);
    }
}

trait Places {
    fn range(&mut self) -> (usize, usize);
    fn byte(&mut self) -> u8;
}

impl Places for Random {
    /// A first page, and how many.
    fn range(&mut self) -> (usize, usize) {
        let (first, border) = (self.below(PAGES), self.below(BORDERS));
        let page = FIRST + border * TABLE_PAGES + first;
        let most = *self.pick(&[3, PAGES]);
        (page, 1 + self.below(most.min(PAGES - first)))
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }
}

/// Frames hold something when they are given out.
fn soil() {
    let all = exhaust();
    for frame in &all {
        let page = frame.address().to_direct().cast::<Page>();
        // SAFETY: the frame is ours, in simulated memory.
        unsafe { page.write([0xa5; PAGE_SIZE]) };
    }
    give_back(all);
}

/// A failure is told even where the heap is full.
fn make_room_for_panics() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        IS_CALL.set(false);
        hook(info);
    }));
}

/// Says where a run failed.
struct Named(u64, usize);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, step {}", self.0, self.1);
        }
    }
}

fn run(seed: u64) {
    let _turn = Turn::new();
    soil();
    let mut random = Random::new(seed);
    let mut world = World::new(&mut random);
    for step in 0..STEPS {
        let _named = Named(seed, step);
        world.step(&mut random);
        let is_synced = random.below(8) == 0;
        if is_synced {
            world.file.sync(PageRange::WHOLE).unwrap();
        }
        world.compare(&mut random, is_synced);
    }
}

#[test]
fn programs_read_what_was_written() {
    make_room_for_panics();
    (0..SEEDS).for_each(run);
}
