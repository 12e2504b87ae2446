//! INVLPGB and TLBSYNC on an emulated machine of several CPUs, which carry a broadcast out whenever they like before the TLBSYNC of
//! the CPU that issued it, and fault where the manual says so. No emulator that runs here has the instructions.

use std::cell::{Cell, RefCell};

use proptest::prelude::*;
use shootdown_x86::Features;
use shootdown_x86::tlb::{
    Batch, Broadcast, BroadcastPort, Depth, InvlpgbKind, InvlpgbOperands, Pcid,
};

const CPUS: usize = 3;
const SMALL: usize = 1 << 12;
const LARGE: usize = 1 << 21;
const HUGE: usize = 1 << 30;
/// The ASID of the host, and that of a guest.
const HOST: u16 = 0;
const GUEST: u16 = 1;
/// The lowest canonical address of the upper half, with 48 bits.
const UPPER: usize = 0xffff_8000_0000_0000;

/// What a CPU has cached: a translation, or an entry of a page table that leads to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    asid: u16,
    pcid: u16,
    start: usize,
    bytes: usize,
    is_global: bool,
    is_table: bool,
}

impl Entry {
    fn covers(&self, address: usize) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

#[derive(Default)]
struct Machine {
    cached: RefCell<[Vec<Entry>; CPUS]>,
    /// By which CPU it was issued, and who has yet to carry it out.
    under_way: RefCell<Vec<(usize, InvlpgbOperands, [bool; CPUS])>>,
    max_pages: u32,
    /// CR4.PCIDE and EFER.TCE, on all CPUs.
    pcide: bool,
    tce: bool,
}

impl Machine {
    fn carry_out(&self, operands: InvlpgbOperands, cpu: usize) {
        let InvlpgbOperands { rax, ecx, edx } = operands;
        let has = |bit: u32| rax >> bit & 1 != 0;
        let stride = if ecx >> 31 != 0 { LARGE } else { SMALL };
        let address = rax as usize & !0xfff;
        let named = |entry: &Entry| {
            let pages = 0..=(ecx & 0xffff) as usize;
            // An address names all tables, or those that lead to it (APM vol. 2, "Extended Feature Enable Register (EFER)").
            let is_there = !has(0)
                || entry.is_table && !self.tce
                || pages
                    .into_iter()
                    .any(|page| entry.covers(address + page * stride));
            let is_tagged = (!has(1) || entry.pcid == (edx >> 16) as u16)
                && (!has(2) || entry.asid == edx as u16);
            is_there && is_tagged && (has(3) || !entry.is_global) && !(has(4) && entry.is_table)
        };
        self.cached.borrow_mut()[cpu].retain(|entry| !named(entry));
    }

    /// One CPU, or none, carries out one broadcast.
    fn adversary(&self, choice: usize) {
        let mut under_way = self.under_way.borrow_mut();
        let len = under_way.len();
        if let Some((_, operands, done)) = under_way.get_mut(choice / CPUS % (len + 1)) {
            self.carry_out(*operands, choice % CPUS);
            done[choice % CPUS] = true;
        }
    }
}

/// A task on whichever CPU of the machine the second says.
#[derive(Clone, Copy)]
struct Task<'a>(&'a Machine, &'a Cell<usize>);

impl BroadcastPort for Task<'_> {
    unsafe fn invlpgb(&self, operands: InvlpgbOperands) {
        let InvlpgbOperands { rax, ecx, edx } = operands;
        assert!(ecx & 0xffff < self.0.max_pages, "#GP: {ecx:#x}");
        assert!(
            ecx & 0x7fff_0000 == 0 && edx >> 28 == 0 && rax & 0xfc0 == 0,
            "#GP: reserved"
        );
        let (first, stride) = (rax as usize & !0xfff, [SMALL, LARGE][(ecx >> 31) as usize]);
        for page in 0..=(ecx & 0xffff) as usize {
            let address = (first + page * stride) as i64;
            assert!(address << 16 >> 16 == address, "#GP: {address:#x}");
        }
        let names_tag = rax & 0b10 != 0 && edx >> 16 != 0;
        assert!(self.0.pcide || !names_tag, "#GP: a PCID without PCIDE");
        let mut under_way = self.0.under_way.borrow_mut();
        under_way.push((self.1.get(), operands, [false; CPUS]));
    }

