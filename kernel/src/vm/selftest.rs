//! What no guest can bring about: the host's own state where the guest's should be.

use super::abi::{exit, run};
use super::exits::{Next, code};
use super::interrupt::V_INTR_MASKING;
use super::machine::Machine;
use super::vmcb::Field;
use crate::mm::MemorySpace;

/// An address of the host's, which the VMM must not see.
const OF_HOST: u64 = 0xffff_ffff_8010_0000;

/// A virtual CPU whose VMCB has the host's state is told of as an internal error, and begins anew.
pub fn a_lost_guest_is_told() {
    let space = MemorySpace::new().expect("a space");
    let machine = Machine::new(&space).expect("a machine");
    let vcpu = machine.create_vcpu(0).expect("a virtual CPU");
    let page = vcpu.page();
    let mut state = vcpu.state();
    // As for an interrupt, after which the guest goes on.
    state.vmcb.set(Field::EXIT_CODE, code::INTR.into());
    assert_eq!(state.handle_exit(&machine, page), Ok(Next::Guest));
    for field in [Field::RIP, Field::RSP, Field::CR3] {
        state.vmcb.set(field, OF_HOST);
    }
    state.vmcb.set(Field::V_INTR, 0);
    assert_eq!(state.handle_exit(&machine, page), Ok(Next::Vmm));
    assert_eq!(page.read::<u32>(run::EXIT_REASON), exit::INTERNAL_ERROR);
    for field in [Field::RIP, Field::RSP, Field::CR3] {
        assert_ne!(state.vmcb.get(field), OF_HOST, "{field:?}");
    }
    assert_eq!(state.vmcb.get(Field::V_INTR), V_INTR_MASKING);
}
