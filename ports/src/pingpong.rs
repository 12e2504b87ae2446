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
/// First returns are counted so often, each with new spaces.
const FIRSTS: usize = 32;
const WARM_UP: usize = 20;
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

/// Rows of each policy; whether each read found its own space's page, and tags kept what the options ask for.
pub fn run(options: &Options) -> bool {
    let spaces = options.number("spaces", 2).clamp(2, SPACES as u64) as usize;
    let pages = options.number("pages", 64).min(PAGES as u64) as usize;
    (0..SPACES).for_each(prepare);
    let mut refills_before = None;
    [
        ("before", Policy::BEFORE),
        ("published", Policy::PUBLISHED),
        ("best", Policy::BEST),
    ]
    .into_iter()
    .all(|(name, policy)| {
        SHOOTDOWN.set_policy(policy);
        let Some(refills) = measure(name, spaces, pages) else {
            say!("ports: a space has read a page of another one's");
            return false;
        };
        let before = *refills_before.get_or_insert(refills);
        name == "before" || refills.are_few(&before, options)
    })
}

/// A row of the policy that is set; `None` if a read found another space's page.
fn measure(name: &str, spaces: usize, pages: usize) -> Option<Refills> {
    let mut first_refills = 0.0;
    for _ in 0..FIRSTS {
        first_refills += with_spaces(|all| {
            let mut rounds = Rounds::of(&all[..spaces], pages);
            rounds.next()?;
            Some(rounds.next()?.refills / FIRSTS as f64)
        })?;
    }
    let (mut refills, mut count, mut samples_ns) = (0.0, 0, [0; TURNS * SPACES]);
    with_spaces(|all| {
        let mut rounds = Rounds::of(&all[..spaces], pages);
        for turn in 0..WARM_UP + TURNS {
            let round = rounds.next()?;
            if turn >= WARM_UP {
                refills += round.refills / TURNS as f64;
                samples_ns[count..count + spaces].copy_from_slice(&round.times_ns[..spaces]);
                count += spaces;
            }
        }
        Some(())
    })?;
    samples_ns[..count].sort_unstable();
    let (median_ns, p99_ns) = (samples_ns[count / 2], samples_ns[count * 99 / 100]);
    let refills = Refills(arch::refills().map(|_| [first_refills, refills]));
    say!(
        r#"@row {{"policy":"{name}","spaces":{spaces},"pages":{pages},"median_ns":{median_ns},"p99_ns":{p99_ns}{refills}}}"#
    );
    Some(refills)
}

/// With spaces that have never been loaded, and interrupts off.
fn with_spaces<R>(act: impl FnOnce(&[AddressSpace<Cpus>]) -> Option<R>) -> Option<R> {
    let spaces: [AddressSpace<Cpus>; SPACES] = core::array::from_fn(|index| {
        // SAFETY: 1. it maps the kernel as all do. 2. it is a static. 3. the space of before is gone. 4. it is no window root.
        let root = unsafe { Root::new(ROOTS[index].physical() as u64) };
        AddressSpace::new(&SHOOTDOWN, root)
    });
    let irqs = arch::irq_save();
    let result = act(&spaces);
    // SAFETY: 1. of the `irq_save` above.
    unsafe { arch::irq_restore(irqs) };
    result
}

/// Each of the spaces has a turn, again and again; at the end none is loaded.
struct Rounds<'a> {
    spaces: &'a [AddressSpace<Cpus>],
    pages: usize,
    loaded: Option<&'a AddressSpace<Cpus>>,
}

/// What came of one.
struct Round {
    /// Of a turn.
    refills: f64,
    times_ns: [u64; SPACES],
}

impl<'a> Rounds<'a> {
    fn of(spaces: &'a [AddressSpace<Cpus>], pages: usize) -> Self {
        Self {
            spaces,
            pages,
            loaded: None,
        }
    }

    /// `None` if a read found another space's page.
    fn next(&mut self) -> Option<Round> {
        let (mut refills, mut times_ns) = (0, [0; SPACES]);
        for (number, space) in self.spaces.iter().enumerate() {
            let turn = turn(self.loaded.replace(space), space, number, self.pages)?;
            times_ns[number] = turn.ns;
            refills += turn.refills;
        }
        Some(Round {
            refills: refills as f64 / self.spaces.len() as f64,
            times_ns,
        })
    }
}

impl Drop for Rounds<'_> {
    fn drop(&mut self) {
        if let Some(loaded) = self.loaded {
            SHOOTDOWN.switch_away(loaded, memory::kernel_root());
        }
    }
}

/// Refills of a turn, the first one after a return and in the steady state, where they are counted.
#[derive(Clone, Copy)]
struct Refills(Option<[f64; 2]>);

impl Refills {
    /// Whether they are no more, in percent of what they were `before`, than the options allow.
    fn are_few(&self, before: &Self, options: &Options) -> bool {
        let (Some(refills), Some(before)) = (self.0, before.0) else {
            return true;
        };
        let most = ["most_first_percent", "most_percent"].map(|name| options.number(name, 100));
        let are_few =
            (0..2).all(|kind| refills[kind] * 100.0 <= before[kind] * most[kind] as f64 + 1.0);
        if !are_few {
            say!("ports: {refills:?} refills a turn, of {before:?}, are more than {most:?} %");
        }
        are_few
    }
}

impl fmt::Display for Refills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some([first, steady]) => {
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
    ABOVE[index].become_directory();
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
