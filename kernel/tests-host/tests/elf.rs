//! ELF files: good ones, every kind of bad one, and random damage.

mod support;

use proptest::prelude::*;
use shootdown_kernel_tests::addr::PhysAddr;
use shootdown_kernel_tests::errno::Errno;
use shootdown_kernel_tests::exec::elf::{Image, LoadAddress};
use shootdown_kernel_tests::exec::error::ExecError;
use shootdown_kernel_tests::exec::{self, Arguments, UserEntry};
use shootdown_kernel_tests::memory;
use shootdown_kernel_tests::mm::{MapError, MemoryFile, MemorySpace, PAGE_SIZE, Prot, layout};
use std::sync::Arc;
use support::Turn;

const LOAD: u32 = 1;
const INTERP: u32 = 3;
const TEXT: (u32, u32, usize, usize, usize, usize) = (LOAD, 5, 0, 0x40_0000, 0x1000, 0x1000);
const DATA: (u32, u32, usize, usize, usize, usize) = (LOAD, 6, 0x1008, 0x40_1008, 0x10, 0x3000);

/// A file of 0x1018 bytes with these program headers: type, flags, offset, address, bytes in the file,
/// bytes in memory.
fn file(kind: u16, headers: &[(u32, u32, usize, usize, usize, usize)]) -> Vec<u8> {
    let mut file = vec![0u8; 0x1018];
    file[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
    file[16..18].copy_from_slice(&kind.to_le_bytes());
    file[18..20].copy_from_slice(&62u16.to_le_bytes());
    file[24..32].copy_from_slice(&0x40_0100u64.to_le_bytes());
    file[32..40].copy_from_slice(&64u64.to_le_bytes());
    file[54..56].copy_from_slice(&56u16.to_le_bytes());
    file[56..58].copy_from_slice(&(headers.len() as u16).to_le_bytes());
    for (index, header) in headers.iter().enumerate() {
        let (kind, flags, offset, address, file_bytes, memory_bytes) = *header;
        let at = 64 + 56 * index;
        file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        file[at + 4..at + 8].copy_from_slice(&flags.to_le_bytes());
        let words = [offset, address, 0, file_bytes, memory_bytes, PAGE_SIZE];
        for (slot, value) in words.into_iter().enumerate() {
            file[at + 8 + 8 * slot..][..8].copy_from_slice(&value.to_le_bytes());
        }
    }
    file[0x1008..0x1018].copy_from_slice(b"sixteen bytes!!!");
    file
}

fn in_memory(file: &[u8]) -> Arc<MemoryFile> {
    memory::init();
    MemoryFile::new("file", file.to_vec().leak()).unwrap()
}

fn parse(file: &[u8]) -> Result<Image, ExecError> {
    Image::parse(&in_memory(file))
}

fn error(file: &[u8]) -> ExecError {
    parse(file).expect_err("a bad file")
}

fn load(space: &MemorySpace, file: &[u8]) -> Result<UserEntry, ExecError> {
    load_with(space, file, |_| Err(Errno::ENOENT))
}

fn load_with(
    space: &MemorySpace,
    file: &[u8],
    open: impl FnOnce(&str) -> Result<Arc<MemoryFile>, Errno>,
) -> Result<UserEntry, ExecError> {
    let arguments = Arguments {
        argv: &["prog", "one"],
        envp: &["A=b"],
        random: [7; 16],
    };
    exec::load(space, &in_memory(file), arguments, open)
}

#[test]
fn headers_may_be_in_any_segment() {
    // In the file's second page, which has a segment of its own.
    let (headers, second) = (0x1040, (LOAD, 4, 0x1000, 0x50_0000, 0x1000, 0x1000));
    let mut file = file(2, &[TEXT, second]);
    file.resize(0x2000, 0);
    file.copy_within(64..64 + 2 * 56, headers);
    file[32..40].copy_from_slice(&(headers as u64).to_le_bytes());
    assert_eq!(parse(&file).unwrap().headers_address(), 0x50_0040);
}

#[test]
fn a_static_program_is_read() {
    let file = file(2, &[TEXT, DATA]);
    let image = parse(&file).unwrap();
    assert_eq!(image.entry(), 0x40_0100);
    assert_eq!(image.load_address(), LoadAddress::Fixed);
    assert_eq!(image.header_count(), 2);
    assert_eq!(image.headers_address(), 0x40_0040);
    let segments: Vec<_> = image.segments().collect();
    assert_eq!(segments[0].prot, Prot::READ.with(Prot::EXEC));
    assert_eq!((segments[1].offset, segments[1].file_bytes), (0x1008, 0x10));
    assert_eq!(segments[1].bytes, 0x3000);
    let zeroes = (LOAD, 6, 0x1000, 0x40_2000, 0, 0x2000);
    let file = self::file(2, &[TEXT, zeroes]);
    let image = parse(&file).unwrap();
    let last = image.segments().last().unwrap();
    assert_eq!(
        (last.file_bytes, last.bytes),
        (0, 0x2000),
        "nothing of the file"
    );
}

#[test]
fn bad_files_are_named() {
    let good = file(2, &[TEXT, DATA]);
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        error(&bad)
    };
    assert_eq!(error(b""), ExecError::NotElf);
    assert_eq!(error(b"#!/bin/sh\n"), ExecError::NotElf);
    assert_eq!(error(&good[..40]), ExecError::Truncated);
    assert_eq!(error(&good[..0x1017]), ExecError::Truncated);
    assert_eq!(with(4, &[1]), ExecError::ThirtyTwoBit);
    assert_eq!(with(5, &[2]), ExecError::BigEndian);
    let with_number = |at, number: u16| with(at, &number.to_le_bytes());
    assert_eq!(with_number(18, 183), ExecError::WrongMachine(183));
    assert_eq!(with_number(16, 1), ExecError::NotProgram(1));
    assert_eq!(with(32, &u64::MAX.to_le_bytes()), ExecError::Truncated);
    for (at, number) in [(54, 55), (56, 0), (56, 1000)] {
        let found = with_number(at, number);
        assert!(matches!(found, ExecError::BadSegment(_)));
    }
    let interp = (INTERP, 4, 0x200, 0x40_0200, 8, 8);
    let unnamed = error(&file(3, &[interp, TEXT, DATA]));
    assert!(
        matches!(unnamed, ExecError::BadSegment(_)),
        "no path: only zeroes"
    );
}

