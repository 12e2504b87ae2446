//! What maintainer scripts and essential packages would have made: the directories that every program expects, and the names of a few users.

use crate::initramfs::{Misplaced, Node, Tree, add_devices};

/// Since Debian 12 these are links on every system; packages still name them.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];
const DIRECTORIES: [(&str, u32); 11] = [
    ("boot", 0o755),
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var/lib", 0o755),
    ("var/tmp", 0o1777),
];
/// Files for packages that bring none.
const FILES: [(&str, &str); 4] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\n\
         daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    (
        "etc/group",
        "root:x:0:\ndaemon:x:1:\ntty:x:5:\nnogroup:x:65534:\n",
    ),
    (
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n",
    ),
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
];

/// What is there before the packages.
pub fn before() -> Result<Tree, Misplaced> {
    let mut tree = Tree::default();
    for name in MERGED {
        let place = format!("usr/{name}");
        tree.put(&place, Node::Directory { mode: 0o755 })?;
        tree.put(name, Node::Link(place))?;
    }
    for (path, mode) in DIRECTORIES {
        tree.put(path, Node::Directory { mode })?;
    }
    tree.put("var/run", Node::Link("/run".into()))?;
    add_devices(&mut tree)?;
    Ok(tree)
}

/// What is added behind them.
pub fn after(tree: &mut Tree) -> Result<(), Misplaced> {
    for (path, text) in FILES {
        if tree.find(path).is_none() {
            let (mode, data) = (0o644, text.into());
            tree.put(path, Node::File { mode, data })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_is_found_where_programs_ask_for_it() {
        let mut tree = before().unwrap();
        let (mode, data) = (0o755, b"ld".to_vec());
        let loader = Node::File { mode, data };
        tree.put("./lib/x86_64-linux-gnu/ld.so", loader).unwrap();
        let link = Node::Link("/lib/x86_64-linux-gnu/ld.so".into());
        tree.put("./lib64/ld-linux-x86-64.so.2", link).unwrap();
        let (place, _) = tree.find("/lib64/ld-linux-x86-64.so.2").unwrap();
        assert_eq!(place, "usr/lib/x86_64-linux-gnu/ld.so");
    }

    #[test]
    fn what_packages_bring_stays() {
        let mut tree = before().unwrap();
        let (mode, data) = (0o644, b"me".to_vec());
        let own = Node::File { mode, data };
        tree.put("etc/passwd", own.clone()).unwrap();
        after(&mut tree).unwrap();
        assert_eq!(tree.find("etc/passwd").unwrap().1, &own);
        assert!(tree.find("etc/group").is_some());
    }
}
