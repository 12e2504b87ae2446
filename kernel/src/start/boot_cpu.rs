//! The boot CPU's path, in order: console, loader data, clocks, page tables, memory, other CPUs,
//! first program. Each step needs only those before it.

use core::ops::Range;

use arrayvec::ArrayVec;
use shootdown_x86::{ApicId, Hypervisor, PcidSupport};

use super::others;
use crate::addr::{PAGE_BYTES, PhysAddr};
use crate::arch::tlb::{self, TagUse};
use crate::arch::{apic, cpu, exit, paging, percpu, smap, steal, svm, timer, uaccess};
use crate::boot::fail::boot_fail;
use crate::boot::memory::MemoryMap;
use crate::boot::{acpi, info, multiboot, start_info};
use crate::cpus::MAX_CPUS;
use crate::exec::initramfs;
use crate::platform::{ON_STALL, SECONDARY, SHOOTDOWN, SecondaryTlb, attach, check_lent};
use crate::{calls, console, fs, hotplug, mm, panic, preempt, sync, task, time, torture, watchdog};

/// Timer ticks a second without `hz=`.
const DEFAULT_HZ: u32 = 1000;

/// Called by `entry.s` on the main stack of CPU 0: interrupts off, boot page tables. The second argument
/// is 0 for PVH loaders.
pub extern "C" fn boot_main(loader_data_at: u32, multiboot_magic: u32) -> ! {
    cpu::set_up(0);
    panic::cpu_starts(0);
    install_hooks();
    attach(0..1);
    console::init();
    let loader = match multiboot_magic {
        0 => start_info::read(u64::from(loader_data_at)),
        magic => multiboot::read(magic, u64::from(loader_data_at)),
    };
    let cmdline = info::keep_cmdline(loader.cmdline);
    console::set_level(info::option(cmdline, "loglevel"));
    choose_end(cmdline, loader.rsdp);
    if !cpu::has_local_apic() {
        boot_fail!("this CPU has no local APIC; use another -cpu");
    }
    if cpu::features().has_smap() {
        smap::patch();
    }

    let listed = acpi::cpus(loader.rsdp);
    let cpus = choose_cpus(info::option(cmdline, "cpus"), listed.len());
    attach(1..cpus);
    apic::choose(cpu::features(), cpus, acpi::firmware_flags(loader.rsdp));

    let mut memory = MemoryMap::new(&loader.ram);
    let (image_start, image_end) = paging::image();
    memory.reserve(image_start.as_u64(), image_end.as_u64());
    let initramfs = PhysAddr::of(loader.initramfs.as_ptr()).as_u64();
    memory.reserve(initramfs, initramfs + loader.initramfs.len() as u64);
    build_page_tables(&mut memory, &loader.pixels(), cpus);
    paging::load_kernel_root();
    check_lent(cpus);
    if let Some(adapter) = loader.screen.filter(|_| !loader.has_early_screen()) {
        console::show_on(adapter);
    }
    let pcids = tlb::choose(cpu::features(), tag_use(info::option(cmdline, "pcid")));
    tlb::start();
    svm::choose();

    insert_cpus(&listed, cpus);
    apic::enable(0);
    let clocks = time::calibrate();
    let hz = tick_rate(info::option(cmdline, "hz"));
    log::info!(
        "shootdown kernel {}: {} CPUs, {}, {} MiB free, TSC {} MHz, {} tags a CPU",
        env!("CARGO_PKG_VERSION"),
        cpus,
        apic::local().mode().name(),
        memory.usable_bytes() >> 20,
        clocks.tsc_hz / 1_000_000,
        tlb::slots(percpu::cpu_id()).len(),
    );
    if let PcidSupport::InvlpgMisses(miss) = pcids {
        log::info!(
            "PCIDs stay off: INVLPG misses global pages on this processor; microcode {:#x} repairs it",
            miss.fixed_in().0
        );
    }

    let boot = info::publish(cmdline, loader.initramfs, memory.into_regions(), cpus);
    check_initramfs();
    mm::init(boot);
    if let Err(why) = fs::make() {
        log::error!("not all files of the initramfs are in the tree: {why:?}");
    }
    choose_remote_flush(info::option(cmdline, "pv"));
    steal::register(percpu::cpu_id());
    SHOOTDOWN.online();
    watchdog::start(boot.option("stall_ms"));
    timer::set_pace(clocks.apic_timer, hz);
    timer::start();
    others::start_others(cpus, &loader.ram);
    if cpus == listed.len() {
        apic::MAP.permit_shorthand();
    }
    log::debug!("{cpus} CPUs up");
    #[cfg(feature = "selftest")]
    crate::selftest::run(boot);
    task::start_scheduling();
    task::choose_idle_mode(boot);
    task::wait_for_other_cpus(cpus);
    if !torture::start_if_asked(boot) && !calls::start_if_asked(boot) {
        task::start_init(boot);
    }
    #[cfg(feature = "selftest")]
    crate::selftest::start_if_asked(boot);
    task::idle(hotplug::park_if_asked)
}

