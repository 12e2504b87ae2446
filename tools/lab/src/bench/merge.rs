//! Many boots become one row: medians over the boots, ratios within each, counts over all.

use super::rows::{Call, Printed, Rate, Row, Sighting, machine_name};
use super::waking;
use crate::cli::MachineKind;

/// How many samples a merged row keeps.
const SAMPLES_KEPT: usize = 2000;
/// The policy that all ratios refer to.
const REFERENCE: &str = "before";

/// What is the same for every row of a group.
#[derive(Debug, Clone)]
pub struct Setting {
    pub cpus: usize,
    pub accel: String,
    pub is_crowded: bool,
}

/// A row's name: machine, policy, actors, pages.
type Key<'a> = (MachineKind, &'a str, u32, u32);

/// Merges the sightings of one group; the order of the first boot is kept, machine by machine.
pub fn merge(sightings: &[Sighting], setting: &Setting) -> Vec<Row> {
    let mut keys: Vec<Key<'_>> = Vec::new();
    for sighting in sightings {
        let key = key(sighting);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let mut rows: Vec<Row> = keys
        .into_iter()
        .map(|wanted| merge_one(wanted, sightings, setting))
        .collect();
    let pages_ns: Vec<Option<f64>> = rows.iter().map(|row| page_ns(row, &rows)).collect();
    for (row, page_ns) in rows.iter_mut().zip(pages_ns) {
        row.page_ns = page_ns;
    }
    rows
}

fn key(sighting: &Sighting) -> Key<'_> {
    let row = &sighting.row;
    (sighting.machine, &row.policy, row.actors.count(), row.pages)
}

/// The sightings of one row.
fn of<'a>(wanted: Key<'a>, sightings: &'a [Sighting]) -> impl Iterator<Item = &'a Sighting> {
    let is_wanted = move |sighting: &&Sighting| key(sighting) == wanted;
    sightings.iter().filter(is_wanted)
}

fn merge_one(wanted: Key<'_>, sightings: &[Sighting], setting: &Setting) -> Row {
    let own: Vec<&Sighting> = of(wanted, sightings).collect();
    let rows = || own.iter().map(|sighting| &sighting.row);
    let first = rows().next().expect("a key comes from a sighting");
    let iterations: u64 = rows().map(|row| row.iterations).sum();
    let ipis: Option<f64> = rows()
        .map(|row| Some(row.ipis_per_op? * row.iterations as f64))
        .sum();
    let boot_medians_ns: Vec<f64> = rows().map(|row| row.median_ns).collect();
    let (machine, _, actors, pages) = wanted;
    let to_before = (MachineKind::Qemu, REFERENCE, actors, pages);
    let to_linux = (MachineKind::Linux, "linux", actors, pages);
    let whole = |row: &Printed| Some(row.median_ns);
    let call = |row: &Printed| row.call_median_ns;
    Row {
        machine: machine_name(machine),
        policy: first.policy.clone(),
        actors: first.actors,
        pages,
        cpus: setting.cpus,
        accel: setting.accel.clone(),
        crowded: setting.is_crowded,
        median_ns: median(boot_medians_ns.iter().copied()).unwrap_or(0.0),
        p99_ns: median(rows().map(|row| row.p99_ns)).unwrap_or(0.0),
        min_ns: rows().map(|row| row.min_ns).fold(f64::INFINITY, f64::min),
        ratio: ratio(&own, sightings, to_before, whole),
        ratio_to_linux: ratio(&own, sightings, to_linux, whole),
        call: median(rows().filter_map(call)).map(|median_ns| Call {
            median_ns,
            p99_ns: median(rows().filter_map(|row| row.call_p99_ns)).unwrap_or(0.0),
            ratio: ratio(&own, sightings, to_before, call),
            ratio_to_linux: ratio(&own, sightings, to_linux, call),
        }),
        rate: median(rows().filter_map(|row| row.per_s)).map(|per_s| Rate {
            per_s,
            ratio: ratio(&own, sightings, to_before, |row| row.per_s),
        }),
        waking: waking::merge(
            &rows().collect::<Vec<_>>(),
            &of(to_before, sightings)
                .map(|sighting| &sighting.row)
                .collect::<Vec<_>>(),
        ),
        page_ns: None,
        ipis_per_op: ipis.map(|ipis| ipis / iterations.max(1) as f64),
        stale: rows().map(|row| row.stale).sum(),
        iterations,
        boot_medians_ns,
        counters: own
            .last()
            .map(|sighting| sighting.row.counters.clone())
            .unwrap_or_default(),
        samples: thin(rows().flat_map(|row| row.samples.iter().copied()).collect()),
    }
}

/// By how much a row exceeds the one without pages, a page.
fn page_ns(row: &Row, rows: &[Row]) -> Option<f64> {
    let axes = |row: &Row| (row.machine, row.policy.clone(), row.actors);
    let bare = rows
        .iter()
        .find(|other| other.pages == 0 && axes(other) == axes(row))?;
    (row.pages > 0).then(|| (row.median_ns - bare.median_ns) / f64::from(row.pages))
}

