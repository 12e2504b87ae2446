//! Switches between spaces, each of which uses the same addresses for pages of its own: what a turn costs where tags keep translations.

use core::sync::atomic::{AtomicU64, Ordering};

use shootdown::{AddressSpace, Policy, Root};

use crate::arch::{self, PAGE_BYTES, TOP_SHIFT};
use crate::console::say;
use crate::memory;
use crate::options::Options;
use crate::platform::{Cpus, SHOOTDOWN};
use crate::tables::{ENTRIES, Table};

/// Most spaces.
const SPACES: usize = 12;
/// Most pages of each: what a leaf table translates of small pages.
const PAGES: usize = 512;
/// Of roots.
const TOP: usize = 64;
const TURNS: u64 = 200;

static ROOTS: [Table; SPACES] = [const { Table::new() }; SPACES];
static ABOVE: [Table; SPACES] = [const { Table::new() }; SPACES];
static LEAVES: [Table; SPACES] = [const { Table::new() }; SPACES];
/// All pages of a space show the same frame, which has its number.
static FRAMES: [Table; SPACES] = [const { Table::new() }; SPACES];

const _: () = assert!(PAGES <= ENTRIES);

/// What a turn took: a switch, and a read of each page.
struct Turn {
    ns: u64,
    refills: u64,
}

/// Rows of each policy, number of spaces and of pages that the options name; whether each read found its own space's page.
pub fn run(options: &Options) -> bool {
    let most = options.number("spaces", 2).clamp(2, SPACES as u64) as usize;
    let pages = options.number("pages", 64).min(PAGES as u64) as usize;
    (0..SPACES).for_each(prepare);
    let mut is_well = true;
    for (name, policy) in [
        ("before", Policy::BEFORE),
        ("published", Policy::PUBLISHED),
        ("best", Policy::BEST),
    ] {
        SHOOTDOWN.set_policy(policy);
        let spaces: [AddressSpace<Cpus>; SPACES] = core::array::from_fn(|index| {
            // SAFETY: 1. it maps the kernel as all do. 2. it is a static. 3. the space of before is gone. 4. it is no window root.
            let root = unsafe { Root::new(ROOTS[index].physical() as u64) };
            AddressSpace::new(&SHOOTDOWN, root)
        });
        let irqs = arch::irq_save();
        let mut before = None;
        let mut round = |turns: u64| {
            let (mut ns, mut refills) = (0, 0);
            for _ in 0..turns {
                for (number, space) in spaces[..most].iter().enumerate() {
                    let turn = turn(before, space, number, pages);
                    before = Some(space);
                    match turn {
                        Some(turn) => (ns, refills) = (ns + turn.ns, refills + turn.refills),
                        None => is_well = false,
                    }
                }
            }
            let all = turns * most as u64;
            (ns / all, refills as f64 / all as f64)
        };
        round(1);
        let (first_ns, first) = round(1);
        let (ns, steady) = round(TURNS);
        if let Some(last) = before {
            SHOOTDOWN.switch_away(last, memory::kernel_root());
        }
        // SAFETY: 1. of the `irq_save` above.
        unsafe { arch::irq_restore(irqs) };
        drop(spaces);
        match arch::refills() {
            Some(_) => say!(
                "pingpong: policy={name} spaces={most} pages={pages} first_refills={first:.2} refills={steady:.2} first_ns={first_ns} ns={ns}"
            ),
            None => say!(
                "pingpong: policy={name} spaces={most} pages={pages} first_ns={first_ns} ns={ns}"
            ),
        }
    }
    is_well
}

fn prepare(index: usize) {
    FRAMES[index].word(0).store(index as u64, Ordering::Relaxed);
    arch::map_kernel(&ROOTS[index]);
    ROOTS[index].set(TOP, arch::table(ABOVE[index].physical()));
    ABOVE[index].set(0, arch::table(LEAVES[index].physical()));
    for page in 0..PAGES {
        LEAVES[index].set(page, arch::leaf(FRAMES[index].physical(), false));
    }
}

/// `None` if a read found another space's page.
fn turn(
    before: Option<&AddressSpace<Cpus>>,
    space: &AddressSpace<Cpus>,
    number: usize,
    pages: usize,
) -> Option<Turn> {
    let refills = || arch::refills().unwrap_or(0);
    let (began_ns, began) = (arch::now_ns(), refills());
    SHOOTDOWN.switch_to(before, space);
    for page in 0..pages {
        let address = arch::SPACE_BASE + (TOP << TOP_SHIFT) + page * PAGE_BYTES;
        // SAFETY: the loaded space maps it.
        let word = unsafe { &*(address as *const AtomicU64) };
        if word.load(Ordering::Relaxed) != number as u64 {
            return None;
        }
    }
    Some(Turn {
        ns: arch::now_ns() - began_ns,
        refills: refills() - began,
    })
}
