//! Page-table entries as values.

use shootdown_kernel_tests::addr::PhysAddr;
use shootdown_kernel_tests::mm::Prot;
use shootdown_kernel_tests::mm::pte::Pte;

const FRAME: PhysAddr = PhysAddr::new(0x1234_5000);

#[test]
fn rights_and_frame_survive_every_change() {
    for from in 0..8 {
        for to in 0..8 {
            let [from, to] = [from, to].map(|bits| Prot::from_linux(bits).unwrap());
            let entry = Pte::leaf(FRAME, from).with_prot(to);
            assert_eq!(entry.frame(), Some(FRAME), "{from} to {to}");
            assert_eq!(entry.is_present(), to.any());
            let is_same = entry.prot().within(to) && to.within(entry.prot());
            assert!(is_same, "{from} to {to}");
        }
    }
}

#[test]
fn a_parked_entry_points_where_no_memory_is() {
    let raw = format!("{:?}", Pte::leaf(FRAME, Prot::NONE));
    let digits = raw.trim_matches(|c: char| !c.is_ascii_digit());
    let bits: u64 = digits.parse().unwrap();
    assert_eq!(bits & 1, 0, "not present");
    assert_eq!((bits ^ !FRAME.as_u64()) & 0x000f_ffff_ffff_f000, 0);
}

#[test]
fn an_empty_entry_stays_empty() {
    assert_eq!(Pte::EMPTY.with_prot(Prot::READ_WRITE), Pte::EMPTY);
    assert_eq!(Pte::EMPTY.frame(), None);
    assert_eq!(Pte::table(FRAME).frame(), Some(FRAME));
}

#[test]
fn rights_are_ordered_as_the_processor_sees_them() {
    assert!(Prot::NONE.within(Prot::NONE));
    assert!(!Prot::READ.within(Prot::NONE));
    assert!(Prot::READ.within(Prot::WRITE), "writable pages can be read");
    assert!(!Prot::READ_WRITE.within(Prot::READ));
    assert!(!Prot::EXEC.within(Prot::READ_WRITE));
    assert_eq!(Prot::from_linux(8), None);
    assert_eq!(format!("{}", Prot::READ.with(Prot::EXEC)), "r-x");
}
