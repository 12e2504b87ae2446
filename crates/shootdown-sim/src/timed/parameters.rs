//! [`PARAMETERS`]: every figure of the timed machine by name, so that one can be changed on the command line
//! and all of them can be swept.

use std::fmt;

use crate::timed::Costs;

/// What a parameter counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Nanoseconds; kept in picoseconds.
    Time,
    /// Things; at least one.
    Count,
    /// Things of which a machine may have none.
    Optional,
}

/// One figure of [`Costs`].
#[derive(Clone, Copy)]
pub struct Parameter {
    /// Its name, which ends in the unit.
    pub name: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// What it is.
    pub about: &'static str,
    get: fn(&Costs) -> u64,
    set: fn(&mut Costs, u64),
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! parameters {
    ($(#[$about_all:meta])* $visible:vis $all:ident: $($name:literal $unit:ident $($field:ident).+ : $type:ty, $about:literal;)+) => {
        $(#[$about_all])*
        $visible static $all: &[Parameter] = &[$(Parameter {
            name: $name,
            unit: Unit::$unit,
            about: $about,
            get: |costs| costs.$($field).+ as u64,
            set: |costs, value| costs.$($field).+ = value as $type,
        },)+];
    };
}

parameters! {
    /// All of every machine, in the order in which they are printed.
    pub PARAMETERS:
    "hit_ns" Time hit_ps: u64, "access that the own cache serves";
    "locked_ns" Time locked_ps: u64, "locked operation, beyond its access";
    "fence_ns" Time fence_ps: u64, "full fence";
    "transfer_core_ns" Time transfer_ps.core: u64, "line from the other thread of the core";
    "transfer_socket_ns" Time transfer_ps.socket: u64, "line from another core of the socket";
    "transfer_machine_ns" Time transfer_ps.machine: u64, "line from another socket";
    "read_occupancy_ns" Time read_occupancy_ps: u64, "line busy for each reader it is sent to";
    "buffered_stores" Optional buffered_stores: usize, "stores that wait in a CPU's buffer; 0: each waits for its line";
    "instructions_ns" Time instructions_ps: u64, "instructions around an access";
    "window_ns" Time window_ps: u64, "how far a CPU goes on behind a load that it waits for";
    "prefetch_ns" Time prefetch_ps: u64, "issuing a prefetch";
    "relax_ns" Time relax_ps: u64, "one turn of a spin loop (PAUSE)";
    "clock_ns" Time clock_ps: u64, "reading the clock (RDTSCP)";
    "icr_ns" Time icr_ps: u64, "write of the interrupt command register";
    "delivery_core_ns" Time delivery_ps.core: u64, "interrupt to the other thread of the core";
    "delivery_socket_ns" Time delivery_ps.socket: u64, "interrupt to another core of the socket";
    "delivery_machine_ns" Time delivery_ps.machine: u64, "interrupt to another socket";
    "entry_ns" Time entry_ps: u64, "interrupt entry up to the handler";
    "exit_ns" Time exit_ps: u64, "interrupt exit";
    "flush_page_ns" Time flush_page_ps: u64, "dropping one page";
    "flush_space_ns" Time flush_space_ps: u64, "dropping the loaded space";
    "flush_all_ns" Time flush_all_ps: u64, "dropping everything, global pages too";
    "invpcid_ns" Time invpcid_ps: u64, "dropping a space that is not loaded";
    "load_root_ns" Time load_root_ps: u64, "loading a root, dropping its entries";
    "load_root_kept_ns" Time load_root_kept_ps: u64, "loading a root, keeping its entries";
    "tlb_l2_hit_ns" Time tlb_l2_hit_ps: u64, "translation from the second-level TLB";
    "walk_step_ns" Time walk_step_ps: u64, "reading one page-table entry in a walk";
    "syscall_ns" Time syscall_ps: u64, "system call, in and out";
    "fault_ns" Time fault_ps: u64, "page fault, in, handling and out";
    "zero_page_ns" Time zero_page_ps: u64, "filling a page with zeros";
    "madvise_ns" Time madvise_ps: u64, "the memory manager's own work in madvise";
    "context_switch_ns" Time context_switch_ps: u64, "between two tasks, without the root";
    "wake_ns" Time wake_ps: u64, "the kernel's own work in a wake-up through an eventfd";
    "request_ns" Time request_ps: u64, "what a client does between two calls of a server";
    "relay_ns" Time relay_ps: u64, "the kernel's own work in such a call";
    "serve_ns" Time serve_ps: u64, "the server's own work in such a call, besides the copy";
    "map_page_ns" Time map_page_ps: u64, "entering a page into a server's page tables";
    "gather_ns" Time gather_ps: u64, "what an ordinary unmapping does besides";
    "copy_page_ns" Time copy_page_ps: u64, "copying a page";
    "shared_lines" Count shared_lines: usize, "lines that every call of a server writes";
    "shared_serial_ns" Time shared_serial_ps: u64, "part of such a call that one CPU is in at a time";
    "asid_slots" Optional asid_slots: usize, "hardware tags that a CPU uses";
    "threads_per_core" Count topology.threads_per_core: usize, "hardware threads of a core";
    "cores_per_socket" Count topology.cores_per_socket: usize, "cores of a socket";
    "cluster_cpus" Count topology.cluster: usize, "CPUs that one ICR write reaches";
    "tlb_l1_sets" Count tlb.l1_sets: usize, "first-level data TLB: sets";
    "tlb_l1_ways" Count tlb.l1_ways: usize, "first-level data TLB: ways";
    "tlb_l2_sets" Count tlb.l2_sets: usize, "second-level TLB: sets";
    "tlb_l2_ways" Count tlb.l2_ways: usize, "second-level TLB: ways";
    "walk_cache_entries" Count tlb.walk_entries: usize, "paging-structure cache: entries a level";
    "tlb_tags" Count tlb.tags: usize, "hardware tags that the TLB has entries of at a time";
}

parameters! {
    /// Those of machines whose processors are shared.
    HOSTING_PARAMETERS:
    "vcpus_per_processor" Count hosting.vcpus: usize, "virtual CPUs that share a processor";
    "slice_ns" Time hosting.slice_ps: u64, "turn of a virtual CPU on its processor";
    "tick_ns" Time hosting.tick_ps: u64, "what a turn takes longer at most";
    "vm_exit_ns" Time hosting.exit_ps: u64, "from guest to host";
    "world_switch_ns" Time hosting.switch_ps: u64, "the host's own work between two virtual CPUs";
    "vm_entry_ns" Time hosting.entry_ps: u64, "from host to guest";
}

parameters! {
    /// Those of machines whose interrupts are flags.
    FLAG_PARAMETERS:
    "flags" Optional flags: usize, "interrupts that are flags on lines of their own";
    "instruction_ns" Time instruction_ps: u64, "an instruction, where they are counted";
    "shared_core_percent" Optional shared_core_percent: usize, "how much longer instructions take while the other thread executes some";
}

parameters! {
    /// Those of machines on which the kernel's own translations count.
    KERNEL_PARAMETERS:
    "kernel_pages" Optional kernel_pages: usize, "pages of its own that the kernel reads in a system call (pingpong)";
}

parameters! {
    /// Those of machines with an instruction that drops translations on all CPUs.
    BROADCAST_PARAMETERS:
    "broadcast_ns" Time broadcast_ps: u64, "dropping a page on all CPUs by an instruction, and waiting for it";
}

parameters! {
    /// Those of machines that run guests.
    GUEST_PARAMETERS:
    "guest_slots" Optional guest.slots: usize, "hardware tags for guests that a CPU uses";
    "guest_entry_ns" Time guest.entry_ps: u64, "from host to guest";
    "guest_exit_ns" Time guest.exit_ps: u64, "from guest to host";
    "guest_drop_ns" Time guest.drop_ps: u64, "dropping a guest's tag as it is entered";
    "first_write_ns" Time guest.first_write_ps: u64, "the host's own work for a write to a protected page";
    "guest_write_ns" Time guest.write_ps: u64, "what a guest does between two writes to pages";
    "guest_turn_ns" Time guest.turn_ps: u64, "how long a virtual CPU runs in its turn";
    "log_round_ns" Time guest.round_ps: u64, "from one reading of a log of writes to the next";
}

/// Those that not every machine has.
pub(super) fn optional() -> impl Iterator<Item = &'static Parameter> + Clone {
    HOSTING_PARAMETERS
        .iter()
        .chain(FLAG_PARAMETERS)
        .chain(KERNEL_PARAMETERS)
        .chain(BROADCAST_PARAMETERS)
        .chain(GUEST_PARAMETERS)
}

impl Costs {
    /// The parameters of this machine that not every machine has.
    pub fn own_parameters(&self) -> impl Iterator<Item = &'static Parameter> {
        let hosting = HOSTING_PARAMETERS.iter();
        let broadcast = BROADCAST_PARAMETERS.iter();
        let hosting = hosting.filter(|_| self.hosting.shares());
        let guests = GUEST_PARAMETERS.iter();
        let flags = FLAG_PARAMETERS.iter();
        let kernel = KERNEL_PARAMETERS.iter();
        hosting
            .chain(flags.filter(|_| self.flags > 0))
            .chain(kernel.filter(|_| self.kernel_pages > 0))
            .chain(broadcast.filter(|_| self.has_broadcasts()))
            .chain(guests.filter(|_| self.has_guests()))
    }

    /// Whether the CPUs have an instruction that drops translations on all of them.
    pub fn has_broadcasts(&self) -> bool {
        self.broadcast_ps > 0
    }
}

/// The largest time that a parameter takes: one second.
const MOST_NS: f64 = 1e9;
/// The largest count.
const MOST_COUNT: f64 = 1e6;

/// As many tags as x86 has besides tag 0 (12 bits): no machine has more of any of these.
const MOST_OPTIONAL: f64 = 4095.0;

/// Why a parameter cannot have a value.
#[derive(Clone, PartialEq, Debug)]
pub enum ParameterError {
    /// No parameter has this name; the nearest one, if any is near.
    Unknown(String, Option<&'static str>),
    /// Its value does not fit: name and limits.
    OutOfRange(&'static str, &'static str),
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name, None) => write!(f, "there is no parameter {name}"),
            Self::Unknown(name, Some(near)) => {
                write!(f, "there is no parameter {name}; did you mean {near}?")
            }
            Self::OutOfRange(name, limits) => write!(f, "{name} takes {limits}"),
        }
    }
}

