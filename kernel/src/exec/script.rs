//! Scripts: files that name the program that runs them in their first line.

use crate::mm::MemoryFile;
use crate::mm::file::Copy;
use alloc::string::String;

/// Bytes of a first line that count, as on Linux.
const LINE_BYTES: usize = 256;

/// What the first line of a script says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The program that runs it.
    pub interpreter: String,
    /// The argument that it gets before the path of the script: all that follows, as one.
    pub argument: Option<String>,
}

impl Script {
    /// `None` for what is no script.
    pub fn of(file: &MemoryFile) -> Option<Self> {
        let mut bytes = [0; LINE_BYTES];
        let len = file.read(Copy::InMemory, 0, &mut bytes);
        Self::parse(&bytes[..len])
    }

    /// The same from the beginning of the file.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let line = bytes
            .strip_prefix(b"#!")?
            .split(|&byte| byte == b'\n')
            .next()?;
        let line = core::str::from_utf8(line).ok()?.trim();
        let (interpreter, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let argument = Some(rest.trim()).filter(|rest| !rest.is_empty());
        (!interpreter.is_empty()).then(|| Self {
            interpreter: interpreter.into(),
            argument: argument.map(Into::into),
        })
    }
}
