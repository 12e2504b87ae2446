//! What a screen shows: lines as they come, the last ones that fit.
//!
//! Lines that begin with `@` are for programs, and long: they are left out. A line's end moves nothing up until the next line
//! comes, so that the last line of a machine that has ended costs no other its place.

/// Columns of the screen.
pub const COLUMNS: usize = 80;
/// Its rows.
pub const ROWS: usize = 25;
/// How a line begins that is not for people.
const MARK: u8 = b'@';
/// Light grey on black, as the firmware leaves it.
const ATTRIBUTE: u16 = 0x0700;
const BLANK: u16 = ATTRIBUTE | b' ' as u16;
const TAB_COLUMNS: usize = 8;

/// What became of the line that is being written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    /// Nothing of it has come.
    Start,
    /// It is on the screen.
    Shown,
    /// It is left out.
    Hidden,
}

/// The screen, as characters with their colours.
#[derive(Debug)]
pub struct Grid {
    cells: [[u16; COLUMNS]; ROWS],
    row: usize,
    column: usize,
    line: Line,
    /// The line before has ended, and the next one goes below it.
    is_ended: bool,
    /// Rows that have changed, as bits.
    changed: u32,
}

impl Grid {
    /// An empty screen, all of which has changed.
    pub const fn blank() -> Self {
        Self {
            cells: [[BLANK; COLUMNS]; ROWS],
            row: 0,
            column: 0,
            line: Line::Start,
            is_ended: false,
            changed: (1 << ROWS) - 1,
        }
    }

    /// Takes one byte of text.
    pub fn put(&mut self, byte: u8) {
        match byte {
            b'\n' => self.end_line(),
            MARK if self.line == Line::Start => self.line = Line::Hidden,
            _ if self.line == Line::Hidden => {}
            b'\t' => {
                self.show(b' ');
                while !self.column.is_multiple_of(TAB_COLUMNS) {
                    self.show(b' ');
                }
            }
            b' '..=b'~' => self.show(byte),
            // One mark for each character that the screen's font lacks.
            0xc0.. => self.show(b'?'),
            _ => {}
        }
    }

    /// The uppermost row that has changed since it was last taken.
    pub fn take_changed_row(&mut self) -> Option<(usize, &[u16; COLUMNS])> {
        let row = self.changed.trailing_zeros() as usize;
        let cells = self.cells.get(row)?;
        self.changed &= !(1 << row);
        Some((row, cells))
    }

    fn end_line(&mut self) {
        if self.line == Line::Start && self.is_ended {
            self.advance();
        }
        self.is_ended |= self.line != Line::Hidden;
        self.line = Line::Start;
    }

    fn show(&mut self, character: u8) {
        if self.line == Line::Start {
            if self.is_ended {
                self.advance();
            }
            self.is_ended = false;
            self.line = Line::Shown;
        }
        if self.column == COLUMNS {
            self.advance();
        }
        self.cells[self.row][self.column] = ATTRIBUTE | u16::from(character);
        self.changed |= 1 << self.row;
        self.column += 1;
    }

    /// To the beginning of the next row.
    fn advance(&mut self) {
        self.column = 0;
        if self.row + 1 < ROWS {
            self.row += 1;
            return;
        }
        self.cells.copy_within(1.., 0);
        self.cells[ROWS - 1] = [BLANK; COLUMNS];
        self.changed = (1 << ROWS) - 1;
    }
}
