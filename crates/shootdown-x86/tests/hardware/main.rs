//! The real ports, instruction by instruction: what the assembler in them asks of the processor.
#![cfg(target_os = "linux")]

mod trap;

use std::ptr::NonNull;

use shootdown_x86::apic::{self, Destination, Port as ApicPort, Register, fence_before_ipi};
use shootdown_x86::features::FeatureFlags;
use shootdown_x86::irq::{self, IrqState};
use shootdown_x86::msr::{self, Msr};
use shootdown_x86::processor::{Microcode, Processor, Vendor};
use shootdown_x86::tlb::{self, InvpcidKind, Port as TlbPort};
use shootdown_x86::vmx::{self, InveptKind, InvvpidKind, Port as VmxPort, VmFail, VmcsField};
use shootdown_x86::{ApicId, Features, IpiSender, LocalApic, Pcid, PcidSupport, Tlb, Vector};

use trap::{ANSWER, INVALID, Op, trapped};

const VALUE: u64 = 0xfedc_ba98_7654_3210;
const VECTOR: Vector = Vector::new(0xf0).unwrap();
const CR4_PGE: u64 = 1 << 7;

fn tlb_port() -> tlb::Hardware {
    // SAFETY: what needs CPL 0 traps.
    unsafe { tlb::Hardware::new() }
}

/// The page of an xAPIC, in ordinary memory.
#[repr(C, align(4096))]
struct Page([u32; 1024]);

impl Page {
    fn new() -> Box<Self> {
        Box::new(Self([0; 1024]))
    }

    fn at(&mut self) -> NonNull<u8> {
        NonNull::from(self).cast()
    }

    /// Offsets and values of all that was written.
    fn written(&self) -> Vec<(usize, u32)> {
        let words = self.0.iter().enumerate().filter(|word| *word.1 != 0);
        words.map(|(index, &value)| (4 * index, value)).collect()
    }
}

#[test]
fn registers_by_number_keep_their_halves_apart() {
    // SAFETY: traps.
    let (read, ops) = trapped(|| unsafe { msr::read(Msr::TSC_DEADLINE) });
    assert_eq!((read, ops), (ANSWER, vec![Op::ReadMsr(0x6e0)]));
    // SAFETY: traps.
    let ((), ops) = trapped(|| unsafe { msr::write(Msr::TSC_DEADLINE, VALUE) });
    assert_eq!(ops, [Op::WriteMsr(0x6e0, VALUE)]);
}

#[test]
fn control_registers_are_the_ones_that_the_names_say() {
    let port = tlb_port();
    let (cr3, cr4) = (trapped(|| port.read_cr3()), trapped(|| port.read_cr4()));
    assert_eq!(cr3, (ANSWER, vec![Op::ReadControl(3)]));
    assert_eq!(cr4, (ANSWER, vec![Op::ReadControl(4)]));
    // SAFETY: traps.
    let ((), ops) = trapped(|| unsafe { port.write_cr3(VALUE) });
    assert_eq!(ops, [Op::WriteControl(3, VALUE)]);
    // SAFETY: traps.
    let ((), ops) = trapped(|| unsafe { port.write_cr4(VALUE) });
    assert_eq!(ops, [Op::WriteControl(4, VALUE)]);
}

#[test]
fn addresses_and_tags_arrive_whole() {
    let port = tlb_port();
    let address = 0xffff_8123_4567_89ab;
    let ((), ops) = trapped(|| port.invlpg(address));
    assert_eq!(ops, [Op::Invlpg(address as u64)]);
    let pcid = Pcid::new(0xabc).unwrap();
    for (kind, number, descriptor) in [
        (InvpcidKind::Page(pcid, address), 0, [0xabc, address as u64]),
        (InvpcidKind::Context(pcid), 1, [0xabc, 0]),
        (InvpcidKind::All, 2, [0, 0]),
        (InvpcidKind::AllNonGlobal, 3, [0, 0]),
    ] {
        // SAFETY: traps.
        let ((), ops) = trapped(|| unsafe { port.invpcid(kind) });
        assert_eq!(ops, [Op::Invpcid(number, descriptor)]);
    }
}

