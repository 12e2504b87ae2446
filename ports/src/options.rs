//! What the machine is to do: words `name=value`, which QEMU has loaded at [`arch::OPTIONS`].

use crate::arch;
use crate::console::say;

/// No more of them are read.
const MOST_BYTES: usize = 512;

/// The words of the boot.
#[derive(Debug)]
pub struct Options(&'static str);

impl Options {
    /// Once, on the boot CPU.
    pub fn read() -> Self {
        // SAFETY: memory of the board that nobody else uses; QEMU has written it before the first instruction.
        let bytes = unsafe { core::slice::from_raw_parts(arch::OPTIONS as *const u8, MOST_BYTES) };
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
        Self(core::str::from_utf8(&bytes[..length]).unwrap_or(""))
    }

    /// What comes behind the last `name=`.
    pub fn get(&self, name: &str) -> Option<&'static str> {
        self.0
            .split_whitespace()
            .rev()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// The number behind `name=`, or `otherwise`.
    pub fn number(&self, name: &str, otherwise: u64) -> u64 {
        let Some(text) = self.get(name) else {
            return otherwise;
        };
        text.parse().unwrap_or_else(|_| {
            say!("ports: {name}={text} is not a number, {otherwise} is taken");
            otherwise
        })
    }

    /// What is to be done.
    pub fn work(&self) -> &'static str {
        self.get("work").unwrap_or("torture")
    }
}
