//! What a machine boots with: programs in a tree of their own, or in an image beside its own programs.

use std::io;

use super::archive::write;
use super::tree::{Misplaced, Node, Tree};

const PROGRAM: u32 = 0o755;
const DATA: u32 = 0o644;
/// Name, mode, major and minor number. Linux hands the console to the first process as its standard
/// streams; programs that start others want the rest.
const DEVICES: [(&str, u32, (u32, u32)); 3] = [
    ("console", 0o600, (5, 1)),
    ("null", 0o666, (1, 3)),
    ("zero", 0o666, (1, 5)),
];

/// Packs the directories that programs expect, the devices, `programs` (as `/bin/<name>`), the
/// kernel's function names (as `/boot/System.map`) and other `files` by their paths. An image has the first two.
pub fn pack(
    image: Option<&Tree>,
    programs: &[(&str, &[u8])],
    symbols: Option<&str>,
    files: &[(String, Vec<u8>)],
) -> io::Result<Vec<u8>> {
    let mut tree = match image {
        None => bare().map_err(io::Error::other)?,
        Some(image) => image.clone(),
    };
    let programs = programs.iter();
    let programs = programs.map(|&(name, data)| (program_path(image, name), PROGRAM, data));
    let symbols = symbols.map(|text| ("boot/System.map".to_owned(), DATA, text.as_bytes()));
    let files = files.iter();
    let files = files.map(|(path, data)| (path.clone(), DATA, data.as_slice()));
    for (path, mode, data) in programs.chain(symbols).chain(files) {
        let data = data.to_vec();
        let put = tree.put(&path, Node::File { mode, data });
        put.map_err(io::Error::other)?;
    }
    write(&tree)
}

/// Where a program stands: in an image in `/boot`, where no package has one of the same name.
pub fn program_path(image: Option<&Tree>, name: &str) -> String {
    let directory = match image {
        None => "bin",
        Some(_) => "boot",
    };
    format!("/{directory}/{name}")
}

/// Puts the devices into `/dev` that the first process needs before it has mounted anything.
///
/// # Errors
/// `/dev` is no directory.
pub fn add_devices(tree: &mut Tree) -> Result<(), Misplaced> {
    for (name, mode, number) in DEVICES {
        tree.put(&format!("dev/{name}"), Node::Device { mode, number })?;
    }
    Ok(())
}

fn bare() -> Result<Tree, Misplaced> {
    let mut tree = Tree::default();
    for directory in ["bin", "boot", "dev", "proc", "sys", "tmp"] {
        tree.put(directory, Node::Directory { mode: 0o755 })?;
    }
    add_devices(&mut tree)?;
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::super::archive::read;
    use super::*;

    fn file(mode: u32, data: &[u8]) -> Node {
        let data = data.to_vec();
        Node::File { mode, data }
    }

    #[test]
    fn archive_starts_with_the_newc_magic_and_ends_with_the_trailer() {
        let archive = pack(None, &[], None, &[]).unwrap();
        assert_eq!(&archive[..6], b"070701");
        assert!(archive.windows(10).any(|window| window == b"TRAILER!!!"));
        for length in 0..9 {
            let archive = pack(None, &[("p", &vec![7; length])], None, &[]).unwrap();
            assert_eq!(archive.len() % 4, 0, "entries are padded to four bytes");
        }
    }

    #[test]
    fn programs_and_devices_come_back_as_they_went_in() {
        let programs = [("one", &b"abc"[..]), ("two", b"")];
        let archive = pack(None, &programs, Some("1 t f\n"), &[]).unwrap();
        let tree = read(&archive).unwrap();
        let at = |path: &str| tree.find(path).unwrap().1.clone();
        let device = |mode, number| Node::Device { mode, number };
        assert_eq!(at("/dev/console"), device(0o600, (5, 1)));
        assert_eq!(at("/dev/null"), device(0o666, (1, 3)));
        assert_eq!(at("/bin/one"), file(PROGRAM, b"abc"));
        assert_eq!(at("/bin/two"), file(PROGRAM, b""));
        assert_eq!(at("/boot/System.map"), file(DATA, b"1 t f\n"));
    }

    #[test]
    fn programs_do_not_mix_with_those_of_an_image() {
        let mut image = Tree::default();
        image.put("bin", Node::Link("usr/bin".into())).unwrap();
        image.put("bin/one", file(PROGRAM, b"its")).unwrap();
        let archive = pack(Some(&image), &[("one", b"ours")], None, &[]).unwrap();
        let tree = read(&archive).unwrap();
        assert_eq!(tree.find("/bin/one").unwrap().1, &file(PROGRAM, b"its"));
        assert_eq!(tree.find("/boot/one").unwrap().1, &file(PROGRAM, b"ours"));
    }
}