    unsafe fn tlbsync(&self) {
        let under_way = self.0.under_way.take();
        let (mine, others): (Vec<_>, Vec<_>) = under_way
            .into_iter()
            .partition(|(cpu, ..)| *cpu == self.1.get());
        self.0.under_way.replace(others);
        for (_, operands, done) in mine {
            let left = (0..CPUS).filter(|cpu| !done[*cpu]);
            left.for_each(|cpu| self.0.carry_out(operands, cpu));
        }
    }
}

/// The caches of all CPUs, for a task on the CPU that `here` says.
fn broadcast<'a>(machine: &'a Machine, here: &'a Cell<usize>) -> Broadcast<Task<'a>> {
    let features = features(machine.max_pages, machine.tce);
    // SAFETY: the emulated processor has the instructions.
    let broadcast = unsafe { Broadcast::with_port(Task(machine, here), &features) }.unwrap();
    match machine.pcide {
        // SAFETY: as just asked.
        true => unsafe { broadcast.with_pcids() },
        false => broadcast,
    }
}

fn features(max_pages: u32, has_tce: bool) -> Features {
    Features::from_leaves(|leaf, _| {
        let mut result = core::arch::x86_64::CpuidResult {
            eax: 0x8000_0008,
            ebx: 0,
            ecx: 0,
            edx: 0,
        };
        match leaf {
            0x8000_0001 => result.ecx = u32::from(has_tce) << 17,
            0x8000_0008 => (result.ebx, result.edx) = (1 << 3, max_pages - 1),
            _ => {}
        }
        result
    })
}

