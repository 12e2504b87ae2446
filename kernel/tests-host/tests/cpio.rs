//! newc archives: good, cut off at every byte, and damaged at random.

use proptest::prelude::*;
use shootdown_kernel_tests::exec::cpio::{ArchiveError, Members, normal};

fn member(name: &str, mode: u32, data: &[u8]) -> Vec<u8> {
    let (data_bytes, name_bytes) = (data.len() as u32, name.len() as u32 + 1);
    let fields = [0, mode, 0, 0, 1, 0, data_bytes, 0, 0, 0, 0, name_bytes, 0];
    let mut member = b"070701".to_vec();
    for field in fields {
        member.extend(format!("{field:08x}").bytes());
    }
    member.extend(name.bytes());
    member.push(0);
    member.resize(member.len().next_multiple_of(4), 0);
    member.extend(data);
    member.resize(member.len().next_multiple_of(4), 0);
    member
}

fn archive() -> Vec<u8> {
    let mut archive = member("bin", 0o040755, b"");
    archive.extend(member("./bin/prog", 0o100755, b"hello"));
    archive.extend(member("TRAILER!!!", 0, b""));
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive
}

#[test]
fn members_are_read_up_to_the_trailer() {
    let archive = archive();
    let members: Vec<_> = Members::new(&archive).map(Result::unwrap).collect();
    assert_eq!(members.len(), 2);
    assert_eq!((members[0].name, members[0].mode), (&b"bin"[..], 0o040755));
    assert_eq!(members[1].name, b"bin/prog");
    assert_eq!(members[1].data, b"hello");
}

#[test]
fn every_cut_is_noticed() {
    let archive = archive();
    let trailer = archive.windows(10).position(|bytes| bytes == b"TRAILER!!!");
    let end = trailer.unwrap() + 11;
    for len in 0..end {
        let last = Members::new(&archive[..len]).last();
        assert!(matches!(last, Some(Err(_))), "cut at {len}: {last:?}");
    }
    assert!(Members::new(&archive[..end.next_multiple_of(4)]).all(|member| member.is_ok()));
}

#[test]
fn something_else_is_no_archive() {
    let first = Members::new(&[b'x'; 200]).next();
    assert_eq!(first, Some(Err(ArchiveError::BadHeader(0))));
    assert_eq!(Members::new(b"").next(), Some(Err(ArchiveError::NoTrailer)));
}

#[test]
fn paths_are_brought_to_one_form() {
    for before in ["", "/", "./", "//", "/./"] {
        for path in [format!("{before}bin/prog"), format!("{before}bin/prog/")] {
            assert_eq!(normal(path.as_bytes()), b"bin/prog", "{path}");
        }
    }
    assert_eq!(normal(b"/"), b"");
    assert_eq!(normal(b"."), b"");
    assert_eq!(normal(b".hidden"), b".hidden");
}

proptest! {
    #[test]
    fn damage_is_survived(damage in prop::collection::vec((0..400usize, any::<u8>()), 1..12)) {
        let mut archive = archive();
        for (at, byte) in damage {
            if let Some(place) = archive.get_mut(at) {
                *place = byte;
            }
        }
        prop_assert!(Members::new(&archive).count() <= archive.len());
    }
}
