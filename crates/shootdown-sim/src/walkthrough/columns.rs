//! [`columns`]: a run as text, one column for each CPU.

use crate::walkthrough::{ShownStep, Sort, Violation, Walkthrough};

/// As wide as a terminal mostly is, or a page of a book.
const WIDTH: usize = 100;
/// What stands between two columns.
const BETWEEN: &str = " | ";
/// A column is not narrower.
const NARROWEST: usize = 18;
/// More of a run is left out, from its beginning.
const MOST_ROWS: usize = 40;

/// What the CPUs tell, one row a step, in the column of its CPU; below it the promise that was broken and what led there, by the numbers that
/// stand in the rows. Moves of cache lines, locks, and what TLBs cache without being part of it are left out.
pub fn columns(walkthrough: &Walkthrough) -> Vec<String> {
    let cpus = walkthrough.cpus.len().max(1);
    let width = (WIDTH + BETWEEN.len()) / cpus;
    let width = width.saturating_sub(BETWEEN.len()).max(NARROWEST);
    let rows = rows(walkthrough);
    let heads = walkthrough.cpus.iter().map(|name| (name.as_str(), width));
    let mut lines = vec![
        beside(heads),
        beside(vec![("-".repeat(width).as_str(), width); cpus]),
    ];
    for (cpu, text) in &rows[rows.len().saturating_sub(MOST_ROWS)..] {
        for part in wrapped(text, width) {
            let cell = |column| (if column == *cpu { part.as_str() } else { "" }, width);
            lines.push(beside((0..cpus).map(cell)));
        }
    }
    lines.extend(walkthrough.violation.iter().flat_map(notes));
    lines
}

/// The rows, each with its CPU.
fn rows(walkthrough: &Walkthrough) -> Vec<(usize, String)> {
    let violation = walkthrough.violation.as_ref();
    let causes = violation.map_or(&[][..], |violation| &violation.causes);
    let mut numbers = String::new();
    let mut rows = Vec::new();
    for (index, step) in walkthrough.steps.iter().enumerate() {
        let Some(cpu) = step.cpu else { continue };
        let number = causes.iter().position(|cause| cause.step == index);
        numbers.extend(number.map(|number| format!(" [{}]", number + 1)));
        let next = walkthrough.steps.get(index + 1);
        let says_more = next.is_some_and(|next| next.told && next.cpu == Some(cpu));
        let is_shown = is_told(step) || (number.is_some() && !says_more);
        if is_shown {
            rows.push((cpu, words(step) + &std::mem::take(&mut numbers)));
        }
    }
    rows
}

/// Whether a step is shown that is no cause of anything.
fn is_told(step: &ShownStep) -> bool {
    match step.sort {
        Sort::Violation => true,
        Sort::Interrupt => step.label != "returns from it",
        Sort::Access | Sort::Lock | Sort::Hardware | Sort::Oracle => false,
        _ => step.told,
    }
}

fn words(step: &ShownStep) -> String {
    match step.sort {
        Sort::Violation => {
            let what = step.text.split(';').next().unwrap_or_default();
            format!("** {}: {what} **", step.label)
        }
        _ => step.label.clone(),
    }
}

/// What stands below the columns.
fn notes(violation: &Violation) -> Vec<String> {
    let causes = violation.causes.iter().enumerate();
    let causes = causes.map(|(number, cause)| format!("[{}] {}", number + 1, cause.why));
    let broken = format!("broken on cpu{}: {}", violation.cpu, violation.promise);
    [String::new(), broken].into_iter().chain(causes).collect()
}

/// Cells beside each other, each as wide as it says.
fn beside<'a>(cells: impl IntoIterator<Item = (&'a str, usize)>) -> String {
    let cells = cells.into_iter();
    let cells: Vec<String> = cells
        .map(|(text, width)| format!("{text:width$}"))
        .collect();
    cells.join(BETWEEN).trim_end().to_owned()
}

/// Lines of at most `width` characters, but for longer words; all but the first stand further in.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{beside, wrapped};

    #[test]
    fn words_stay_whole() {
        assert_eq!(wrapped("a bc def", 4), ["a bc", "  def"]);
        assert_eq!(wrapped("longest of all", 4), ["longest", "  of", "  all"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn cells_stand_below_each_other() {
        assert_eq!(beside([("a", 3), ("b", 3)]), "a   | b");
        assert_eq!(beside([("", 3), ("", 3)]), "    |");
    }
}
