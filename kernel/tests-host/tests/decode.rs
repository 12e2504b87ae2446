//! Instructions of guests that access memory which there is not.

use shootdown_kernel_tests::decode::{
    DebugMove, Extend, Instruction, Mode, Operand, Register, decode, decode_debug_move,
};

fn register(number: u8) -> Register {
    Register {
        number,
        is_high: false,
    }
}

fn high(number: u8) -> Register {
    Register {
        number,
        is_high: true,
    }
}

const fn load(number: Register) -> Operand {
    Operand::Load(number, Extend::No)
}

#[test]
fn moves_are_read_as_the_processor_reads_them() {
    use Mode::{Bits16, Bits32, Bits64};
    use Operand::{Constant, Load, Store};
    let cases: &[(Mode, &[u8], u8, Operand)] = &[
        (Bits32, &[0x89, 0x07], 4, Store(register(0))),
        (Bits32, &[0x88, 0x27], 1, Store(high(0))),
        (Bits32, &[0x66, 0x89, 0x4f, 0x08], 2, Store(register(1))),
        (Bits32, &[0x8b, 0x15, 1, 2, 3, 4], 4, load(register(2))),
        (Bits32, &[0x8b, 0x34, 0x24], 4, load(register(6))),
        (
            Bits32,
            &[0x8b, 0x04, 0x25, 1, 2, 3, 4],
            4,
            load(register(0)),
        ),
        (
            Bits32,
            &[0x8b, 0x84, 0x24, 1, 2, 3, 4],
            4,
            load(register(0)),
        ),
        (Bits32, &[0x67, 0x8b, 0x07], 4, load(register(0))),
        (Bits32, &[0xa1, 1, 2, 3, 4], 4, load(register(0))),
        (Bits32, &[0xa2, 1, 2, 3, 4], 1, Store(register(0))),
        (Bits32, &[0xc6, 0x00, 0x7f], 1, Constant(0x7f)),
        (
            Bits32,
            &[0xc7, 0x40, 1, 4, 3, 2, 1],
            4,
            Constant(0x0102_0304),
        ),
        (Bits16, &[0x89, 0x07], 2, Store(register(0))),
        (Bits16, &[0x8b, 0x06, 1, 2], 2, load(register(0))),
        (Bits16, &[0x8b, 0x46, 1], 2, load(register(0))),
        (Bits16, &[0x66, 0x8b, 0x87, 1, 2], 4, load(register(0))),
        (
            Bits16,
            &[0x66, 0x67, 0xc7, 0x00, 4, 3, 2, 1],
            4,
            Constant(0x0102_0304),
        ),
        (Bits64, &[0x48, 0x89, 0x07], 8, Store(register(0))),
        (Bits64, &[0x44, 0x8b, 0x07], 4, load(register(8))),
        (Bits64, &[0x40, 0x88, 0x27], 1, Store(register(4))),
        (
            Bits64,
            &[0x48, 0xa1, 1, 2, 3, 4, 5, 6, 7, 8],
            8,
            load(register(0)),
        ),
        (
            Bits64,
            &[0x48, 0xc7, 0x07, 0xff, 0xff, 0xff, 0xff],
            8,
            Constant(u64::MAX),
        ),
        (
            Bits64,
            &[0x0f, 0xb6, 0x07],
            1,
            Load(register(0), Extend::Zero(4)),
        ),
        (
            Bits64,
            &[0x48, 0x0f, 0xbf, 0x0f],
            2,
            Load(register(1), Extend::Sign(8)),
        ),
        (
            Bits64,
            &[0x65, 0x66, 0x41, 0x8b, 0x00],
            2,
            load(register(0)),
        ),
    ];
    for &(mode, code, bytes, operand) in cases {
        let expected = Instruction {
            length: code.len(),
            bytes,
            operand,
        };
        let longer = [code, &[0xf4; 4]].concat();
        assert_eq!(decode(&longer, mode), Some(expected), "{code:02x?}");
        for short in 0..code.len() {
            assert_eq!(
                decode(&code[..short], mode),
                None,
                "{:02x?}",
                &code[..short]
            );
        }
    }
}

#[test]
fn others_are_none() {
    let others: &[&[u8]] = &[
        // Between registers; with another opcode in ModRM; a count; a string; without end.
        &[0x89, 0xc7],
        &[0xc7, 0x48, 1, 4, 3, 2, 1],
        &[0xff, 0x07],
        &[0xf3, 0xa4],
        &[0x66; 20],
        &[],
    ];
    for code in others {
        assert_eq!(decode(code, Mode::Bits32), None, "{code:02x?}");
    }
}

#[test]
fn moves_of_debug_registers_name_the_other_register() {
    let cases: &[(Mode, &[u8], Option<u8>)] = &[
        (Mode::Bits32, &[0x0f, 0x23, 0xc1], Some(1)),
        (Mode::Bits16, &[0x0f, 0x21, 0xff], Some(7)),
        (Mode::Bits64, &[0x41, 0x0f, 0x23, 0xf8], Some(8)),
        (Mode::Bits64, &[0x44, 0x0f, 0x21, 0xf8], Some(0)),
        // Its ModRM says memory, and is not believed.
        (Mode::Bits32, &[0x66, 0x0f, 0x21, 0x04], Some(4)),
        (Mode::Bits32, &[0x0f, 0x22, 0xc0], None),
        (Mode::Bits32, &[0x89, 0x21, 0xc0], None),
        (Mode::Bits32, &[0x0f, 0x21], None),
    ];
    for &(mode, code, general) in cases {
        let expected = general.map(|general| DebugMove {
            length: code.len(),
            general,
        });
        let longer = match general {
            Some(_) => [code, &[0xf4; 4]].concat(),
            None => code.to_vec(),
        };
        assert_eq!(decode_debug_move(&longer, mode), expected, "{code:02x?}");
    }
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for _ in 0..200_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let code = [state.to_le_bytes(), state.rotate_left(29).to_le_bytes()].concat();
        for mode in [Mode::Bits16, Mode::Bits32, Mode::Bits64] {
            let found = decode(&code, mode);
            assert!(found.is_none_or(|found| found.length <= 15), "{code:02x?}");
            let _any = decode_debug_move(&code, mode);
        }
    }
}
