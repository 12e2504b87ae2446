//! Instructions by which guests access memory that there is not: MOV in its forms, and its kin that extend.
//!
//! Where the access goes is known from the nested page fault; what is missing is how long the instruction is, and what it moves. And MOV from and
//! to debug registers, of which the exit code says one and the direction.

/// The longest instruction.
pub const MOST_BYTES: usize = 15;

/// What a load does with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extend {
    /// Puts them into that part of the register.
    No,
    /// Fills so many bytes of the register, with zeroes or the sign.
    Zero(u8),
    Sign(u8),
}

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// To a register, from memory.
    Load(Register, Extend),
    /// From a register.
    Store(Register),
    /// A constant.
    Constant(u64),
}

/// A general register by its number in instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    pub number: u8,
    /// Its second byte, of the first four registers.
    pub is_high: bool,
}

impl Register {
    /// RAX.
    pub const ACCUMULATOR: Self = Self {
        number: 0,
        is_high: false,
    };
}

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub length: usize,
    /// Bytes in memory.
    pub bytes: u8,
    pub operand: Operand,
}

/// How the processor reads code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Bits16,
    Bits32,
    Bits64,
}

struct Reader<'a> {
    code: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.code.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    fn constant(&mut self, bytes: u8) -> Option<u64> {
        let read = |(at, value): (u32, u64), byte: u8| (at + 8, value | u64::from(byte) << at);
        let mut all = (0, 0);
        for _ in 0..bytes {
            all = read(all, self.next()?);
        }
        Some(all.1)
    }
}

/// Prefixes.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    is_operand_odd: bool,
    is_address_odd: bool,
    rex: u8,
}

const REX_W: u8 = 8;
const REX_R: u8 = 4;
const REX_B: u8 = 1;

/// The instruction that `code` begins with; `None` for any other.
pub fn decode(code: &[u8], mode: Mode) -> Option<Instruction> {
    let code = &code[..code.len().min(MOST_BYTES)];
    let mut reader = Reader { code, at: 0 };
    let (prefixes, opcode) = read_prefixes(&mut reader, mode)?;
    let wide = prefixes.operand_bytes(mode);
    let (bytes, operand) = match opcode {
        0x88 | 0x89 => {
            let bytes = if opcode == 0x88 { 1 } else { wide };
            let number = read_modrm(&mut reader, prefixes, mode)?;
            (bytes, Operand::Store(prefixes.register(number, bytes)))
        }
        0x8a | 0x8b => {
            let bytes = if opcode == 0x8a { 1 } else { wide };
            let number = read_modrm(&mut reader, prefixes, mode)?;
            let register = prefixes.register(number, bytes);
            (bytes, Operand::Load(register, Extend::No))
        }
        0xa0..=0xa3 => {
            reader.skip(prefixes.address_bytes(mode));
            let bytes = if opcode & 1 == 0 { 1 } else { wide };
            let register = prefixes.register(0, bytes);
            let operand = match opcode {
                0xa0 | 0xa1 => Operand::Load(register, Extend::No),
                _ => Operand::Store(register),
            };
            (bytes, operand)
        }
        0xc6 | 0xc7 => {
            let bytes = if opcode == 0xc6 { 1 } else { wide };
            if read_modrm(&mut reader, prefixes, mode)? & 7 != 0 {
                return None;
            }
            // Four bytes stand for eight with their sign.
            let value = reader.constant(bytes.min(4))?;
            let signed = if bytes == 8 {
                value as i32 as u64
            } else {
                value
            };
            (bytes, Operand::Constant(signed))
        }
        0x0f => extending(&mut reader, prefixes, mode, wide)?,
        _ => return None,
    };
    let is_whole = reader.at <= code.len();
    is_whole.then_some(Instruction {
        length: reader.at,
        bytes,
        operand,
    })
}

/// A MOV between a general register and a debug register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugMove {
    pub length: usize,
    /// The number of the general register.
    pub general: u8,
}