#[test]
fn instructions_of_vmx_arrive_whole_and_may_fail() {
    // SAFETY: what needs CPL 0 traps.
    let port = unsafe { vmx::Hardware::new() };
    for (kind, op) in [
        (InveptKind::Context(VALUE), Op::Invept(1, [VALUE, 0])),
        (InveptKind::All, Op::Invept(2, [0, 0])),
    ] {
        // SAFETY: traps.
        assert_eq!(trapped(|| unsafe { port.invept(kind) }), (Ok(()), vec![op]));
    }
    for (kind, op) in [
        (InvvpidKind::Context(0xabcd), Op::Invvpid(1, [0xabcd, 0])),
        (InvvpidKind::All, Op::Invvpid(2, [0, 0])),
    ] {
        // SAFETY: traps.
        let invvpid = || unsafe { port.invvpid(kind) };
        assert_eq!(trapped(invvpid), (Ok(()), vec![op]));
    }
    for (field, number) in [(VmcsField::Vpid, 0), (VmcsField::EptPointer, 0x201a)] {
        // SAFETY: traps.
        let vmwrite = || unsafe { port.vmwrite(field, VALUE) };
        assert_eq!(trapped(vmwrite), (Ok(()), vec![Op::VmWrite(number, VALUE)]));
    }
    for invalid in INVALID {
        // SAFETY: traps.
        let vmwrite = || unsafe { port.vmwrite(VmcsField::EptPointer, invalid) };
        assert_eq!(trapped(vmwrite).0, Err(VmFail));
        // SAFETY: traps.
        let invept = || unsafe { port.invept(InveptKind::Context(invalid)) };
        assert_eq!(trapped(invept).0, Err(VmFail));
    }
}

#[test]
fn interrupts_are_enabled_again_only_if_they_were() {
    let (before, ops) = trapped(irq::save);
    assert_eq!((before, ops), (IrqState::Enabled, vec![Op::Cli]));
    // SAFETY: traps.
    let ((), ops) = trapped(|| unsafe { irq::restore(IrqState::Disabled) });
    assert_eq!(ops, []);
    // SAFETY: traps.
    let ((), ops) = trapped(|| unsafe { irq::restore(before) });
    assert_eq!(ops, [Op::Sti]);
}

#[test]
fn everything_goes_with_interrupts_off_around_the_change_of_cr4() {
    let features = Features::with_flags(FeatureFlags::PGE);
    // SAFETY: what needs CPL 0 traps.
    let tlb = unsafe { Tlb::new(&features) };
    let ((), ops) = trapped(|| tlb.flush_all());
    let expected = [
        Op::Cli,
        Op::ReadControl(4),
        Op::WriteControl(4, ANSWER ^ CR4_PGE),
        Op::WriteControl(4, ANSWER),
        Op::Sti,
    ];
    assert_eq!(ops, expected);
}

#[test]
fn the_page_is_reached_at_the_register_and_nowhere_else() {
    let mut page = Page::new();
    let at = page.at();
    // SAFETY: a page in ordinary memory takes everything.
    let port = unsafe { apic::Hardware::with_page(at) };
    for register in [
        Register::Id,
        Register::EndOfInterrupt,
        Register::CommandLow,
        Register::CommandHigh,
        Register::TimerDivide,
    ] {
        let offset = register.offset();
        // SAFETY: as above.
        unsafe { port.write_page(offset, 0x1234_5678) };
        assert_eq!(page.written(), [(usize::from(offset), 0x1234_5678)]);
        // SAFETY: as above.
        assert_eq!(unsafe { port.read_page(offset) }, 0x1234_5678);
        page.0[usize::from(offset) / 4] = 0;
    }
}

