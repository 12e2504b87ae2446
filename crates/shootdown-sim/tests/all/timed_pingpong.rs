//! Table T4 on the timed machine.

use shootdown::{Policy, tags::Tags};
use shootdown_sim::timed::{Costs, Parameter, Preset};
use shootdown_sim::workload::{
    Eviction, Measured, Names, Order, PUBLISHED_PINGPONG, Pingpong, Placement, sweep,
};

const POLICIES: [Policy; 3] = [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST];

fn costs() -> Costs {
    Preset::named("skylake-laptop").unwrap().costs()
}

fn with(name: &str, value: f64) -> Costs {
    let mut costs = costs();
    Parameter::named(name)
        .unwrap()
        .set(&mut costs, value)
        .unwrap();
    costs
}

fn row(spaces: usize, pages: usize, policy: Policy) -> Pingpong {
    Pingpong::new(spaces, pages, policy, &costs())
}

fn measured(spaces: usize, pages: usize, policy: Policy) -> Measured {
    row(spaces, pages, policy).run()
}

fn walks(measured: &Measured) -> f64 {
    measured.per_iteration(measured.translations.walks)
}

#[test]
fn before_and_published_come_within_5_percent_of_what_was_published() {
    for (name, pages, published_ns) in PUBLISHED_PINGPONG {
        let mean_ns = measured(2, pages, Policy::from_name(name).unwrap()).mean_ns();
        let deviation = (mean_ns - published_ns) / published_ns;
        assert!(
            deviation.abs() <= 0.05,
            "{name}, {pages} pages: {mean_ns} ns where {published_ns} was published"
        );
    }
}

#[test]
fn best_is_at_least_equal_to_published() {
    for spaces in [2, 3, 6, 7, 12, 64] {
        for pages in [0, 16, 128, 512] {
            let of = |policy| measured(spaces, pages, policy).mean_ns();
            let (published, best) = (of(Policy::PUBLISHED), of(Policy::BEST));
            assert!(
                best <= published,
                "{spaces} spaces, {pages} pages: {best} {published}"
            );
        }
    }
}

/// The authors counted 207 million walks without PCID and 11 million with it.
#[test]
fn tags_save_at_least_90_percent_of_the_walks_of_two_spaces() {
    let before = walks(&measured(2, 512, Policy::BEFORE));
    assert_eq!(before, 512.0);
    for policy in [Policy::PUBLISHED, Policy::BEST] {
        assert!(walks(&measured(2, 512, policy)) <= 0.1 * before);
    }
}

#[test]
fn every_turn_is_one_load_of_a_root_and_nothing_stale_is_used() {
    for policy in POLICIES {
        for spaces in [2, 6, 7, 12, 64] {
            for placement in [Placement::Same, Placement::Random] {
                let row = Pingpong {
                    placement,
                    ..row(spaces, 16, policy)
                };
                let measured = row.run();
                let turns = row.iterations as u64;
                let holds = match policy.tags() {
                    Tags::None => None,
                    Tags::Six => Some(spaces <= 6),
                    Tags::All => Some(true),
                };
                let stats = &measured.stats;
                let loads = (stats.tags_kept, stats.tags_dropped, stats.tags_taken);
                let expected = match holds {
                    None => (0, 0, 0),
                    Some(true) => (turns, 0, 0),
                    Some(false) => (0, 0, turns),
                };
                assert_eq!(loads, expected, "{} {spaces} {placement:?}", policy.name());
                assert_eq!(measured.stale, 0, "{} {spaces}", policy.name());
            }
        }
    }
}

#[test]
fn six_slots_fall_off_at_seven_spaces_and_all_slots_do_not() {
    for pages in [16, 64, 128] {
        let of = |spaces, policy| measured(spaces, pages, policy).mean_ns();
        let (six, seven) = (of(6, Policy::PUBLISHED), of(7, Policy::PUBLISHED));
        assert_eq!(of(6, Policy::BEST), six);
        assert_eq!(
            of(7, Policy::BEST),
            six,
            "{pages} pages fit for seven as well"
        );
        let lost_ns = 115.0 + 8.0 * pages as f64;
        assert!(seven > six + lost_ns - 0.1, "{pages} pages: {six} {seven}");
    }
}

