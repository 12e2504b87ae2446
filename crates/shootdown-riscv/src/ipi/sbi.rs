//! Calls of the firmware (RISC-V Supervisor Binary Interface Specification).

use super::port::Port;

/// What a call hands over in a0 to a3.
pub type SbiArguments = [u64; 4];

/// Numbers of extensions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extension;

impl Extension {
    /// Base ("Base Extension").
    pub const BASE: u64 = 0x10;
    /// Interrupts ("IPI Extension").
    pub const IPI: u64 = 0x73_5049;
    /// Fences ("RFENCE Extension").
    pub const RFENCE: u64 = 0x5246_4e43;
}

/// What a call returns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SbiReturn {
    /// 0, or what went wrong.
    pub error: i64,
    /// The answer.
    pub value: u64,
}

impl SbiReturn {
    /// The answer, if nothing went wrong.
    ///
    /// # Errors
    ///
    /// The error, if it is not 0.
    pub const fn result(self) -> Result<u64, SbiError> {
        match self.error {
            0 => Ok(self.value),
            error => Err(SbiError(error)),
        }
    }
}

/// Why the firmware refused ("Binary Encoding", "Standard SBI Errors").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SbiError(pub i64);

impl SbiError {
    /// The firmware does not have the extension, or the function.
    pub const NOT_SUPPORTED: Self = Self(-2);
    /// A hart is not there, or not this supervisor's.
    pub const INVALID_PARAM: Self = Self(-3);
}

/// Whether the firmware has an extension. Any context.
pub fn probe<P: Port>(port: &P, extension: u64) -> bool {
    // SAFETY: function 3 of the base extension tells, and nothing else.
    let answer = unsafe { port.sbi_call(Extension::BASE, 3, [extension, 0, 0, 0]) };
    answer.result().is_ok_and(|value| value != 0)
}