/// The same for a MOV from or to a debug register. Both are registers whatever its ModRM says.
pub fn decode_debug_move(code: &[u8], mode: Mode) -> Option<DebugMove> {
    let mut reader = Reader { code, at: 0 };
    let (prefixes, escape) = read_prefixes(&mut reader, mode)?;
    let opcode = reader.next()?;
    let modrm = reader.next()?;
    let is_move = escape == 0x0f && matches!(opcode, 0x21 | 0x23);
    let high = if prefixes.rex & REX_B != 0 { 8 } else { 0 };
    is_move.then_some(DebugMove {
        length: reader.at,
        general: modrm & 7 | high,
    })
}

/// MOVZX and MOVSX.
fn extending(
    reader: &mut Reader<'_>,
    prefixes: Prefixes,
    mode: Mode,
    wide: u8,
) -> Option<(u8, Operand)> {
    let opcode = reader.next()?;
    let extend = match opcode {
        0xb6 | 0xb7 => Extend::Zero(wide),
        0xbe | 0xbf => Extend::Sign(wide),
        _ => return None,
    };
    let number = read_modrm(reader, prefixes, mode)?;
    let bytes = if opcode & 1 == 0 { 1 } else { 2 };
    Some((
        bytes,
        Operand::Load(prefixes.register(number, wide), extend),
    ))
}

/// All prefixes, and the byte behind them.
fn read_prefixes(reader: &mut Reader<'_>, mode: Mode) -> Option<(Prefixes, u8)> {
    let mut prefixes = Prefixes::default();
    loop {
        let byte = reader.next()?;
        match byte {
            0x66 => prefixes.is_operand_odd = true,
            0x67 => prefixes.is_address_odd = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => {}
            0x40..=0x4f if mode == Mode::Bits64 => {
                // It counts only right before the instruction.
                prefixes.rex = byte;
                return Some((prefixes, reader.next()?));
            }
            _ => return Some((prefixes, byte)),
        }
    }
}

impl Prefixes {
    fn operand_bytes(self, mode: Mode) -> u8 {
        match (mode, self.is_operand_odd) {
            _ if self.rex & REX_W != 0 => 8,
            (Mode::Bits16, false) | (Mode::Bits32 | Mode::Bits64, true) => 2,
            _ => 4,
        }
    }

    fn address_bytes(self, mode: Mode) -> usize {
        match (mode, self.is_address_odd) {
            (Mode::Bits64, false) => 8,
            (Mode::Bits16, false) | (Mode::Bits32, true) => 2,
            _ => 4,
        }
    }

    /// Without REX, single bytes of registers 4 to 7 are the second ones of 0 to 3.
    fn register(self, number: u8, bytes: u8) -> Register {
        let is_high = bytes == 1 && self.rex == 0 && number >= 4;
        Register {
            number: if is_high { number - 4 } else { number },
            is_high,
        }
    }
}

/// Reads ModRM and what belongs to the address; the register. `None` where both operands are registers.
fn read_modrm(reader: &mut Reader<'_>, prefixes: Prefixes, mode: Mode) -> Option<u8> {
    let modrm = reader.next()?;
    let (form, place) = (modrm >> 6, modrm & 7);
    if form == 3 {
        return None;
    }
    let displacement = if prefixes.address_bytes(mode) == 2 {
        match (form, place) {
            (0, 6) | (2, _) => 2,
            (1, _) => 1,
            _ => 0,
        }
    } else {
        let base = if place == 4 {
            reader.next()? & 7
        } else {
            place
        };
        match (form, base) {
            (0, 5) | (2, _) => 4,
            (1, _) => 1,
            _ => 0,
        }
    };
    reader.skip(displacement);
    let high = if prefixes.rex & REX_R != 0 { 8 } else { 0 };
    Some(modrm >> 3 & 7 | high)
}
