//! Words of a plan, as values or as [`Mistake`]s.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Why words are no plan: one line with cause and remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake(pub(crate) String);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Values with colons between them, each once.
pub(crate) fn list<T: PartialEq>(
    values: &str,
    read: impl Fn(&str) -> Result<T, Mistake>,
) -> Result<Vec<T>, Mistake> {
    let mut list = Vec::new();
    for word in values.split(':') {
        let value = read(word)?;
        if !list.contains(&value) {
            list.push(value);
        }
    }
    Ok(list)
}

/// The one of `all` that has this name.
pub(crate) fn one_of<T: Copy>(
    word: &str,
    key: &str,
    all: &[T],
    name: impl Fn(&T) -> &'static str,
) -> Result<T, Mistake> {
    all.iter()
        .copied()
        .find(|it| name(it) == word)
        .ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(&name).collect();
            Mistake(format!(
                "{word:?} is no {key}; choose from {}",
                known.join(", ")
            ))
        })
}

/// A number from `least` to `most`.
pub(crate) fn number(word: &str, key: &str, least: u64, most: u64) -> Result<u64, Mistake> {
    let fits = |number: &u64| (least..=most).contains(number);
    word.parse().ok().filter(fits).ok_or_else(|| {
        let word = word.to_string();
        Mistake(format!("{key}={word}: use a number from {least} to {most}"))
    })
}