fn isolated(row: Pingpong) -> Pingpong {
    Pingpong {
        isolation: true,
        ..row
    }
}

/// A turn has four more loads of a root: two system calls, in and out. With tags none of them drops anything, unless the tag has just been
/// taken from another space: then its user side goes, too.
#[test]
fn isolation_costs_four_loads_of_a_root() {
    let costs = costs();
    let (kept, dropped) = (costs.load_root_kept_ps, costs.load_root_ps);
    for (spaces, policy, more_ps) in [
        (2, Policy::BEFORE, 4 * dropped),
        (2, Policy::PUBLISHED, 4 * kept),
        (8, Policy::PUBLISHED, 3 * kept + dropped),
        (8, Policy::BEST, 4 * kept),
    ] {
        let [without, with] =
            [row(spaces, 128, policy), isolated(row(spaces, 128, policy))].map(|row| row.run());
        assert_eq!(
            with.mean_ns() - without.mean_ns(),
            more_ps as f64 / 1000.0,
            "{spaces} {}",
            policy.name()
        );
        assert_eq!(walks(&with), walks(&without));
    }
}

/// The user side is dropped where a flush left it due, whatever the row.
#[test]
fn isolation_uses_nothing_stale() {
    for policy in POLICIES {
        for spaces in [1, 2, 7, 64] {
            let measured = isolated(row(spaces, 16, policy)).run();
            assert_eq!(measured.stale, 0, "{} {spaces}", policy.name());
        }
    }
}

/// Where they are global no load of a root drops the kernel's translations. With isolation each space has its own of them, and without tags every load
/// drops them: the write reads them once, the read twice, as another space comes in between.
#[test]
fn the_kernels_translations_are_global_without_isolation_only() {
    let costs = with("kernel_pages", 16.0);
    let walks = |policy, isolation| {
        let row = Pingpong::new(2, 0, policy, &costs);
        walks(&Pingpong { isolation, ..row }.run())
    };
    for policy in POLICIES {
        assert_eq!(walks(policy, false), 0.0);
    }
    assert_eq!(walks(Policy::BEFORE, true), 3.0 * 16.0);
    assert_eq!(walks(Policy::BEST, true), 0.0);
}

/// Three times 512 pages is what the second level holds; a fourth space has none left when its turn comes.
#[test]
fn three_spaces_of_512_pages_fill_the_second_level_exactly() {
    assert_eq!(walks(&measured(3, 512, Policy::BEST)), 0.0);
    assert_eq!(walks(&measured(4, 512, Policy::BEST)), 512.0);
}

#[test]
fn no_row_is_faster_than_the_least() {
    for spaces in [2, 3, 8, 12, 64] {
        for pages in [0, 16, 128, 160, 512] {
            for placement in [Placement::Same, Placement::Random] {
                let row = Pingpong {
                    placement,
                    ..row(spaces, pages, Policy::BEST)
                };
                let least_ns = row.least_ns(measured(spaces, 0, Policy::BEST).mean_ns());
                assert!(row.run().mean_ns() >= least_ns - 0.1, "{row:?}");
            }
        }
    }
}

/// How much faster than six slots all slots are, and could be at most if the TLB replaced its entries ideally.
fn gains(spaces: usize, pages: usize, costs: &Costs) -> (f64, f64) {
    let row = |pages, policy| Pingpong::new(spaces, pages, policy, costs);
    let six_ns = row(pages, Policy::PUBLISHED).run().mean_ns();
    let all = row(pages, Policy::BEST);
    let empty_ns = row(0, Policy::BEST).run().mean_ns();
    (
        six_ns / all.run().mean_ns(),
        six_ns / all.least_ns(empty_ns),
    )
}

/// An iteration is 1.22 us however good the TLB is, and eight spaces of more than 192 pages do not fit. So all slots come
/// near to twice as fast as six, but not there; with 512 pages nothing can.
#[test]
fn twice_as_fast_takes_more_pages_than_the_tlb_holds_of_eight_spaces() {
    for spaces in 8..=12 {
        let (gain, _) = gains(spaces, 128, &costs());
        assert!((1.85..1.87).contains(&gain), "{spaces} spaces: {gain}");
        let (gain, most) = gains(spaces, 512, &costs());
        assert!(1.0 < gain && gain < most && most < 1.45, "{gain} {most}");
    }
}

