//! What must not compile: safe code that writes registers by number, loads roots, or resets CPUs. The compiler
//! is asked about each line, and about the same line in an `unsafe` block, which it must take: a line that is
//! refused for another reason would prove nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Calls that need `unsafe`, with what is in scope of [`PROLOGUE`].
const UNSAFE: &[&str] = &[
    // Registers of the local APIC, which the mode's own methods alone may choose.
    "ApicPort::read_page(apic_port, 0x300)",
    "ApicPort::write_page(apic_port, 0x300, 0x000c_4500)",
    "ApicPort::read_msr(apic_port, Msr::APIC_BASE)",
    "ApicPort::write_msr(apic_port, Msr::APIC_BASE, 0)",
    "ApicPort::irq_restore(apic_port, IrqState::Enabled)",
    "msr::read(Msr::BIOS_SIGN_ID)",
    "msr::write(Msr::TSC_DEADLINE, 0)",
    // Control registers, and instructions that fault.
    "TlbPort::invpcid(tlb_port, InvpcidKind::Context(Pcid::UNTAGGED))",
    "TlbPort::write_cr3(tlb_port, 0x1000)",
    "TlbPort::write_cr4(tlb_port, 0)",
    "TlbPort::irq_restore(tlb_port, IrqState::Enabled)",
    "irq::restore(IrqState::Enabled)",
    // Access to the machine.
    "apic::Hardware::with_page(NonNull::<u8>::dangling())",
    "apic::Hardware::without_page()",
    "tlb::Hardware::new()",
    "apic::physical_base()",
    "Microcode::read()",
    "PcidSupport::detect(features)",
    "LocalApic::new_xapic(NonNull::<u8>::dangling())",
    "LocalApic::new_x2apic()",
    "LocalApic::with_port(ApicMode::X2Apic, *apic_port)",
    "IpiSender::new_xapic(NonNull::<u8>::dangling())",
    "IpiSender::new_x2apic()",
    "IpiSender::with_port(ApicMode::X2Apic, *apic_port)",
    "Tlb::new(features)",
    "Tlb::with_port(*tlb_port, features)",
    "Broadcast::new(features)",
    "Broadcast::with_port(*tlb_port, features)",
    "BroadcastPort::invlpgb(tlb_port, InvlpgbKind::All.encode())",
    "BroadcastPort::tlbsync(tlb_port)",
    // What breaks other CPUs, or this one.
    "local.enable(vector, None)",
    "local.send_nmi(Destination::AllButSelf)",
    "local.send_init(ApicId(1))",
    "local.send_startup(ApicId(1), page)",
    "local.enable_deadline(vector)",
    "local.set_deadline(0)",
    "sender.send_nmi(Destination::AllButSelf)",
    "tlb.with_pcids()",
    "tlb.with_tce_clear()",
    "broadcast.with_pcids()",
    "broadcast.with_tce_clear()",
    "tlb.start()",
    "tlb.stop()",
    "tlb.load_root(0x1000)",
    "tlb.load_tagged_root(0x1000, Pcid::UNTAGGED, TagEntries::Drop)",
    "broadcast.begin()",
    // Has a processor read and write memory by itself.
    "RarPort::write_msr(rar_port, Msr::RAR_PAYLOAD_BASE, 0)",
    "rar::RarHardware::new(*sender, map, 0)",
    "table.start(rar_port, 0, 0)",
    "rar::RarTable::<1>::stop(rar_port)",
];

/// Values that nobody can make: their fields are private, or the module is.
const UNMADE: &[(&str, &str)] = &[
    ("Msr(0xc000_0082)", "E0423"),
    ("tlb::Hardware(())", "E0423"),
    ("Vector(3)", "E0423"),
    ("StartupPage(0xa0)", "E0423"),
    ("Pcid(0xffff)", "E0423"),
    ("IpiSender(*local)", "E0423"),
    ("shootdown_x86::apic::icr::Command::Init", "E0603"),
    ("rar::Payload(0)", "E0423"),
];

/// Methods and fields that are this crate's own.
const PRIVATE: &[(&str, &str)] = &[
    ("local.write(Register::CommandLow, 0)", "E0624"),
    ("local.write_halves(0, 0)", "E0624"),
    ("local.port", "E0616"),
    ("tlb.port", "E0616"),
    ("local.0", "E0616"),
];

/// What waits for its own CPU only stays there.
const MOVED: &[(&str, &str)] = &[("std::thread::spawn(move || batch.finish())", "E0277")];

/// The compiler looks for these after all others.
const BUILT: &[(&str, &str)] = &[("apic::Hardware { page: None }", "E0451")];

