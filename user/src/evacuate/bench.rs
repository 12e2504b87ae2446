//! What differs from other [courses](crate::course): virtual machines, and a copy that is compared after each evacuation.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;

use super::churn::Churn;
use super::copy::{self, Copied, Evacuation, Manner};
use super::crew::Crew;
use super::device::Device;
use super::first_writes;
use super::start::REACH_BYTES;
use super::vcpu::{self, Vcpu};
use super::vm::{Vm, WORD_PAGES};
use crate::args::{self, UsageError};
use crate::clock::narrow;
use crate::counters;
use crate::course::options::MAX_PAGES;
use crate::course::{
    Axis, Bench, Course, Entry, OwnOptions, Program, Sample, Shape, Slice, Table, Turn,
};
use crate::policy;
use crate::region::PAGE_BYTES;

/// What `--help` prints.
const HELP: &str = "\
evacuate: virtual machines are copied while they run, by the log of dirty pages of /dev/kvm

usage: evacuate [OPTION]...
  --threads LIST    virtual CPUs of each machine, one thread each [1,2]
  --pages LIST      pages that each virtual CPU writes to        [64,512]
  --vms N           machines                                     [2]
  --piece N         pages whose log is cleared by one call, a multiple of 64
                                                                 [64]
  --copies N        rounds of copying before the machines are stopped
                                                                 [4]
  --batch N         pages of a machine that such a round waits for
                                                                 [16]
  --churn N         virtual CPUs change their CPU all the time, and CPUs leave and
                    come back, in an order that N decides
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,published,best]
                    with before the first write to a clean page flushes
                    its machine, one at a time; with published it does
                    so at any time; else it does not
  --slice-ms N      length of one measured slice                 [60]
  --rounds N        slices of each policy                        [7]
  --warmup-ms N     unmeasured time before the first round       [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of policies                            [1]
  --help

exit status: 0 all well, 1 a lost write or a failed call, 2 bad arguments or no /dev/kvm
";

/// Figures a dirtied page that a kernel counts, and names for them, the first of which is taken that it has.
const KERNEL_FIGURES: [(&str, &[&str]); 3] = [
    ("exits_per_op", &["guest_exits", "kvm_exits"]),
    ("flushes_per_op", &["guest_flushes", "kvm_remote_tlb_flush"]),
    ("kicks_per_op", &["guest_kicks"]),
];

/// What only this program is told.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    vms: usize,
    manner: Manner,
    churn: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            vms: 2,
            manner: Manner {
                piece: WORD_PAGES,
                rounds: 4,
                batch: 16,
            },
            churn: None,
        }
    }
}

impl OwnOptions for Options {
    const NAMES: &'static [&'static str] = &["--vms", "--piece", "--copies", "--batch", "--churn"];

    fn set(&mut self, name: &str, text: &str) -> Result<(), UsageError> {
        let number = |range| args::number(name, text, range);
        match name {
            "--vms" => self.vms = number(1..=16)? as usize,
            "--piece" => {
                self.manner.piece = number(1..=MAX_PAGES)? as usize;
                if !self.manner.piece.is_multiple_of(WORD_PAGES) {
                    return Err(UsageError::new(format!(
                        "--piece {text} is no multiple of {WORD_PAGES}: a log is cleared by whole words"
                    )));
                }
            }
            "--churn" => self.churn = Some(number(0..=u64::from(u32::MAX))?),
            "--copies" => self.manner.rounds = number(1..=1000)? as usize,
            _ => self.manner.batch = number(0..=MAX_PAGES)? as u32,
        }
        Ok(())
    }
}

/// The program `evacuate`.
#[derive(Debug)]
pub struct Evacuate {
    options: Options,
    device: Device,
}

