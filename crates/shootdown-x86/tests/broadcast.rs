//! INVLPGB and TLBSYNC on an emulated machine of several CPUs, which carry a broadcast out whenever they like before the TLBSYNC of
//! the CPU that issued it, and fault where the manual says so. No emulator that runs here has the instructions.

use std::cell::RefCell;

use proptest::prelude::*;
use shootdown_x86::Features;
use shootdown_x86::tlb::{Broadcast, BroadcastPort, Depth, InvlpgbOperands, Pcid};

const CPUS: usize = 3;
const SMALL: usize = 1 << 12;
const LARGE: usize = 1 << 21;
const HUGE: usize = 1 << 30;
/// The lowest canonical address of the upper half, with 48 bits.
const UPPER: usize = 0xffff_8000_0000_0000;

/// What a CPU has cached: a translation, or an entry of a page table that leads to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
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
}

impl Machine {
    fn carry_out(&self, operands: InvlpgbOperands, cpu: usize) {
        let InvlpgbOperands { rax, ecx, edx } = operands;
        let has = |bit: u32| rax >> bit & 1 != 0;
        let stride = if ecx >> 31 != 0 { LARGE } else { SMALL };
        let address = rax as usize & !0xfff;
        let named = |entry: &Entry| {
            let pages = 0..=(ecx & 0xffff) as usize;
            let is_there = !has(0)
                || pages
                    .into_iter()
                    .any(|page| entry.covers(address + page * stride));
            let is_tagged = !has(1) || entry.pcid == (edx >> 16) as u16;
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

/// One CPU of the machine.
#[derive(Clone, Copy)]
struct Cpu<'a>(&'a Machine, usize);

impl BroadcastPort for Cpu<'_> {
    unsafe fn invlpgb(&self, operands: InvlpgbOperands) {
        let InvlpgbOperands { rax, ecx, edx } = operands;
        assert!(ecx & 0xffff < self.0.max_pages, "#GP: {ecx:#x}");
        assert!(
            ecx & 0x7fff_0000 == 0 && edx >> 28 == 0 && rax & 0xfc0 == 0,
            "#GP: reserved"
        );
        let address = (rax & !0xfff) as i64;
        assert!(address << 16 >> 16 == address, "#GP: {address:#x}");
        assert!(rax & 4 != 0 && edx & 0xffff == 0, "it would reach guests");
        self.0
            .under_way
            .borrow_mut()
            .push((self.1, operands, [false; CPUS]));
    }

    unsafe fn tlbsync(&self) {
        let under_way = self.0.under_way.take();
        let (mine, others): (Vec<_>, Vec<_>) =
            under_way.into_iter().partition(|(cpu, ..)| *cpu == self.1);
        self.0.under_way.replace(others);
        for (_, operands, done) in mine {
            let left = (0..CPUS).filter(|cpu| !done[*cpu]);
            left.for_each(|cpu| self.0.carry_out(operands, cpu));
        }
    }
}

fn features(max_pages: u32) -> Features {
    Features::from_leaves(|leaf, _| {
        let mut result = core::arch::x86_64::CpuidResult {
            eax: 0x8000_0008,
            ebx: 0,
            ecx: 0,
            edx: 0,
        };
        if leaf == 0x8000_0008 {
            (result.ebx, result.edx) = (1 << 3, max_pages - 1);
        }
        result
    })
}

fn entries() -> impl Strategy<Value = Entry> {
    let bytes = prop_oneof![Just(SMALL), Just(LARGE), Just(HUGE)];
    let base = prop_oneof![
        Just(0),
        Just(UPPER),
        Just((UPPER - 64 * LARGE) & !(HUGE - 1)),
        Just(0usize.wrapping_sub(HUGE))
    ];
    (
        base,
        0..40usize,
        bytes,
        0..3u16,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(base, page, bytes, pcid, is_global, is_table)| {
            let start = (base + page * SMALL * 171) & !(bytes - 1);
            Entry {
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
        choices in proptest::collection::vec(0..30usize, 0..40),
    ) {
        let machine = Machine { max_pages, ..Machine::default() };
        machine.cached.borrow_mut().fill(cached.clone());
        // SAFETY: the emulated processor has them.
        let broadcast = unsafe { Broadcast::with_port(Cpu(&machine, 0), &features(max_pages)) }.unwrap();
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
        for left in machine.cached.borrow().iter() {
            for entry in cached.iter() {
                let may_go = is_named(entry) && (is_of_all || !entry.is_global);
                let must_go = may_go && (is_deep || !entry.is_table);
                let is_left = left.contains(entry);
                prop_assert!(!(must_go && is_left), "{entry:x?} is left");
                // An address that is not canonical has everything dropped.
                let is_whole = named.iter().any(|(start, bytes, _)| *start < UPPER && start + pages * bytes > 1 << 47);
                prop_assert!(may_go || is_left || is_whole, "{entry:x?} is gone");
            }
        }
    }
}

/// A TLBSYNC is about the instructions of its own CPU: those of others go on.
#[test]
fn a_sync_waits_for_its_own_cpu_only() {
    let machine = Machine {
        max_pages: 1,
        ..Machine::default()
    };
    let [mut first, mut second] = [0, 1].map(|cpu| {
        // SAFETY: the emulated processor has them.
        let broadcast = unsafe { Broadcast::with_port(Cpu(&machine, cpu), &features(1)) }.unwrap();
        // SAFETY: nobody moves.
        unsafe { broadcast.begin() }
    });
    first.all();
    second.context(Pcid::UNTAGGED);
    first.finish();
    assert_eq!(machine.under_way.borrow().len(), 1);
    drop(second);
    assert!(machine.under_way.borrow().is_empty());
}

#[test]
fn no_instruction_no_broadcast() {
    let machine = Machine::default();
    let none = Features::with_flags(shootdown_x86::features::FeatureFlags::INVLPGB);
    // SAFETY: nothing is executed.
    assert!(unsafe { Broadcast::with_port(Cpu(&machine, 0), &none) }.is_none());
}