/// One line, so that the line of a case is its number and 2.
const PROLOGUE: &str = "#![allow(warnings)] \
    use core::ptr::NonNull; \
    use shootdown_x86::{*, apic::{self, Port as ApicPort, *}, irq, msr::{self, Msr}}; \
    use shootdown_x86::{rar::{self, RarPort}, processor::Microcode, tlb::{self, Broadcast, BroadcastPort, InvlpgbKind, InvpcidKind}}; \
    use shootdown_x86::tlb::{Port as TlbPort, TagEntries};\n";

const SCOPE: &str = "apic_port: &apic::Hardware, tlb_port: &tlb::Hardware, local: &LocalApic, \
    sender: &IpiSender, tlb: &Tlb, features: &Features, vector: Vector, page: StartupPage, map: &'static ApicMap<1>, \
    rar_port: &rar::RarHardware<'static, 1>, table: &'static rar::RarTable<1>, broadcast: &Broadcast, \
    batch: tlb::Batch<tlb::Hardware>";

/// A crate with one function for each expression.
fn source<'a>(bodies: impl Iterator<Item = String> + 'a) -> String {
    let functions = bodies
        .enumerate()
        .map(|(nth, body)| format!("pub fn f{nth}({SCOPE}) {{ let _ = {body}; }}\n"));
    PROLOGUE.to_owned() + &functions.collect::<String>()
}

/// The library that this test was linked to: the youngest that is older than the test.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let age = |path: &Path| path.metadata().and_then(|data| data.modified()).unwrap();
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libshootdown_x86-") && name.ends_with(".rlib")
    };
    let files = program.parent().unwrap().read_dir().unwrap();
    let libraries = files.map(|file| file.unwrap().path()).filter(is_library);
    libraries
        .filter(|path| age(path) <= age(&program))
        .max_by_key(|path| age(path))
        .expect("cargo puts the library beside its tests")
}

/// The errors' codes by number of the case, and all that the compiler said.
fn compile(name: &str, source: &str) -> (BTreeMap<usize, String>, String) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = directory.join(format!("{name}-{}.rs", std::process::id()));
    std::fs::write(&file, source).unwrap();
    let library = library();
    let output = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"))
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata"])
        .args(["--error-format=short", "-o"])
        .arg(file.with_extension("rmeta"))
        .arg(format!("--extern=shootdown_x86={}", library.display()))
        .arg(format!(
            "-Ldependency={}",
            library.parent().unwrap().display()
        ))
        .arg(&file)
        .output()
        .expect("the compiler is beside cargo");
    for leftover in [file.clone(), file.with_extension("rmeta")] {
        let _ = std::fs::remove_file(leftover);
    }
    let said = String::from_utf8(output.stderr).unwrap();
    let start = format!("{}:", file.display());
    let errors = said.lines().filter_map(|line| {
        let (number, rest) = line.strip_prefix(&start)?.split_once(':')?;
        let code = rest.split_once("error[")?.1.split_once(']')?.0;
        Some((number.parse::<usize>().unwrap() - 2, code.to_owned()))
    });
    (errors.collect(), said.clone())
}

fn assert_refused(name: &str, cases: &[(&str, &str)]) {
    let (errors, said) = compile(name, &source(cases.iter().map(|case| case.0.to_owned())));
    for (nth, (case, code)) in cases.iter().enumerate() {
        let found = errors.get(&nth).map(String::as_str);
        assert_eq!(
            found,
            Some(*code),
            "safe code may say `{case}`; the compiler said:\n{said}"
        );
    }
}

#[test]
fn what_breaks_the_machine_needs_unsafe() {
    let cases: Vec<_> = UNSAFE.iter().map(|&case| (case, "E0133")).collect();
    assert_refused("unsafe", &cases);
    let inside = UNSAFE.iter().map(|case| format!("unsafe {{ {case} }}"));
    let (errors, said) = compile("inside", &source(inside));
    assert!(errors.is_empty() && !said.contains("error"), "{said}");
}

#[test]
fn numbers_and_modules_of_the_crate_stay_its_own() {
    assert_refused("unmade", UNMADE);
    assert_refused("private", PRIVATE);
    assert_refused("built", BUILT);
}

#[test]
fn a_batch_of_broadcasts_does_not_leave_its_cpu() {
    assert_refused("moved", MOVED);
}

/// As it was found, by a reviewer.
#[test]
fn any_register_by_number_is_refused() {
    let (errors, said) = compile(
        "review",
        "pub use shootdown_x86::{apic::{Hardware, Port}, msr::Msr};\n\
         pub fn write_lstar(hardware: &Hardware, to: u64) { hardware.write_msr(Msr(0xc000_0082), to) }\n",
    );
    assert_eq!(errors.get(&0).map(String::as_str), Some("E0423"), "{said}");
}
