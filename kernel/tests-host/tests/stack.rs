//! The initial stack, read back as a C runtime would.

use shootdown_kernel_tests::exec::error::ExecError;
use shootdown_kernel_tests::exec::stack::{StackImage, build};
use shootdown_kernel_tests::mm::layout::STACK_TOP;

fn word(image: &StackImage, address: usize) -> usize {
    let at = address - image.rsp;
    usize::from_le_bytes(image.bytes[at..at + 8].try_into().unwrap())
}

fn string(image: &StackImage, address: usize) -> &str {
    let bytes = &image.bytes[address - image.rsp..];
    let end = bytes.iter().position(|byte| *byte == 0).unwrap();
    std::str::from_utf8(&bytes[..end]).unwrap()
}

#[test]
fn arguments_environment_and_vectors_are_found() {
    let image = build(&["prog", "", "two"], &["A=b"], &[(6, 4096)], [9; 16]).unwrap();
    assert_eq!(image.rsp % 16, 0);
    assert!(image.rsp + image.bytes.len() <= STACK_TOP);
    assert_eq!(word(&image, image.rsp), 3);
    let argv = [1, 2, 3].map(|index| string(&image, word(&image, image.rsp + 8 * index)));
    assert_eq!(argv, ["prog", "", "two"]);
    assert_eq!(word(&image, image.rsp + 32), 0);
    assert_eq!(string(&image, word(&image, image.rsp + 40)), "A=b");
    assert_eq!(word(&image, image.rsp + 48), 0);
    let mut aux = Vec::new();
    let mut at = image.rsp + 56;
    while word(&image, at) != 0 {
        aux.push((word(&image, at), word(&image, at + 8)));
        at += 16;
    }
    assert_eq!(aux[0], (6, 4096));
    let random = aux.iter().find(|entry| entry.0 == 25).unwrap().1 - image.rsp;
    assert_eq!(image.bytes[random..random + 16], [9; 16]);
    let program = aux.iter().find(|entry| entry.0 == 31).unwrap().1;
    assert_eq!(string(&image, program), "prog");
}

#[test]
fn too_many_arguments_are_refused() {
    let long = vec!["x".repeat(1000); 200];
    let outcome = build(&long, &[""; 0], &[], [0; 16]);
    assert_eq!(outcome.err(), Some(ExecError::ArgumentsTooLong));
}

#[test]
fn no_arguments_at_all_still_make_a_stack() {
    let image = build(&[""; 0], &[""; 0], &[], [0; 16]).unwrap();
    assert_eq!(word(&image, image.rsp), 0);
}
