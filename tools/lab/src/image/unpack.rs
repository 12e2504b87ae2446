//! One package into a tree, without what no program reads.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use tar::{Archive, Entry, EntryType};

use crate::failure::{Doing, Failure, Outcome};
use crate::initramfs::{Misplaced, Node, Tree};

/// For people, desktops and packagers.
const DEAD_WEIGHT: [&str; 13] = [
    "usr/share/applications",
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/doc",
    "usr/share/doc-base",
    "usr/share/icons",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/menu",
    "usr/share/pixmaps",
    "usr/share/zsh",
];

/// What libc reads other encodings by, 8 MB of it.
const ENCODINGS: &str = "usr/lib/x86_64-linux-gnu/gconv/";
/// Those that stay: Debian 13 has moved all others into a package of their own, too.
const KEPT_ENCODINGS: [&str; 8] = [
    "ANSI_X3.110.so",
    "CP1252.so",
    "ISO8859-1.so",
    "ISO8859-15.so",
    "UNICODE.so",
    "UTF-16.so",
    "UTF-32.so",
    "UTF-7.so",
];

/// Adds the files of a package.
///
/// # Errors
/// It is none, or it does not fit into the tree.
pub fn unpack(package: &Path, tree: &mut Tree) -> Outcome<()> {
    let name = package.file_name().unwrap_or_default().to_string_lossy();
    let mut open = Command::new("dpkg-deb");
    open.arg("--fsys-tarfile").arg(package);
    open.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = open.spawn().doing("start dpkg-deb")?;
    if let Some(pipe) = child.stdout.take() {
        add(pipe, tree).doing(format!("unpack {name}"))?;
    }
    let status = child.wait().doing("wait for dpkg-deb")?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::work(format!("dpkg-deb cannot open {name}"))),
    }
}

/// Adds all members of a tar archive, which is read to its end.
fn add(mut bytes: impl Read, tree: &mut Tree) -> std::io::Result<()> {
    for entry in Archive::new(&mut bytes).entries()? {
        add_entry(&mut entry?, tree)?;
    }
    std::io::copy(&mut bytes, &mut std::io::sink())?;
    Ok(())
}

fn add_entry(entry: &mut Entry<'_, impl Read>, tree: &mut Tree) -> std::io::Result<()> {
    let path = text(&entry.path_bytes())?;
    if is_dead_weight(&path) {
        return Ok(());
    }
    let mode = entry.header().mode()? & 0o7777;
    let target = entry.link_name_bytes();
    let target = || text(target.as_deref().unwrap_or_default());
    let put = match entry.header().entry_type() {
        EntryType::Directory => tree.put(&path, Node::Directory { mode }),
        EntryType::Link => tree.copy(&target()?, &path),
        EntryType::Symlink => match tree.put(&path, Node::Link(target()?)) {
            // As dpkg does: a directory stays one.
            Err(Misplaced::OnDirectory(_)) => Ok(()),
            put => put,
        },
        EntryType::Regular | EntryType::Continuous => {
            let mut data = Vec::new();
            entry.read_to_end(&mut data)?;
            tree.put(&path, Node::File { mode, data })
        }
        _ => Ok(()),
    };
    put.map_err(std::io::Error::other)
}

fn text(bytes: &[u8]) -> std::io::Result<String> {
    let text = str::from_utf8(bytes).map_err(std::io::Error::other)?;
    Ok(text.to_owned())
}

fn is_dead_weight(path: &str) -> bool {
    let path = path.trim_start_matches("./");
    let is_below = |directory: &&str| {
        let rest = path.strip_prefix(directory);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_rare = |name: &str| name.ends_with(".so") && !KEPT_ENCODINGS.contains(&name);
    DEAD_WEIGHT.iter().any(is_below) || path.strip_prefix(ENCODINGS).is_some_and(is_rare)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(members: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, kind, content) in members {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o755);
            header.set_size(0);
            if matches!(kind, EntryType::Link | EntryType::Symlink) {
                builder.append_link(&mut header, path, content).unwrap();
                continue;
            }
            header.set_size(content.len() as u64);
            builder
                .append_data(&mut header, path, content.as_bytes())
                .unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn members_land_in_the_merged_directories() {
        let mut tree = Tree::default();
        tree.put("bin", Node::Link("usr/bin".into())).unwrap();
        let archive = packed(&[
            ("./bin/", EntryType::Directory, ""),
            ("./bin/bunzip2", EntryType::Regular, "program"),
            ("./bin/bzcat", EntryType::Link, "./bin/bunzip2"),
            ("./bin/bzip2", EntryType::Symlink, "bunzip2"),
            ("./usr/share/doc/x/README", EntryType::Regular, "read me"),
            ("./dev/fifo", EntryType::Fifo, ""),
        ]);
        add(&archive[..], &mut tree).unwrap();
        let program = Node::File {
            mode: 0o755,
            data: b"program".to_vec(),
        };
        for name in ["bunzip2", "bzcat", "bzip2"] {
            let found = tree.find(&format!("usr/bin/{name}")).map(|(_, node)| node);
            assert_eq!(found, Some(&program), "{name}");
        }
        assert_eq!(tree.find("usr/share"), None);
    }

    #[test]
    fn only_whole_names_are_dead_weight() {
        assert!(is_dead_weight("./usr/share/doc"));
        assert!(is_dead_weight("./usr/share/doc/libc6/copyright"));
        assert!(!is_dead_weight("./usr/share/docker/x"));
        assert!(!is_dead_weight("./usr/lib/locale/C.utf8/LC_CTYPE"));
        assert!(is_dead_weight("./usr/lib/x86_64-linux-gnu/gconv/BIG5.so"));
        for kept in ["", "UTF-16.so", "gconv-modules.d/gconv-modules-extra.conf"] {
            assert!(!is_dead_weight(&format!("./{ENCODINGS}{kept}")), "{kept}");
        }
    }
}