fn entries() -> impl Strategy<Value = Entry> {
    let bytes = prop_oneof![Just(SMALL), Just(LARGE), Just(HUGE)];
    let base = prop_oneof![
        Just(0),
        Just(HUGE),
        Just(UPPER),
        Just((1 << 47) - 8 * SMALL),
        Just((1 << 47) - 16 * LARGE),
        Just((UPPER - 64 * LARGE) & !(HUGE - 1)),
        Just(0usize.wrapping_sub(HUGE))
    ];
    (
        base,
        0..40usize,
        bytes,
        (prop_oneof![4 => Just(HOST), 1 => Just(GUEST)], 0..3u16),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(base, page, bytes, (asid, pcid), is_global, is_table)| {
            let start = (base + page * SMALL * 171) & !(bytes - 1);
            Entry {
                asid,
                pcid,
                start,
                bytes,
                is_global: is_global && !is_table,
                is_table,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// When a batch has ended nobody has anything left that it named; what it did not name is still there.
    #[test]
    fn what_was_named_is_gone_when_the_batch_ends(
        cached in proptest::collection::vec(entries(), 1..40),
        which in proptest::collection::vec(0..40usize, 1..4),
        (max_pages, pages) in (1..9u32, 1..30usize),
        (is_deep, is_of_all) in any::<(bool, bool)>(),
        (pcide, tce, is_tce_known) in any::<(bool, bool, bool)>(),
        choices in proptest::collection::vec(0..30usize, 0..40),
    ) {
        let machine = Machine { max_pages, pcide, tce, ..Machine::default() };
        let cached: Vec<_> = cached.into_iter().map(|entry| Entry { pcid: if pcide { entry.pcid } else { 0 }, ..entry }).collect();
        machine.cached.borrow_mut().fill(cached.clone());
        let here = Cell::new(0);
        let mut broadcast = broadcast(&machine, &here);
        if is_tce_known && !tce {
            // SAFETY: it is clear.
            broadcast = unsafe { broadcast.with_tce_clear() };
        }
        let depth = if is_deep { Depth::Tables } else { Depth::Leaf };
        // SAFETY: nobody moves.
        let mut batch = unsafe { broadcast.begin() };
        let mut named = Vec::new();
        for which in which {
            let Entry { start, bytes, pcid, .. } = cached[which % cached.len()];
            let range = (start, bytes, pages);
            match is_of_all {
                true => batch.pages_of_all(range, depth),
                false => batch.pages(Pcid::new(pcid).unwrap(), range, depth),
            }
            named.push((start, bytes, pcid));
        }
        choices.iter().for_each(|choice| machine.adversary(*choice));
        batch.finish();
        prop_assert!(machine.under_way.borrow().is_empty());
        let is_named = |entry: &Entry| named.iter().any(|(start, bytes, pcid)| {
            let addresses = (0..pages).map_while(|page| start.checked_add(page.checked_mul(*bytes)?));
            let is_there = addresses.into_iter().any(|address| entry.covers(address));
            is_there && (is_of_all || *pcid == entry.pcid)
        });
        let is_tagged = |entry: &Entry| is_of_all || named.iter().any(|(.., pcid)| *pcid == entry.pcid);
        for left in machine.cached.borrow().iter() {
            for entry in cached.iter() {
                let is_guests = entry.asid == GUEST;
                let must_go = !is_guests && match entry.is_table {
                    true => is_deep && is_tagged(entry),
                    false => is_named(entry) && (is_of_all || !entry.is_global),
                };
                let is_left = left.contains(entry);
                prop_assert!(!(must_go && is_left), "{entry:x?} is left");
                // Tables may have all of their tag dropped; an address that is not canonical has everything dropped.
                let is_dropped_whole = is_deep && tce && is_tagged(entry) && (is_of_all || !entry.is_global);
                let is_whole = named.iter().any(|(start, bytes, _)| *start < UPPER && start + pages * bytes > 1 << 47);
                let may_go = must_go || (is_dropped_whole || is_whole) && !is_guests;
                prop_assert!(may_go || is_left, "{entry:x?} is gone");
            }
        }
    }
}

/// A machine all of whose CPUs have cached one translation under PCID 0.
fn machine() -> Machine {
    let entry = Entry {
        asid: HOST,
        pcid: 0,
        start: 0,
        bytes: SMALL,
        is_global: false,
        is_table: false,
    };
    Machine {
        cached: RefCell::new(std::array::from_fn(|_| vec![entry])),
        max_pages: 1,
        ..Machine::default()
    }
}

/// A TLBSYNC is about the instructions of its own CPU: those of others go on.
#[test]
fn a_sync_waits_for_its_own_cpu_only() {
    let machine = machine();
    let cpus = [0, 1].map(Cell::new);
    let [mut first, mut second] = cpus.each_ref().map(|here| {
        // SAFETY: nobody moves.
        unsafe { broadcast(&machine, here).begin() }
    });
    first.all();
    second.context(Pcid::UNTAGGED);
    first.finish();
    assert_eq!(machine.under_way.borrow().len(), 1);
    drop(second);
    assert!(machine.under_way.borrow().is_empty());
}

/// What the duty of `begin` is about: the TLBSYNC of another CPU waits for nothing that this one has issued.
#[test]
fn a_batch_that_ends_on_another_cpu_ends_too_early() {
    let (machine, here) = (machine(), Cell::new(0));
    // SAFETY: it moves, but frees nothing.
    let mut batch = unsafe { broadcast(&machine, &here).begin() };
    batch.context(Pcid::UNTAGGED);
    here.set(1);
    batch.finish();
    assert!(machine.cached.borrow().iter().all(|left| left.len() == 1));
}

#[test]
#[should_panic(expected = "#GP: a PCID without PCIDE")]
fn a_tag_without_tags_faults() {
    let (machine, here) = (machine(), Cell::new(0));
    let kind = InvlpgbKind::Context(Pcid::new(1).unwrap());
    // SAFETY: emulated, and the point.
    unsafe { Task(&machine, &here).invlpgb(kind.encode()) };
}

/// Whoever has not said that PCIDs are on names none.
#[test]
fn a_tag_without_tags_is_refused_before_it_faults() {
    let act = |act: fn(&mut Batch<Task<'_>>, Pcid), pcid| {
        let (machine, here) = (machine(), Cell::new(0));
        // SAFETY: nobody moves.
        let mut batch = unsafe { broadcast(&machine, &here).begin() };
        let act = std::panic::AssertUnwindSafe(|| act(&mut batch, pcid));
        let panic = std::panic::catch_unwind(act).err()?;
        panic.downcast_ref::<String>().cloned()
    };
    let acts: [fn(&mut Batch<Task<'_>>, Pcid); 2] = [
        |batch, pcid| batch.pages(pcid, (0, SMALL, 1), Depth::Leaf),
        |batch, pcid| batch.context(pcid),
    ];
    for act_by in acts {
        assert_eq!(act(act_by, Pcid::UNTAGGED), None);
        let refused = act(act_by, Pcid::new(1).unwrap()).unwrap();
        assert!(refused.contains("faults while PCIDs are off"), "{refused}");
    }
}

#[test]
fn no_instruction_no_broadcast() {
    let (machine, here) = (Machine::default(), Cell::new(0));
    let none = Features::with_flags(shootdown_x86::features::FeatureFlags::INVLPGB);
    // SAFETY: nothing is executed.
    assert!(unsafe { Broadcast::with_port(Task(&machine, &here), &none) }.is_none());
}
