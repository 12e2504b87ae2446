//! Table T2 on the timed machine.

use shootdown_sim::timed::{Costs, Preset};
use shootdown_sim::workload::{Mapping, PUBLISHED_ZEROCOPY, PublishedZerocopy, Served, Zerocopy};

fn costs() -> Costs {
    Preset::named("40-core-2018").unwrap().costs()
}

fn row(mapping: Mapping, threads: usize) -> Zerocopy {
    Zerocopy::new(mapping, threads, &costs())
}

fn alone(mapping: Mapping, threads: usize) -> Served {
    row(mapping, threads).alone().run()
}

fn deviation(mapping: Mapping, published: &PublishedZerocopy) -> f64 {
    let found = row(mapping, published.threads).run().per_s();
    found / published.per_s(mapping).unwrap() - 1.0
}

#[test]
fn before_and_flagged_come_within_13_percent_of_what_was_published() {
    for published in &PUBLISHED_ZEROCOPY {
        for mapping in [Mapping::Ordinary, Mapping::Flagged] {
            let deviation = deviation(mapping, published);
            assert!(
                deviation.abs() <= 0.13,
                "{mapping:?}, {} threads: {:+.1} %",
                published.threads,
                deviation * 100.0
            );
        }
    }
}

#[test]
fn windows_are_at_least_as_fast_as_the_published_flag() {
    for published in &PUBLISHED_ZEROCOPY {
        let found = row(Mapping::Windowed, published.threads).run().per_s();
        let wanted = published.per_s[1];
        assert!(found >= wanted, "{} threads: {found}", published.threads);
    }
}

#[test]
fn windows_send_no_interrupt_and_ordinary_mappings_do() {
    for threads in [2, 12, 40] {
        let of = |mapping| alone(mapping, threads).activity.ipis_sent;
        assert_eq!(of(Mapping::Windowed), 0, "{threads}");
        assert_eq!(of(Mapping::Flagged), 0, "{threads}");
        assert!(of(Mapping::Ordinary) > 0, "{threads}");
    }
}

#[test]
fn windows_are_linear_in_the_number_of_threads_and_move_no_line() {
    let one = alone(Mapping::Windowed, 1).per_s();
    for threads in [2, 12, 24, 40] {
        let served = alone(Mapping::Windowed, threads);
        let each = served.per_s() / threads as f64;
        assert!((each / one - 1.0).abs() <= 0.02, "{threads}: {each} {one}");
        assert!(served.per_operation(served.lines) < 0.01, "{threads}");
    }
}

/// Threads of one process share the set of CPUs of its address space, which each call leaves and enters again.
#[test]
fn what_is_left_to_share_between_threads_is_their_own_address_space() {
    let threads = |clients_share_space| {
        let row = Zerocopy {
            clients_share_space,
            ..row(Mapping::Windowed, 12).alone()
        };
        let served = row.run();
        served.per_operation(served.lines)
    };
    assert!((threads(true) - 2.0).abs() < 0.1 && threads(false) < 0.01);
}

#[test]
fn every_operation_in_a_window_is_one_local_flush_and_keeps_both_tags() {
    let served = alone(Mapping::Windowed, 4);
    let stats = &served.stats;
    let each = |count: u64| served.per_operation(count);
    // Operations that were under way at either end count by halves.
    let near = |count: u64, due: f64| (each(count) - due).abs() < 0.01;
    assert!(near(stats.window_flushes, 1.0) && near(stats.pages_flushed, 1.0));
    assert!(near(stats.tags_kept, 2.0));
    assert_eq!((stats.tags_dropped, stats.tags_taken), (0, 0));
    assert_eq!(
        (
            stats.window_flushes_deferred,
            stats.full_flushes,
            stats.tops_copied
        ),
        (0, 0, 0)
    );
}

/// A processor may cache what its loaded root leads to without ever being asked to. With an ordinary mapping it is told to
/// forget it; with the flag nobody tells it; and a window is in no root of its.
#[test]
fn a_cpu_that_looks_next_door_uses_stale_pages_under_the_flag_only() {
    for threads in [2, 5] {
        let stale = |mapping| {
            let row = Zerocopy {
                looks_next_door: true,
                ..row(mapping, threads)
            };
            row.run().stale
        };
        assert_eq!(stale(Mapping::Ordinary), 0);
        assert!(stale(Mapping::Flagged) > 0);
        assert_eq!(stale(Mapping::Windowed), 0);
    }
}

#[test]
fn the_same_seed_is_the_same_to_the_picosecond_and_another_is_not() {
    let run = |seed| {
        let row = Zerocopy {
            seed,
            ..row(Mapping::Ordinary, 3)
        };
        row.run().calls_ps
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
