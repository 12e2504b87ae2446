//! A Linux kernel image to compare with: where to find one, and whether it is one.

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::fetch;
use crate::failure::{Failure, Outcome};

const HOW_TO_GET: &str = "give a bzImage; `./lab doctor` says how to get one";

/// The image that the caller named (checked), else the newest one that was fetched, else the newest
/// readable one in `/boot`.
///
/// # Errors
/// The caller named one that cannot be used.
pub fn find(named: Option<&Path>) -> Outcome<Option<PathBuf>> {
    if let Some(path) = named {
        check(path).map_err(|cause| {
            let cause = format!("cannot boot the Linux kernel {}: {cause}", path.display());
            Failure::input(cause, HOW_TO_GET)
        })?;
        return Ok(Some(path.to_owned()));
    }
    Ok(newest_in(&fetch::directory().join("boot")).or_else(|| newest_in(Path::new("/boot"))))
}

fn newest_in(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("vmlinuz"));
    let mut images: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    images.retain(|path| check(path).is_ok());
    images.sort_by_key(|path| std::fs::metadata(path).and_then(|m| m.modified()).ok());
    images.pop()
}

/// The release that a bzImage names itself (`6.12.1 (builder) ...`): its first word.
pub fn version(path: &Path) -> Option<String> {
    const VERSION_POINTER: u64 = 0x20e;
    let file = std::fs::File::open(path).ok()?;
    let (mut pointer, mut text) = ([0; 2], [0; 64]);
    file.read_exact_at(&mut pointer, VERSION_POINTER).ok()?;
    let at = u64::from(u16::from_le_bytes(pointer)) + 0x200;
    file.read_exact_at(&mut text, at).ok()?;
    let word = text
        .split(|byte| byte.is_ascii_whitespace() || *byte == 0)
        .next()?;
    (!word.is_empty()).then(|| String::from_utf8_lossy(word).into_owned())
}

/// A bzImage has a boot sector's mark and, after it, the letters of the boot protocol's header.
fn check(path: &Path) -> Result<(), String> {
    const BOOT_MARK_AT: usize = 0x1fe;
    let mut head = [0; 0x206];
    let mut file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    file.read_exact(&mut head)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "it is too short to be one".to_owned(),
            _ => error.to_string(),
        })?;
    match &head[BOOT_MARK_AT..] {
        [0x55, 0xaa, _, _, b'H', b'd', b'r', b'S'] => Ok(()),
        _ => Err("it is not a bzImage".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Vec<u8> {
        let mut bytes = vec![0; 0x1000];
        bytes[0x1fe..0x206].copy_from_slice(&[0x55, 0xaa, 0, 0, b'H', b'd', b'r', b'S']);
        bytes[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        bytes[0x300..0x30c].copy_from_slice(b"6.12.1 (me) ");
        bytes
    }

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn boot_image_is_accepted_and_names_its_release() {
        let file = file(&image());
        assert_eq!(
            find(Some(file.path())).unwrap().as_deref(),
            Some(file.path())
        );
        assert_eq!(version(file.path()).as_deref(), Some("6.12.1"));
    }

    #[test]
    fn other_files_are_refused_with_the_remedy() {
        for bytes in [&b""[..], b"text", &[0; 0x1000]] {
            let file = file(bytes);
            let failure = find(Some(file.path())).unwrap_err();
            assert!(failure.to_string().contains("doctor"), "{failure}");
        }
        assert!(find(Some(Path::new("/nowhere/vmlinuz"))).is_err());
    }
}