/// The last register's place, and what is beyond, or between two.
#[test]
fn registers_end_with_the_page() {
    let mut page = Page::new();
    let at = page.at();
    // SAFETY: a page in ordinary memory takes everything.
    let port = unsafe { apic::Hardware::with_page(at) };
    let is_register = |offset| {
        // SAFETY: as above.
        std::panic::catch_unwind(|| unsafe { port.read_page(offset) }).is_ok()
    };
    let found: Vec<u16> = [0, 8, 0xff0, 0xff8, 0x1000, 0xfff0]
        .into_iter()
        .filter(|&offset| is_register(offset))
        .collect();
    assert_eq!(found, [0, 0xff0]);
}

#[test]
fn owned_and_lent_controllers_send_with_the_same_instructions() {
    let to = Destination::Physical(ApicId(5));
    // SAFETY: traps.
    let owned = unsafe { LocalApic::new_x2apic() };
    // SAFETY: traps.
    let lent = unsafe { IpiSender::new_x2apic() };
    let expected = vec![Op::WriteMsr(0x830, 0x5_0000_40f0)];
    assert_eq!(
        trapped(|| owned.send(to, VECTOR)),
        (Ok(()), expected.clone())
    );
    assert_eq!(trapped(|| lent.send(to, VECTOR)), (Ok(()), expected));

    for is_owned in [true, false] {
        let mut page = Page::new();
        let at = page.at();
        let (result, ops) = trapped(|| match is_owned {
            // SAFETY: a page in ordinary memory takes everything; the rest traps.
            true => unsafe { LocalApic::new_xapic(at) }.send(to, VECTOR),
            // SAFETY: as above.
            false => unsafe { IpiSender::new_xapic(at) }.send(to, VECTOR),
        });
        assert_eq!((result, ops), (Ok(()), vec![Op::Cli, Op::Sti]));
        assert_eq!(page.written(), [(0x300, 0x40f0), (0x310, 5 << 24)]);
    }
}

#[test]
fn the_page_of_the_controller_is_the_address_in_its_register() {
    // SAFETY: traps.
    let (base, ops) = trapped(|| unsafe { apic::physical_base() });
    assert_eq!(
        (base, ops),
        (0x0003_4567_89ab_c000, vec![Op::ReadMsr(0x1b)])
    );
}

#[test]
fn microcode_is_asked_for_in_the_upper_half_after_a_zero() {
    let asked = vec![Op::WriteMsr(0x8b, 0), Op::ReadMsr(0x8b)];
    // SAFETY: traps.
    let (microcode, ops) = trapped(|| unsafe { Microcode::read() });
    assert_eq!(
        (microcode, ops),
        (Microcode((ANSWER >> 32) as u32), asked.clone())
    );
    let raptor_lake = Processor {
        vendor: Vendor::Intel,
        family: 6,
        model: 0xb7,
        stepping: 1,
    };
    let features = Features::with_flags(FeatureFlags::all()).with_processor(raptor_lake);
    // SAFETY: traps.
    let (support, ops) = trapped(|| unsafe { PcidSupport::detect(&features) });
    assert_eq!((support, ops), (PcidSupport::Usable, asked));
}

/// The code of a function, up to the first byte that could be its end.
fn code_at(start: *const u8) -> Vec<u8> {
    const RET: u8 = 0xc3;
    // SAFETY: until a RET it is a function's code.
    let bytes = (0..).map(|at| unsafe { start.wrapping_add(at).read() });
    bytes.take_while(|&byte| byte != RET).collect()
}

/// MFENCE alone does not hold back a WRMSR, and LFENCE alone lets stores come later.
#[test]
fn the_fence_is_mfence_and_then_lfence() {
    const MFENCE_LFENCE: [u8; 6] = [0x0f, 0xae, 0xf0, 0x0f, 0xae, 0xe8];
    let of_port = <apic::Hardware as ApicPort>::fence;
    for start in [
        fence_before_ipi as fn() as *const u8,
        of_port as fn(&apic::Hardware) as *const u8,
    ] {
        let code = code_at(start);
        let mut windows = code.windows(MFENCE_LFENCE.len());
        let found = windows.any(|window| window == MFENCE_LFENCE);
        assert!(found, "{code:x?}");
    }
}
