//! Of the kernel's hypervisor: what a guest finds when it goes on. The files are the kernel's, the virtual CPU around them is a shim.

#[path = "../../src/vm/event.rs"]
mod event;
#[path = "../../src/vm/interrupt.rs"]
mod interrupt;
#[path = "../../src/vm/nmi.rs"]
mod nmi;
#[path = "../../src/vm/vmcb.rs"]
pub mod vmcb;

/// Shim of the interface.
pub mod abi {
    /// `KVM_INTERRUPT`'s argument.
    #[derive(Debug)]
    pub struct Interrupt {
        /// The vector.
        pub vector: u32,
    }
}

/// Shim of a virtual CPU.
pub mod vcpu {
    use super::nmi::Nmi;
    use super::vmcb::Vmcb;

    /// Of its state what these files know.
    #[derive(Debug)]
    pub struct State {
        /// What the processor reads and writes.
        pub vmcb: Vmcb,
        pub(super) interrupt: Option<u8>,
        pub(super) nmi: Nmi,
    }

    impl State {
        /// After a reset; `None` without memory.
        pub fn new() -> Option<Self> {
            let mut state = Self {
                vmcb: Vmcb::new()?,
                interrupt: None,
                nmi: Nmi::default(),
            };
            state.forget_events();
            Some(state)
        }
    }
}
