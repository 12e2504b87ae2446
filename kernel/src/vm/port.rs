//! Accesses of guests to ports: all are the VMM's affair.

use super::abi;
use super::exits::Next;
use super::run_page::RunPage;
use super::vcpu::{State, Unfinished};
use super::vmcb::Field;

/// Bits of EXITINFO1 (APM vol. 2, "EXITINFO1 for IOIO Intercept").
const READS: u64 = 1 << 0;
const IS_STRING: u64 = 1 << 2;
const BYTES_SHIFT: u32 = 4;
const BYTES_MASK: u64 = 7;
const PORT_SHIFT: u32 = 16;

impl State {
    /// Tells the VMM of an access. The guest goes on behind it when that has done its part.
    pub fn access_port(&mut self, page: &RunPage) -> Next {
        let info = self.vmcb.get(Field::EXIT_INFO_1);
        if info & IS_STRING != 0 {
            // What it moves is in the guest's memory, by the guest's page tables.
            page.set_internal_error(abi::ERROR_EMULATION, &[]);
            return Next::Vmm;
        }
        let bytes = (info >> BYTES_SHIFT & BYTES_MASK) as u8;
        let port = (info >> PORT_SHIFT) as u16;
        let reads = info & READS != 0;
        let value = self.vmcb.get(Field::RAX) as u32;
        let mask = u32::MAX >> (32 - 8 * u32::from(bytes.clamp(1, 4)));
        page.set_io(port, bytes, (!reads).then_some(value & mask));
        self.unfinished = Unfinished::Port {
            rip: self.vmcb.get(Field::RIP),
            next: self.vmcb.get(Field::EXIT_INFO_2),
            reads: if reads { bytes } else { 0 },
        };
        Next::Vmm
    }
}