/// Tells the lower parts of the kernel whom they are to call, without their knowing it.
fn install_hooks() {
    preempt::GIVE_WAY.call_once(|| task::preempt);
    uaccess::CATCH_UP.call_once(|| task::catch_up_before_access);
    sync::RUNNING.call_once(|| task::current_sleeper);
    ON_STALL.call_once(|| watchdog::report);
    SECONDARY.call_once(|| SecondaryTlb {
        begin: mm::nested::begin_notice,
        finish: mm::nested::finish_notice,
    });
    fs::CPU_COMMAND.call_once(|| hotplug::command);
    fs::CALLS.call_once(|| fs::Calls {
        run: calls::run,
        lines: calls::lines,
    });
}

/// What the machine does at its end. `end=halt` is for machines that somebody looks at, and that nobody knows beforehand.
fn choose_end(cmdline: &'static str, rsdp: u64) {
    let halts = match info::option(cmdline, "end") {
        None | Some("reset") => false,
        Some("halt") => true,
        Some(other) => boot_fail!("end={other} is neither reset nor halt; correct -append"),
    };
    // Other emulators with this firmware say what they are.
    let is_bochs =
        halts && acpi::is_of_emulator(rsdp) && cpu::features().hypervisor() == Hypervisor::None;
    if is_bochs || info::option(cmdline, "machine") == Some("bochs") {
        exit::use_bochs();
    }
    if halts {
        exit::halt_at_end();
    }
}

/// How many CPUs to use: all listed, up to the kernel's limit or the command line's.
fn choose_cpus(wanted: Option<&str>, listed: usize) -> usize {
    if listed == 0 {
        boot_fail!("the ACPI table lists no enabled CPU; report the firmware's version");
    }
    let limit = match wanted.map(str::parse::<usize>) {
        None => MAX_CPUS,
        Some(Ok(limit @ 1..=MAX_CPUS)) => limit,
        Some(_) => boot_fail!(
            "cpus={} is not a number from 1 to {MAX_CPUS}; correct -append",
            wanted.unwrap_or_default()
        ),
    };
    if listed > MAX_CPUS {
        log::warn!("{listed} CPUs in this machine; the kernel uses the first {MAX_CPUS}");
    }
    listed.min(limit)
}

/// Refuses an archive that cannot be read to its end, rather than miss files later.
fn check_initramfs() {
    match initramfs::check() {
        Ok(members) => log::debug!("initramfs: {members} members"),
        Err(error) => boot_fail!("the initramfs: {error}; pass an uncompressed newc cpio archive"),
    }
}

fn tag_use(wanted: Option<&str>) -> TagUse {
    match wanted {
        None | Some("auto") => TagUse::Auto,
        Some("off") => TagUse::Off,
        Some(other) => boot_fail!("pcid={other} is neither auto nor off; correct -append"),
    }
}

/// Whether a hypervisor's flushes are used where it offers them.
fn choose_remote_flush(wanted: Option<&str>) {
    match wanted {
        None | Some("auto") => steal::choose(cpu::features()),
        Some("off") => {}
        Some(other) => boot_fail!("pv={other} is neither auto nor off; correct -append"),
    }
    if steal::is_used() {
        log::info!("KVM flushes virtual CPUs that do not run before they do");
    }
}

fn tick_rate(wanted: Option<&str>) -> u32 {
    match wanted.map(str::parse::<u32>) {
        None => DEFAULT_HZ,
        Some(Ok(hz @ 1..=10_000)) => hz,
        Some(_) => boot_fail!(
            "hz={} is not a number from 1 to 10000; correct -append",
            wanted.unwrap_or_default()
        ),
    }
}

/// Builds the final tables, and the other CPUs' stacks, in memory just behind the image.
fn build_page_tables(memory: &mut MemoryMap, pixels: &Range<u64>, cpus: usize) {
    let end = memory.end();
    let pages = paging::frames_needed(end, pixels, cpus);
    let first = memory.take_early(pages);
    // SAFETY: free memory that the boot tables map; nobody else has it.
    unsafe {
        first
            .to_direct()
            .write_bytes(0, pages as usize * PAGE_BYTES);
    }
    let mut frames =
        (0..pages).map(|page| PhysAddr::new(first.as_u64() + page * PAGE_BYTES as u64));
    paging::build(end, pixels, Some(apic::register_page()), cpus, &mut || {
        frames.next().expect("frames_needed counts them all")
    });
}

/// Numbers the CPUs: the boot CPU is 0, the others follow in the table's order.
fn insert_cpus(listed: &[ApicId], cpus: usize) {
    let own = cpu::initial_apic_id();
    let others = listed.iter().copied().filter(|&id| id != own);
    let ordered: ArrayVec<ApicId, MAX_CPUS> =
        core::iter::once(own).chain(others).take(cpus).collect();
    for (index, &id) in ordered.iter().enumerate() {
        if let Err(error) = apic::MAP.insert(index, id) {
            boot_fail!("CPU {index}: {error}; use fewer CPUs (-smp, or cpus= on the command line)");
        }
        others::set_apic_id(index, id);
    }
}
