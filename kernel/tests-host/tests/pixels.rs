//! How text is drawn into pixels.

use font8x8::legacy::BASIC_LEGACY;
use shootdown_kernel_tests::addr::PhysAddr;
use shootdown_kernel_tests::memory;
use shootdown_kernel_tests::pixels::Pixels;

/// Where the adapter's memory is; nobody asks for frames here.
const ADDRESS: u64 = 32 << 20;
const PITCH: u32 = 1310 * 4;

fn screen(pitch: u32, width: u32, height: u32) -> Option<Pixels> {
    memory::init();
    // SAFETY: memory of this test's, and one test alone draws.
    unsafe { Pixels::new(ADDRESS, pitch, width, height) }
}

fn pixel(x: usize, y: usize) -> u32 {
    let memory = PhysAddr::new(ADDRESS).to_direct().cast::<u32>();
    // SAFETY: within the adapter's memory.
    unsafe { memory.wrapping_add(y * PITCH as usize / 4 + x).read() }
}

#[test]
fn a_character_is_drawn_where_it_belongs_and_nowhere_else() {
    let pixels = screen(PITCH, 1300, 801).expect("there is room");
    assert_eq!(pixels.range(), ADDRESS..ADDRESS + u64::from(PITCH) * 801);
    pixels.draw(0, 0, b'#');
    pixels.clear();
    pixels.draw(1, 2, b'k');
    for y in 0..801 {
        for x in 0..1300 {
            // Two pixels of the screen for one of the font, and twice as many upwards.
            let is_within = (16..32).contains(&(x / 2)) && (32..64).contains(&y);
            let line = BASIC_LEGACY[usize::from(b'k')][y / 4 % 8];
            let is_ink = is_within && x / 16 == 2 && line >> (x / 2 % 8) & 1 == 1;
            assert_eq!(pixel(x, y) != 0, is_ink, "at {x}, {y}");
        }
    }
}

#[test]
fn a_screen_without_room_for_the_text_is_none() {
    assert!(screen(640 * 4, 640, 400).is_some());
    for (pitch, width, height) in [
        (640 * 4, 639, 400),
        (640 * 4, 640, 399),
        (639 * 4, 640, 400),
        (640 * 4 + 2, 640, 400),
        (0, 0, 0),
    ] {
        assert!(
            screen(pitch, width, height).is_none(),
            "{pitch}, {width}, {height}"
        );
    }
}