impl std::error::Error for ParameterError {}

impl ParameterError {
    /// None of `known` has this name.
    pub(crate) fn unknown(name: &str, mut known: impl Iterator<Item = &'static str>) -> Self {
        let is_near =
            |known: &&str| name.len() > 2 && (known.contains(name) || name.contains(known));
        Self::Unknown(name.to_owned(), known.find(is_near))
    }
}

impl Parameter {
    /// The parameter with this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<&'static Self, ParameterError> {
        let mut all = PARAMETERS.iter().chain(optional());
        let names = all.clone().map(|it| it.name);
        all.find(|parameter| parameter.name == name)
            .ok_or_else(|| ParameterError::unknown(name, names))
    }

    /// Its value in `costs`, in its own unit.
    pub fn get(&self, costs: &Costs) -> f64 {
        let raw = (self.get)(costs) as f64;
        match self.unit {
            Unit::Time => raw / 1000.0,
            Unit::Count | Unit::Optional => raw,
        }
    }

    /// Gives it a value, rounded to a picosecond or to a whole thing.
    ///
    /// # Errors
    /// The value makes no sense.
    pub fn set(&self, costs: &mut Costs, value: f64) -> Result<(), ParameterError> {
        let (range, scale, limits) = match self.unit {
            Unit::Time => (0.0..=MOST_NS, 1000.0, "0 to 1000000000 nanoseconds"),
            Unit::Count => (1.0..=MOST_COUNT, 1.0, "1 to 1000000"),
            Unit::Optional => (0.0..=MOST_OPTIONAL, 1.0, "0 to 4095"),
        };
        if !range.contains(&value) {
            return Err(ParameterError::OutOfRange(self.name, limits));
        }
        (self.set)(costs, (value * scale).round() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_a_figure_of_its_own() {
        let mut costs = Costs::default();
        let all = || PARAMETERS.iter().chain(optional()).enumerate();
        for (index, parameter) in all() {
            parameter.set(&mut costs, index as f64 + 1.0).unwrap();
        }
        for (index, parameter) in all() {
            assert_eq!(parameter.get(&costs), index as f64 + 1.0, "{parameter:?}");
            assert!(std::ptr::eq(
                Parameter::named(parameter.name).unwrap(),
                parameter
            ));
        }
    }

    #[test]
    fn unknown_names_and_senseless_values_are_refused() {
        let error = Parameter::named("transfer_socket").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no parameter transfer_socket; did you mean transfer_socket_ns?"
        );
        assert!(Parameter::named("nonsense").is_err());
        let mut costs = Costs::default();
        for (name, wrong) in [
            ("hit_ns", -1.0),
            ("hit_ns", f64::NAN),
            ("hit_ns", 1e12),
            ("cluster_cpus", 0.0),
            ("asid_slots", 4096.0),
        ] {
            assert!(
                Parameter::named(name)
                    .unwrap()
                    .set(&mut costs, wrong)
                    .is_err()
            );
        }
    }
}