/// Twice the ways, 3072 entries, as newer processors have.
#[test]
fn twice_as_fast_comes_with_a_larger_tlb() {
    let larger = with("tlb_l2_ways", 24.0);
    for spaces in 8..=12 {
        let (gain, most) = gains(spaces, 256, &larger);
        assert!(
            gain >= 2.0 && gain <= most,
            "{spaces} spaces: {gain} {most}"
        );
    }
}

#[test]
fn a_tlb_that_keeps_four_tags_gains_nothing_from_more() {
    let with_four = with("tlb_tags", 4.0);
    let walks = |spaces, isolation| {
        let row = Pingpong::new(spaces, 64, Policy::BEST, &with_four);
        walks(&Pingpong { isolation, ..row }.run())
    };
    assert_eq!((walks(4, false), walks(5, false)), (0.0, 64.0));
    // Pairs of tags are twice as many.
    assert_eq!((walks(2, true), walks(3, true)), (0.0, 64.0));
}

#[test]
fn slots_are_as_many_as_the_machine_has() {
    let kept = |slots, spaces| {
        let costs = with("asid_slots", slots);
        let measured = Pingpong::new(spaces, 0, Policy::BEST, &costs).run();
        measured.per_iteration(measured.stats.tags_kept)
    };
    assert_eq!(kept(0.0, 2), 0.0);
    assert_eq!((kept(1.0, 2), kept(2.0, 2)), (0.0, 1.0));
    assert_eq!((kept(12.0, 12), kept(12.0, 24)), (1.0, 0.0));
    assert_eq!(kept(4095.0, 512), 1.0);
}

#[test]
fn drawn_turns_and_scattered_names_are_the_same_for_the_same_seed() {
    let run = |seed| {
        let row = Pingpong {
            order: Order::Zipf(1.0),
            names: Names::Scattered,
            iterations: 400,
            seed,
            ..row(40, 16, Policy::BEST)
        };
        row.run()
    };
    let (first, again, other) = (run(1), run(1), run(2));
    assert_eq!(first.samples_ps, again.samples_ps);
    assert_ne!(first.samples_ps, other.samples_ps);
    assert_eq!(first.stale, 0);
    let Measured { stats, .. } = first;
    assert_eq!(stats.tags_kept + stats.tags_taken, 400);
}

/// The comparison of evictions is about what the engine does.
#[test]
fn the_engine_keeps_the_tags_that_its_model_keeps() {
    for (spaces, order) in [
        (12, Order::RoundRobin),
        (40, Order::Zipf(1.0)),
        (100, Order::Zipf(0.5)),
    ] {
        for slots in [3, 6, 16, 64] {
            let row = Pingpong {
                order,
                names: Names::Scattered,
                iterations: 500,
                ..Pingpong::new(spaces, 0, Policy::BEST, &with("asid_slots", slots as f64))
            };
            let (before, measured) = row.names();
            let kept = Eviction::ENGINE.kept(slots, &[before.as_slice(), &measured].concat());
            let kept = kept[before.len()..].iter().filter(|kept| **kept).count();
            assert_eq!(row.run().stats.tags_kept, kept as u64, "{row:?}");
        }
    }
}

/// The conclusion does not hang on one figure: with any of them halved or doubled, tags beat none with 512 pages and
/// two spaces, and all slots beat six with 128 pages and eight.
#[test]
fn no_single_parameter_turns_the_order_of_the_policies() {
    for (spaces, pages, [slower, faster]) in [
        (2, 512, [Policy::BEFORE, Policy::BEST]),
        (8, 128, [Policy::PUBLISHED, Policy::BEST]),
    ] {
        let rows = [slower, faster].map(|policy| Pingpong {
            iterations: 2 * spaces,
            ..row(spaces, pages, policy)
        });
        let effects = sweep(&rows);
        assert!(effects.len() > 50);
        for effect in effects {
            let [slower, faster] = effect.figures_ns[..] else {
                panic!("two rows")
            };
            assert!(faster < slower, "{effect:?}");
        }
    }
}
