//! Switches between spaces, each of which uses the same addresses for pages of its own: what a turn costs where tags keep translations.

use core::fmt;
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
const TURNS: usize = 200;

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
        let mut round = || {
            let (mut refills, mut times_ns) = (0, [0; SPACES]);
            for (number, space) in spaces[..most].iter().enumerate() {
                let turn = turn(before, space, number, pages);
                before = Some(space);
                match turn {
                    Some(turn) => (times_ns[number], refills) = (turn.ns, refills + turn.refills),
                    None => is_well = false,
                }
            }
            (refills as f64 / most as f64, times_ns)
        };
        round();
        let (first_refills, _) = round();
        let (mut refills, mut count, mut samples_ns) = (0.0, 0, [0; TURNS * SPACES]);
        for _ in 0..TURNS {
            let (of_round, times_ns) = round();
            refills += of_round / TURNS as f64;
            samples_ns[count..count + most].copy_from_slice(&times_ns[..most]);
            count += most;
        }
        samples_ns[..count].sort_unstable();
        let (median_ns, p99_ns) = (samples_ns[count / 2], samples_ns[count * 99 / 100]);
        if let Some(last) = before {
            SHOOTDOWN.switch_away(last, memory::kernel_root());
        }
        // SAFETY: 1. of the `irq_save` above.
        unsafe { arch::irq_restore(irqs) };
        drop(spaces);
        let counted = Counted(arch::refills().map(|_| (first_refills, refills)));
        if is_well {
            say!(
                r#"@row {{"policy":"{name}","spaces":{most},"pages":{pages},"median_ns":{median_ns},"p99_ns":{p99_ns}{counted}}}"#
            );
        }
    }
    is_well
}

/// Refills of a turn, the first one after a return and in the steady state, where they are counted.
struct Counted(Option<(f64, f64)>);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((first, steady)) => {
                write!(f, r#","first_refills":{first:.3},"refills":{steady:.3}"#)
            }
            None => Ok(()),
        }
    }
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
