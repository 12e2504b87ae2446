//! The initial file system: one newc cpio archive that both kernels unpack.

use std::io::{self, Write};

use cpio::newc::{Builder, trailer};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;
/// Name, mode, major and minor number. Linux hands the console to the first process as its standard
/// streams; programs that start others want the rest.
const DEVICES: [(&str, u32, u32, u32); 3] = [
    ("console", 0o020_600, 5, 1),
    ("null", 0o020_666, 1, 3),
    ("zero", 0o020_666, 1, 5),
];

/// Packs the directories that programs expect, the devices, `programs` (as `/bin/<name>`), the
/// kernel's function names (as `/boot/System.map`) and other `files` by their paths.
pub fn pack(
    programs: &[(&str, &[u8])],
    symbols: Option<&str>,
    files: &[(String, Vec<u8>)],
) -> io::Result<Vec<u8>> {
    let mut archive = Vec::new();
    let mut inode = 1;
    let mut next = |name: &str, mode: u32| {
        inode += 1;
        Builder::new(name).ino(inode).mode(mode)
    };
    for directory in ["bin", "boot", "dev", "proc", "sys", "tmp"] {
        next(directory, DIRECTORY)
            .nlink(2)
            .write(&mut archive, 0)
            .finish()?;
    }
    for (name, mode, major, minor) in DEVICES {
        let entry = next(&format!("dev/{name}"), mode)
            .rdev_major(major)
            .rdev_minor(minor);
        entry.write(&mut archive, 0).finish()?;
    }
    let programs = programs.iter();
    let programs = programs.map(|&(name, image)| (format!("bin/{name}"), PROGRAM, image));
    let symbols = symbols.map(|text| ("boot/System.map".to_owned(), DATA, text.as_bytes()));
    let files = files.iter();
    let files = files.map(|(path, data)| (path.clone(), DATA, data.as_slice()));
    for (path, mode, data) in programs.chain(symbols).chain(files) {
        let size = u32::try_from(data.len()).map_err(|_| {
            io::Error::other(format!("{path} is larger than a cpio archive can hold"))
        })?;
        let mut entry = next(&path, mode).write(&mut archive, size);
        entry.write_all(data)?;
        entry.finish()?;
    }
    trailer(&mut archive)?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_starts_with_the_newc_magic_and_ends_with_the_trailer() {
        let archive = pack(&[], None, &[]).unwrap();
        assert_eq!(&archive[..6], b"070701");
        assert!(archive.windows(10).any(|window| window == b"TRAILER!!!"));
        for length in 0..9 {
            let archive = pack(&[("p", &vec![7; length])], None, &[]).unwrap();
            assert_eq!(archive.len() % 4, 0, "entries are padded to four bytes");
        }
    }

    #[test]
    fn programs_and_devices_come_back_as_they_went_in() {
        let archive = pack(&[("one", b"abc"), ("two", b"")], Some("1 t f\n"), &[]).unwrap();
        let mut left = archive.as_slice();
        let mut seen = Vec::new();
        loop {
            let reader = cpio::newc::Reader::new(left).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let entry = reader.entry();
            let device = (entry.rdev_major(), entry.rdev_minor());
            let (name, mode, size) = (entry.name().to_owned(), entry.mode(), entry.file_size());
            let mut data = Vec::new();
            left = reader.to_writer(&mut data).unwrap();
            assert_eq!(data.len(), size as usize);
            seen.push((name, mode, device, data));
        }
        assert!(seen.contains(&("dev/console".into(), 0o020_600, (5, 1), vec![])));
        assert!(seen.contains(&("dev/null".into(), 0o020_666, (1, 3), vec![])));
        assert!(seen.contains(&("bin/one".into(), PROGRAM, (0, 0), b"abc".to_vec())));
        assert!(seen.contains(&("bin/two".into(), PROGRAM, (0, 0), vec![])));
        assert!(seen.contains(&("boot/System.map".into(), DATA, (0, 0), b"1 t f\n".to_vec())));
    }
}
