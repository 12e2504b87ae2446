//! What the screen of a machine shows, as text.

use font8x8::legacy::BASIC_LEGACY;

/// The text screen of a BIOS: 25 rows of 80 characters, each with a byte for its colours (IBM VGA, text modes).
pub const TEXT: u64 = 0xb8000;
/// Its size.
pub const TEXT_BYTES: usize = 4000;
const ROW_BYTES: usize = 160;

/// Characters and rows of the kernel's console.
const COLUMNS: usize = 80;
const ROWS: usize = 25;
/// A character's width and height, in pixels of the font; how many times as high as wide these are; the most pixels of the screen for one
/// of them. As in kernel/src/console/pixels.rs.
const GLYPH: usize = 8;
const HEIGHT: usize = 2;
const MOST_SCALE: usize = 2;

/// The characters of a text screen, a line each row.
pub fn of_cells(bytes: &[u8]) -> String {
    let rows = bytes.chunks(ROW_BYTES);
    let rows = rows.map(|row| {
        let row: String = row
            .iter()
            .step_by(2)
            .map(|&byte| char::from(byte))
            .collect();
        row.trim_end().to_owned()
    });
    rows.collect::<Vec<String>>().join("\n")
}

/// The characters that the kernel has drawn into a picture of the screen (PPM, three bytes a pixel), a line each row; `?` where it is none
/// of the font. Nothing if the picture is not whole.
pub fn of_pixels(picture: &[u8]) -> String {
    let Some((width, height, pixels)) = parse(picture) else {
        return String::new();
    };
    let scale = (width / (COLUMNS * GLYPH)).min(height / (ROWS * GLYPH * HEIGHT));
    let scale = scale.min(MOST_SCALE);
    let is_ink = |x: usize, y: usize| pixels[(y * scale * HEIGHT * width + x * scale) * 3] != 0;
    let line = |row: usize, column: usize, y: usize| {
        let bits = (0..GLYPH).filter(|x| is_ink(column * GLYPH + x, row * GLYPH + y));
        bits.fold(0u8, |line, x| line | 1 << x)
    };
    let character = |row: usize, column: usize| {
        let glyph: [u8; GLYPH] = std::array::from_fn(|y| line(row, column, y));
        let mut printable = b' '..=b'~';
        let found = printable.find(|&byte| BASIC_LEGACY[usize::from(byte)] == glyph);
        found.map_or('?', char::from)
    };
    if scale == 0 {
        return String::new();
    }
    let row = |row: usize| {
        let row: String = (0..COLUMNS).map(|column| character(row, column)).collect();
        row.trim_end().to_owned()
    };
    (0..ROWS).map(row).collect::<Vec<String>>().join("\n")
}

/// Width, height, and the bytes of the pixels.
fn parse(picture: &[u8]) -> Option<(usize, usize, &[u8])> {
    let mut rest = picture.strip_prefix(b"P6\n")?;
    let mut number = |end: u8| -> Option<usize> {
        let length = rest.iter().position(|&byte| byte == end)?;
        let (digits, behind) = rest.split_at(length);
        rest = &behind[1..];
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    let (width, height) = (number(b' ')?, number(b'\n')?);
    number(b'\n').filter(|&most| most == 255)?;
    (rest.len() >= width * height * 3).then_some((width, height, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_read_without_its_colours() {
        let mut bytes = [b' ', 7].repeat(TEXT_BYTES / 2);
        (bytes[0], bytes[2], bytes[ROW_BYTES]) = (b'a', b'b', b'c');
        let text = of_cells(&bytes);
        assert!(
            text.starts_with("ab\nc\n") && text.lines().count() == 24,
            "{text:?}"
        );
    }

    #[test]
    fn pixels_are_read_as_the_kernel_draws_them() {
        let (width, height) = (1300, 800);
        let mut picture = format!("P6\n{width} {height}\n255\n").into_bytes();
        let head = picture.len();
        picture.resize(head + width * height * 3, 0);
        for (column, byte) in b"k9".iter().enumerate() {
            for y in 0..32 {
                for x in 0..16 {
                    let is_ink = BASIC_LEGACY[usize::from(*byte)][y / 4] >> (x / 2) & 1 == 1;
                    let place = head + ((32 + y) * width + column * 16 + x) * 3;
                    picture[place..place + 3].fill(if is_ink { 0xaa } else { 0 });
                }
            }
        }
        assert!(of_pixels(&picture).starts_with("\nk9\n\n"));
        assert_eq!(of_pixels(&picture[..1000]), "");
        assert_eq!(of_pixels(b"P6\n4 4\n255\n"), "");
    }
}
