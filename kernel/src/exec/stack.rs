//! The first contents of a program's stack (System V ABI, AMD64, section 3.4.1).

use super::error::ExecError;
use crate::mm::MapError;
use crate::mm::layout::STACK_TOP;
use alloc::vec::Vec;
use linux_raw_sys::auxvec;

/// Bytes of stack mapped at start, as on Linux; it grows from there.
pub const INITIAL_BYTES: usize = 132 << 10;

/// Most bytes of arguments, environment and vectors; the rest of the initial stack is for the program.
const LIMIT_BYTES: usize = 96 << 10;

/// Ready-made bytes, to be copied to `rsp`; they end at the top of the stack.
#[derive(Debug)]
pub struct StackImage {
    /// The initial stack pointer.
    pub rsp: usize,
    /// What is there.
    pub bytes: Vec<u8>,
}

/// Lays out, from `rsp` up: argc, argv, null, envp, null, auxiliary vector, strings.
///
/// # Errors
/// [`ExecError::ArgumentsTooLong`], or no kernel memory.
pub fn build(
    argv: &[impl AsRef<[u8]>],
    envp: &[impl AsRef<[u8]>],
    aux: &[(u32, usize)],
    random: [u8; 16],
) -> Result<StackImage, ExecError> {
    let words = 1 + argv.len() + 1 + envp.len() + 1 + 2 * (aux.len() + 3);
    let strings = || {
        argv.iter()
            .map(AsRef::as_ref)
            .chain(envp.iter().map(AsRef::as_ref))
    };
    let fixed = words * size_of::<usize>() + random.len();
    let total = strings()
        .map(len_with_nul)
        .fold(fixed, usize::saturating_add);
    if total > LIMIT_BYTES {
        return Err(ExecError::ArgumentsTooLong);
    }
    let rsp = (STACK_TOP - total) & !15;
    let mut image = StackImage {
        rsp,
        bytes: Vec::new(),
    };
    let reserved = image.bytes.try_reserve(STACK_TOP - rsp);
    reserved.map_err(|_| MapError::NoMemory)?;
    let random_address = rsp + words * size_of::<usize>();
    let mut string = random_address + random.len();
    let program = string;
    image.word(argv.len());
    image.pointers(argv, &mut string);
    image.pointers(envp, &mut string);
    for &(kind, value) in aux {
        image.pair(kind, value);
    }
    image.pair(auxvec::AT_RANDOM, random_address);
    image.pair(auxvec::AT_EXECFN, program);
    image.pair(auxvec::AT_NULL, 0);
    image.bytes.extend_from_slice(&random);
    for string in strings() {
        image.bytes.extend_from_slice(string);
        image.bytes.push(0);
    }
    Ok(image)
}

impl StackImage {
    fn word(&mut self, value: usize) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn pair(&mut self, kind: u32, value: usize) {
        self.word(kind as usize);
        self.word(value);
    }

    /// The addresses of strings laid down from `next` up, and a null.
    fn pointers(&mut self, strings: &[impl AsRef<[u8]>], next: &mut usize) {
        for string in strings {
            self.word(*next);
            *next += len_with_nul(string.as_ref());
        }
        self.word(0);
    }
}

fn len_with_nul(string: &[u8]) -> usize {
    string.len() + 1
}