#[test]
fn bad_segments_are_named() {
    let alone = [
        (LOAD, 5, 0, 0x40_0000, 0x1001, 0x1000), // more in the file than in memory
        (LOAD, 5, 1, 0x40_0000, 0x10, 0x1000),   // not congruent
        (LOAD, 5, 0, usize::MAX & !0xfff, 0, 0x2000),
        (LOAD, 5, 0, 0x40_0000, 0, usize::MAX),
        (LOAD, 5, 0, 0x7fff_ffff_f000, 0, 0x1000),
        (LOAD, 6, 0, 0x40_0000, 0x1000, 0x1000), // nothing is executable
        (LOAD, 5, 0, 0x80_0000, 0x1000, 0x1000), // the entry is elsewhere
    ];
    let mut bad: Vec<_> = alone.map(|header| vec![header]).into();
    bad.push(vec![DATA, TEXT]); // not sorted
    bad.push(vec![TEXT, TEXT]); // overlap
    for headers in bad {
        let found = error(&file(2, &headers));
        let is_named = matches!(found, ExecError::BadSegment(_));
        assert!(is_named, "{headers:x?}: {found}");
    }
}

#[test]
fn a_program_is_loaded_with_its_rights() {
    let _turn = Turn::new();
    let space = MemorySpace::new().unwrap();
    let entry = load(&space, &file(2, &[TEXT, DATA])).unwrap();
    assert_eq!(entry.rip, 0x40_0100);
    assert_eq!(entry.rsp % 16, 0);
    let areas = space.areas().unwrap();
    let [text, data, zeroes, stack] = &areas[..] else {
        panic!("{areas:?}")
    };
    assert_eq!(text.range.start(), 0x40_0000);
    assert_eq!(text.prot, Prot::READ.with(Prot::EXEC));
    assert_eq!(data.range.start(), 0x40_1000);
    assert_eq!(zeroes.range.start(), 0x40_2000);
    assert_eq!([data.prot, zeroes.prot, stack.prot], [Prot::READ_WRITE; 3]);
    assert_eq!(stack.range.end(), layout::STACK_TOP);
    assert_eq!(space.brk(0), 0x40_5000, "behind the last segment");
}

#[test]
fn a_position_independent_program_gets_a_place() {
    let _turn = Turn::new();
    let space = MemorySpace::new().unwrap();
    let mut file = file(3, &[(LOAD, 5, 0, 0, 0x1000, 0x1000)]);
    file[24..32].copy_from_slice(&0x100u64.to_le_bytes());
    let entry = load(&space, &file).unwrap();
    assert_eq!(entry.rip, layout::PIE_BASE + 0x100);
}

/// A program that names its dynamic linker: `/ld`.
fn dynamic() -> Vec<u8> {
    let interp = (INTERP, 4, 0x200, 0x40_0200, 4, 4);
    let mut file = file(2, &[interp, TEXT, DATA]);
    file[0x200..0x204].copy_from_slice(b"/ld\0");
    file
}