/// The median ratio of `figure` to that of `reference`, each row against the one of the same (or neighbouring) boot.
fn ratio(
    own: &[&Sighting],
    all: &[Sighting],
    reference: Key<'_>,
    figure: impl Fn(&Printed) -> Option<f64>,
) -> Option<f64> {
    let ratios = own.iter().filter_map(|sighting| {
        let other = all
            .iter()
            .find(|other| other.boot == sighting.boot && key(other) == reference)
            .filter(|other| other.row.has_load_of(&sighting.row))?;
        let other_ns = figure(&other.row).filter(|&ns| ns > 0.0)?;
        Some(figure(&sighting.row)? / other_ns)
    });
    median(ratios)
}

/// The median; the mean of the middle two if there is no middle one.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// Keeps every n-th sample.
fn thin(samples: Vec<f64>) -> Vec<f64> {
    let stride = samples.len().div_ceil(SAMPLES_KEPT).max(1);
    samples.into_iter().step_by(stride).collect()
}

#[cfg(test)]
mod tests {
    use super::super::rows::Actors;
    use super::*;

    /// The call is all but 40 ns of the iteration.
    fn sighting(machine: MachineKind, boot: u32, policy: &str, median_ns: f64) -> Sighting {
        let call_ns = median_ns - 40.0;
        let text = format!(
            r#"{{"policy":"{policy}","threads":2,"pages":1,"median_ns":{median_ns},"p99_ns":9,"min_ns":{boot},
                "call_median_ns":{call_ns},"call_p99_ns":{boot},
                "iterations":100,"ipis_per_op":1.0,"stale":{boot},"samples":[1,2]}}"#
        );
        Sighting {
            machine,
            boot,
            row: serde_json::from_str(&text).unwrap(),
        }
    }

    fn merged(sightings: &[Sighting]) -> Vec<Row> {
        merge(
            sightings,
            &Setting {
                cpus: 2,
                accel: "tcg".into(),
                is_crowded: false,
            },
        )
    }

    #[test]
    fn ratios_are_taken_within_a_boot() {
        use MachineKind::{Linux, Qemu};
        // Boot 1 ran on a host twice as slow: the ratios do not see it.
        let rows = merged(&[
            sighting(Qemu, 0, "before", 100.0),
            sighting(Qemu, 0, "best", 80.0),
            sighting(Linux, 0, "linux", 160.0),
            sighting(Qemu, 1, "before", 200.0),
            sighting(Qemu, 1, "best", 160.0),
            sighting(Linux, 1, "linux", 320.0),
        ]);
        assert_eq!(rows.len(), 3);
        assert_eq!(
            (rows[0].ratio, rows[1].ratio, rows[2].ratio),
            (Some(1.0), Some(0.8), Some(1.6))
        );
        assert_eq!(rows[1].ratio_to_linux, Some(0.5));
        assert_eq!(rows[1].median_ns, 120.0);
    }

    #[test]
    fn the_call_is_compared_with_the_call() {
        use MachineKind::{Linux, Qemu};
        let rows = merged(&[
            sighting(Qemu, 0, "before", 100.0),
            sighting(Qemu, 0, "best", 70.0),
            sighting(Linux, 0, "linux", 160.0),
        ]);
        let call = rows[1].call.as_ref().unwrap();
        assert_eq!((rows[1].ratio, call.ratio), (Some(0.7), Some(0.5)));
        assert_eq!(call.ratio_to_linux, Some(0.25));
        assert_eq!((call.median_ns, call.p99_ns), (30.0, 0.0));
    }

    #[test]
    fn a_page_costs_what_it_adds_to_an_iteration_without_any() {
        let turn = |policy: &str, pages: u32, median_ns: f64| {
            let mut turn = sighting(MachineKind::Qemu, 0, policy, median_ns);
            turn.row.actors = Actors {
                threads: None,
                spaces: Some(2),
            };
            turn.row.pages = pages;
            turn.row.call_median_ns = None;
            turn
        };
        let rows = merged(&[
            turn("before", 0, 100.0),
            turn("before", 50, 300.0),
            turn("best", 50, 300.0),
        ]);
        let pages_ns: Vec<Option<f64>> = rows.iter().map(|row| row.page_ns).collect();
        assert_eq!(pages_ns, [None, Some(4.0), None]);
        let json = serde_json::to_value(&rows[1]).unwrap();
        assert_eq!(
            (&json["spaces"], &json["page_ns"]),
            (&2.into(), &4.0.into())
        );
        assert!(json.get("threads").is_none() && json.get("call_median_ns").is_none());
        assert_eq!(rows[2].ratio, Some(1.0));
    }

    #[test]
    fn counts_add_up_over_boots() {
        let rows = merged(&[
            sighting(MachineKind::Qemu, 1, "best", 1.0),
            sighting(MachineKind::Qemu, 2, "best", 3.0),
        ]);
        assert_eq!(
            (rows[0].stale, rows[0].iterations, rows[0].ipis_per_op),
            (3, 200, Some(1.0))
        );
        assert_eq!((rows[0].min_ns, rows[0].samples.len()), (1.0, 4));
        assert_eq!(rows[0].ratio, None, "nothing to compare with");
    }

    #[test]
    fn thinning_keeps_the_spread() {
        let kept = thin((0..10_000).map(f64::from).collect());
        assert_eq!((kept.len(), kept[0], kept[1]), (2000, 0.0, 5.0));
        assert_eq!(thin(vec![1.0]), [1.0]);
    }

    #[test]
    fn median_of_even_counts_is_the_middle() {
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }
}