impl Program for Evacuate {
    const TABLE: &'static Table = &Table {
        program: "evacuate",
        help: HELP,
        tasks: Axis::threads(&[1, 2]),
        pages: Axis::pages(&[64, 512], 1..=MAX_PAGES),
        policies: policy::USUAL,
        is_spread: true,
        is_checked: false,
    };
    type Options = Options;
    type Bench<'a> = Machines;

    fn new(options: Options, course: &Course) -> Result<Self, UsageError> {
        let most = |list: &[usize]| list.iter().copied().max().unwrap_or(0);
        let pages = most(&course.tasks) * most(&course.pages) + 2 * WORD_PAGES;
        if pages * PAGE_BYTES > REACH_BYTES {
            return Err(UsageError::new(
                "a machine has 1 GiB of memory at most: ask for fewer --threads or --pages",
            ));
        }
        vcpu::handle_stops()
            .map_err(|error| UsageError::new(format!("cannot handle a signal: {error}")))?;
        Ok(Self {
            options,
            device: Device::open()?,
        })
    }

    fn info(&self, info: &mut Value) {
        let manner = self.options.manner;
        info["vms"] = self.options.vms.into();
        info["piece_pages"] = manner.piece.into();
        info["copies"] = manner.rounds.into();
        info["batch_pages"] = manner.batch.into();
        info["clears_by_hand"] = self.device.clears_by_hand().into();
    }

    fn start<'a>(&'a self, shape: Shape, course: &'a Course) -> io::Result<Machines> {
        let (mut machines, mut vcpus) = (Vec::new(), Vec::new());
        for _ in 0..self.options.vms {
            let vm = Vm::new(&self.device, shape.tasks, shape.pages)?;
            for index in 0..shape.tasks {
                let vcpu = Vcpu::new(&self.device, &vm, index, shape.pages)?;
                // This thread is on the first CPU, so that one comes last.
                let cpu = course.cpus[(vcpus.len() + 1) % course.cpus.len()];
                vcpus.push((vcpu, cpu));
            }
            machines.push(Copied::new(vm)?);
        }
        let crew = Crew::start(vcpus)?;
        let churn = self.options.churn;
        let churn = churn.map(|seed| Churn::start(crew.threads(), &course.cpus, seed));
        Ok(Machines {
            churn: churn.transpose()?,
            crew,
            machines,
            manner: self.options.manner,
            rows: BTreeMap::new(),
        })
    }
}

/// One shape.
#[derive(Debug)]
pub struct Machines {
    // Before the threads that it moves.
    churn: Option<Churn>,
    // Before the machines, whose memory guests write to.
    crew: Crew,
    machines: Vec<Copied>,
    manner: Manner,
    rows: BTreeMap<String, Evacuation>,
}

impl Bench for Machines {
    fn turn(&mut self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        first_writes::choose(turn.row)?;
        let (mut slice, mut all) = (Slice::default(), Evacuation::default());
        around();
        for sample in turn.samples.iter_mut() {
            let (evacuation, wrong) = copy::evacuate(&self.machines, &self.crew, self.manner)?;
            *sample = sample_of(&evacuation);
            all.add(evacuation);
            slice.samples += 1;
            slice.operations += evacuation.pages;
            slice.ticks += evacuation.ticks;
            slice.wrong += wrong;
            if slice.ticks >= turn.ticks {
                break;
            }
        }
        around();
        self.churn.as_ref().map_or(Ok(()), Churn::check)?;
        if turn.is_recorded {
            self.rows.entry(turn.row.to_owned()).or_default().add(all);
        }
        Ok(slice)
    }

    fn add_fields(&mut self, entry: &Entry<'_>, row: &mut Value) {
        entry.add_calls(row);
        let (all, evacuations) = (self.rows[&entry.row.policy], entry.row.total.samples as u64);
        let share = |count, of| Value::from(counters::share(count, of));
        row["evacuations"] = evacuations.into();
        row["pages_per_evacuation"] = share(all.pages, evacuations);
        row["clears_per_op"] = share(all.clears, all.pages);
        row["returns_per_op"] = share(all.guests.returns, all.pages);
        row["writes_per_op"] = share(all.guests.writes, all.pages);
        row["clear_percent"] = share(100 * all.clear_ticks, all.ticks);
        for (key, names) in KERNEL_FIGURES {
            let counters = &entry.row.counters;
            let count = names.iter().find_map(|&name| counters.get(name));
            row[key] = count.map(|&count| counters::share(count, all.pages)).into();
        }
        row["stop_percent"] = share(100 * all.stop_ticks, all.ticks);
    }
}

fn sample_of(evacuation: &Evacuation) -> Sample {
    Sample {
        whole: narrow(evacuation.ticks),
        call: narrow(evacuation.clear_ticks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_half_a_word_of_a_log_is_refused_with_the_reason() {
        let mut options = Options::default();
        for (name, text) in [
            ("--vms", "3"),
            ("--piece", "128"),
            ("--copies", "7"),
            ("--batch", "5"),
            ("--churn", "9"),
        ] {
            options.set(name, text).unwrap();
        }
        let manner = Manner {
            piece: 128,
            rounds: 7,
            batch: 5,
        };
        let churn = Some(9);
        assert_eq!(
            options,
            Options {
                vms: 3,
                manner,
                churn
            }
        );
        for (name, text) in [
            ("--vms", "0"),
            ("--vms", "17"),
            ("--piece", "0"),
            ("--copies", "0"),
        ] {
            assert!(options.set(name, text).is_err(), "{name} {text}");
        }
        let error = options.set("--piece", "65").unwrap_err().to_string();
        assert!(error.contains("no multiple of 64"), "{error}");
    }
}