#[test]
fn a_dynamic_program_begins_in_its_linker() {
    let linker = {
        let mut file = file(
            3,
            &[
                (LOAD, 5, 0, 0, 0x1000, 0x1000),
                (LOAD, 6, 0x1008, 0x1008, 0x10, 0x10),
            ],
        );
        file[24..32].copy_from_slice(&0x100u64.to_le_bytes());
        file
    };
    assert_eq!(parse(&dynamic()).unwrap().interpreter(), Some("/ld"));
    let _turn = Turn::new();
    let space = MemorySpace::new().unwrap();
    let entry = load_with(&space, &dynamic(), |path| {
        assert_eq!(path, "/ld");
        Ok(in_memory(&linker))
    });
    let rip = entry.unwrap().rip;
    let areas = space.areas().unwrap();
    let text = areas
        .iter()
        .find(|area| area.range.start() == rip - 0x100)
        .unwrap();
    assert_eq!(text.prot, Prot::READ.with(Prot::EXEC));
    assert!(text.range.end() <= layout::MMAP_TOP && rip > 0x50_0000);
    assert_eq!(
        space.brk(0),
        0x40_5000,
        "behind the program, not its linker"
    );
}

#[test]
fn a_dynamic_program_without_its_linker_is_refused() {
    let _turn = Turn::new();
    let space = MemorySpace::new().unwrap();
    let refused = load(&space, &dynamic()).unwrap_err();
    assert_eq!(refused, ExecError::Interpreter(Errno::ENOENT));
    assert_eq!(Errno::from(refused), Errno::ENOENT);
    let too_big = |_: &str| {
        Ok(in_memory(&file(
            3,
            &[(LOAD, 5, 0, 0, 0x1000, layout::USER_END - 0x1000)],
        )))
    };
    let refused = load_with(&MemorySpace::new().unwrap(), &dynamic(), too_big).unwrap_err();
    assert!(
        matches!(
            refused,
            ExecError::Memory(MapError::NoMemory) | ExecError::BadSegment(_)
        ),
        "{refused}"
    );
}

#[test]
fn the_end_of_a_segment_is_zeroes() {
    let mut full = file(2, &[TEXT, DATA]);
    full.resize(0x2000, 0x5a);
    let _turn = Turn::new();
    let space = MemorySpace::new().unwrap();
    load(&space, &full).unwrap();
    let entry = support::entry_of(&space, 0x40_1000).expect("written to while it was loaded");
    let at = PhysAddr::new(entry & support::ADDRESS).to_direct();
    // SAFETY: a frame of the space, which nobody else uses.
    let page = unsafe { std::slice::from_raw_parts(at, PAGE_SIZE) };
    assert_eq!(&page[8..0x18], b"sixteen bytes!!!");
    assert!(page[0x18..].iter().all(|byte| *byte == 0));
}

#[test]
fn scripts_name_who_runs_them() {
    let parsed = |text: &str| {
        let script = exec::Script::parse(text.as_bytes())?;
        Some((script.interpreter, script.argument))
    };
    let plain = |path: &str| Some((path.to_owned(), None));
    assert_eq!(parsed("#!/bin/sh\necho\n"), plain("/bin/sh"));
    assert_eq!(parsed("#! /bin/sh \n"), plain("/bin/sh"));
    let env = Some(("/usr/bin/env".to_owned(), Some("python3 -u".to_owned())));
    assert_eq!(parsed("#!/usr/bin/env python3 -u\n"), env);
    assert_eq!(parsed("#!/bin/sh"), plain("/bin/sh"), "no end of line");
    for none in ["", "#", "#!", "#! \n/bin/sh", "\x7fELF"] {
        assert_eq!(parsed(none), None, "{none:?}");
    }
}

#[test]
fn a_program_at_address_zero_is_refused() {
    let _turn = Turn::new();
    let space = MemorySpace::new().unwrap();
    let mut file = file(2, &[(LOAD, 5, 0, 0, 0x1000, 0x1000)]);
    file[24..32].copy_from_slice(&0x100u64.to_le_bytes());
    let outcome = load(&space, &file);
    assert!(matches!(outcome, Err(ExecError::BadSegment(_))));
}

proptest! {
    /// Whatever is in a file: no panic, and whatever is accepted stays inside the file and user memory.
    #[test]
    fn damage_is_survived(damage in prop::collection::vec((0..0x120usize, any::<u8>()), 1..12)) {
        let mut file = file(2, &[TEXT, DATA]);
        for (at, byte) in damage {
            file[at] = byte;
        }
        if let Ok(image) = parse(&file) {
            let mut end = 0;
            for segment in image.segments() {
                prop_assert!(segment.start >= end && segment.file_bytes <= segment.bytes);
                end = segment.start + segment.bytes;
                prop_assert!(end <= layout::USER_END);
            }
            let _turn = Turn::new();
            let space = MemorySpace::new().unwrap();
            let _ = load(&space, &file);
        }
    }
}
