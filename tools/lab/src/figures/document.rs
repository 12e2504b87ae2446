//! [`Document`]: a Markdown file with figures between marks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::failure::{Doing, Failure, Outcome};

const BEGIN: &str = "<!-- figure: ";
const END: &str = "<!-- end of figure -->";

/// A Markdown file.
#[derive(Debug)]
pub struct Document {
    path: PathBuf,
    text: String,
}

impl Document {
    /// Reads it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: PathBuf) -> Outcome<Self> {
        let text = std::fs::read_to_string(&path).doing(format!("read {}", path.display()))?;
        Ok(Self { path, text })
    }

    /// Puts the tables between their marks.
    ///
    /// # Errors
    /// A mark is wrong, or the file cannot be written.
    pub fn replace(&self, tables: &BTreeMap<String, String>) -> Outcome<()> {
        let (text, _) = self.rendered(tables)?;
        if text == self.text {
            return Ok(());
        }
        std::fs::write(&self.path, text).doing(format!("write {}", self.path.display()))
    }

    /// Passes if the tables are those between the marks; returns the names of the figures.
    ///
    /// # Errors
    /// A table differs from its record, or a mark is wrong.
    pub fn check(&self, tables: &BTreeMap<String, String>) -> Outcome<Vec<String>> {
        let (text, names) = self.rendered(tables)?;
        let mut lines = text.lines().zip(self.text.lines()).enumerate();
        match lines.find(|(_, (due, found))| due != found) {
            _ if text == self.text => Ok(names),
            Some((number, (due, _))) => Err(self.error(
                number,
                &format!("this line is not  {due}  as the figure has it: run  ./lab figures"),
            )),
            None => Err(self.error(
                0,
                "a figure is not as its record has it: run  ./lab figures",
            )),
        }
    }

    /// The text with the tables in their places, and the names of the figures.
    fn rendered(&self, tables: &BTreeMap<String, String>) -> Outcome<(String, Vec<String>)> {
        let (mut text, mut names) = (String::new(), Vec::new());
        let mut lines = self.text.split_inclusive('\n').enumerate();
        while let Some((number, line)) = lines.next() {
            text += line;
            let Some(name) = line.trim().strip_prefix(BEGIN) else {
                continue;
            };
            let name = name.trim_end_matches("-->").trim();
            let table = tables.get(name);
            let table =
                table.ok_or_else(|| self.error(number, &format!("there is no figure {name}")))?;
            let end = lines.find(|(_, line)| line.trim() == END);
            let (_, end) = end.ok_or_else(|| self.error(number, "the figure has no end"))?;
            text += table;
            text += end;
            names.push(name.to_owned());
        }
        Ok((text, names))
    }

    fn error(&self, line: usize, what: &str) -> Failure {
        Failure::work(format!("{}:{}: {what}", self.path.display(), line + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Document {
        Document {
            path: "d.md".into(),
            text: text.into(),
        }
    }

    fn tables() -> BTreeMap<String, String> {
        BTreeMap::from([("one".to_owned(), "| 1 |\n".to_owned())])
    }

    #[test]
    fn tables_go_between_their_marks_and_nothing_else_changes() {
        let stale = document("a\n<!-- figure: one -->\nold\nold\n<!-- end of figure -->\nb\n");
        let fresh = "a\n<!-- figure: one -->\n| 1 |\n<!-- end of figure -->\nb\n";
        let (text, names) = stale.rendered(&tables()).unwrap();
        assert_eq!(
            (text.as_str(), &names[..]),
            (fresh, &["one".to_owned()][..])
        );
        let error = stale.check(&tables()).unwrap_err().to_string();
        assert!(
            error.starts_with("d.md:3: ") && error.contains("./lab figures"),
            "{error}"
        );
        assert_eq!(document(fresh).check(&tables()).unwrap(), ["one"]);
    }

    #[test]
    fn wrong_marks_are_errors() {
        let of = |text: &str| document(text).check(&tables()).unwrap_err().to_string();
        assert!(of("<!-- figure: two -->\n").contains("no figure two"));
        assert!(of("\n<!-- figure: one -->\n| 1 |\n").starts_with("d.md:2: the figure has no end"));
    }

    #[test]
    fn a_line_too_much_is_noticed() {
        let more = document("<!-- figure: one -->\n| 1 |\n| 2 |\n<!-- end of figure -->\n");
        assert!(more.check(&tables()).is_err());
    }
}
