//! What the serial port of a surveyed machine has sent, as a result.

use std::path::Path;

use serde_json::{Value, json};

use crate::bench::report::{self, Printed};
use crate::bench::{CONTESTS, PROGRAMS, Row};
use crate::failure::{Failure, Outcome};
use crate::place;
use crate::protocol::{self, Message, Object};

/// The program that runs the others, as it calls itself.
const SURVEY: &str = "survey";
/// How rows name the machine that measured them.
const MACHINE: &str = "pc";
/// How the first and the last line of the last page begin.
const HEADLINE: &str = "shootdown ";
const VERDICT: &str = "done: ";

/// What one bench said.
#[derive(Debug)]
pub struct Bench {
    /// Of itself.
    about: Object,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// A whole survey.
#[derive(Debug)]
pub struct Survey {
    /// What the machine is.
    about: Object,
    /// The benches, in order.
    pub benches: Vec<Bench>,
    /// How many rows were printed, if it came to its end.
    rows: Option<u64>,
}

/// Reads a text, writes its result and shows its last page.
///
/// # Errors
/// The text cannot be read, or is none of a survey (exit code 2); it is not whole, or something in it was wrong.
pub fn command(path: &Path, json: Option<&Path>) -> Outcome<()> {
    report::probe(json, "--json")?;
    let unreadable = |cause: String| {
        let remedy = "give --read the text that the serial port of a PC has sent";
        Failure::input(format!("{}: {cause}", path.display()), remedy)
    };
    let bytes = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    let text = String::from_utf8_lossy(&bytes);
    let survey = Survey::read(&text)?.ok_or_else(|| unreadable("no survey in it".to_owned()))?;
    report::write(json, &survey.result())?;
    report::print(Printed {
        rest: &last_page(&text),
        ..Printed::default()
    });
    survey.judge()
}

impl Survey {
    /// The last survey in a text; none if there is none.
    ///
    /// # Errors
    /// A line is garbled.
    pub fn read(text: &str) -> Outcome<Option<Self>> {
        let mut survey: Option<Self> = None;
        for message in text.lines().filter_map(protocol::parse) {
            match (message.map_err(Failure::work)?, &mut survey) {
                (Message::Info(about), _) if is_start(&about) => {
                    survey = Some(Self {
                        about,
                        benches: Vec::new(),
                        rows: None,
                    });
                }
                (Message::Info(about), Some(survey)) => survey.take_info(about),
                (Message::Row(row), Some(survey)) => survey.take_row(Row(row))?,
                _ => {}
            }
        }
        Ok(survey)
    }

    /// How many tags each CPU used.
    pub fn tags(&self) -> u64 {
        self.about.get("tags").and_then(Value::as_u64).unwrap_or(0)
    }

    fn take_info(&mut self, about: Object) {
        if about.get("is_done") == Some(&true.into()) {
            self.rows = about.get("rows").and_then(Value::as_u64);
            return;
        }
        let rows = Vec::new();
        self.benches.push(Bench { about, rows });
    }

    fn take_row(&mut self, mut row: Row) -> Outcome<()> {
        let Some(bench) = self.benches.last_mut() else {
            return Err(Failure::work("a row stands before what it belongs to"));
        };
        row.set("machine", MACHINE);
        bench.rows.push(row);
        Ok(())
    }

    /// The benches' results, each in the shape that `lab bench` writes.
    fn result(&self) -> Value {
        let benches = self.benches.iter().map(|bench| self.bench_result(bench));
        json!({
            "workload": SURVEY,
            "machine": MACHINE,
            "commit": self.about.get("commit"),
            "date": place::timestamp(),
            "params": self.about,
            "is_done": self.rows.is_some(),
            "benches": benches.collect::<Vec<Value>>(),
        })
    }

    fn bench_result(&self, bench: &Bench) -> Value {
        let (commit, cpus) = (self.about.get("commit"), self.about.get("cpus"));
        let mut result = json!({
            "workload": bench.name(),
            "machine": MACHINE,
            "accel": "none",
            "cpus": cpus,
            "commit": commit,
            "date": place::timestamp(),
            "params": {"program": bench.about},
        });
        match CONTESTS.iter().any(|contest| contest.name == bench.name()) {
            false => result["rows"] = json!(bench.rows),
            true => {
                let plan = bench.about.get("plan");
                result["groups"] =
                    json!([{"cpus": cpus, "accel": "none", "plan": plan, "rows": bench.rows}]);
            }
        }
        result
    }

    /// Passes if the survey is whole and nothing in it was wrong.
    ///
    /// # Errors
    /// Says what is missing or wrong.
    pub fn judge(&self) -> Outcome<()> {
        let rows: usize = self.benches.iter().map(|bench| bench.rows.len()).sum();
        match self.rows {
            None => return Err(Failure::work("the text ends before the survey does")),
            Some(due) if due != rows as u64 => {
                return Err(Failure::work(format!(
                    "{rows} rows where {due} were printed"
                )));
            }
            Some(_) => {}
        }
        self.benches.iter().try_for_each(Bench::judge)
    }
}

impl Bench {
    /// What it measures.
    pub fn name(&self) -> &str {
        self.about
            .get("program")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Passes if it is known, has rows, and nothing was stale or wrong.
    fn judge(&self) -> Outcome<()> {
        let name = self.name();
        let mut known = PROGRAMS.iter().map(|program| program.name);
        let mut contests = CONTESTS.iter().map(|contest| contest.name);
        if !known.any(|known| known == name) && !contests.any(|known| known == name) {
            return Err(Failure::work(format!("there is no bench {name:?}")));
        }
        let count = |key| self.rows.iter().map(|row| row.count(key)).sum::<u64>();
        match (self.rows.len(), count("stale"), count("wrong")) {
            (0, ..) => Err(Failure::work(format!("{name} has found nothing"))),
            (_, 0, 0) => Ok(()),
            (_, stale, wrong) => Err(Failure::work(format!(
                "{name}: {stale} stale accesses, {wrong} wrong calls"
            ))),
        }
    }
}

fn is_start(about: &Object) -> bool {
    about.get("program") == Some(&SURVEY.into()) && about.contains_key("effort")
}

/// What the screen shows at the end; all that is there for people, if there is no such page.
fn last_page(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let last = lines.iter().rposition(|line| line.starts_with(HEADLINE));
    let lines = lines[last.unwrap_or(0)..].iter();
    let mut page = String::new();
    for line in lines.filter(|line| !line.starts_with(['@', '['])) {
        page += line;
        page.push('\n');
        if line.starts_with(VERDICT) {
            break;
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[ 0.1] c0 info: up\r
@info {\"program\":\"survey\",\"effort\":\"quick\",\"commit\":\"abc\",\"cpus\":2}\r
shootdown 0.1.0: 2 CPUs\r
@info {\"program\":\"madvise\",\"cpus\":2}\r
@row {\"policy\":\"best\",\"stale\":0}\r
madvise: so and so\r
@info {\"program\":\"shoot\",\"plan\":\"shoot,calls=1\"}\r
@row {\"peer\":\"best\",\"wrong\":0}\r
shootdown 0.1.0: 2 CPUs\r
madvise: so and so\r
@info {\"program\":\"survey\",\"is_done\":true,\"rows\":2}\r
done: 2 rows\r
[ 9.9] c0 info: over\r
";

    fn read(text: &str) -> Survey {
        Survey::read(text).unwrap().expect("a survey")
    }

    #[test]
    fn benches_are_told_apart_and_keep_the_shape_that_they_have_elsewhere() {
        let survey = read(TEXT);
        survey.judge().unwrap();
        let result = survey.result();
        let [madvise, shoot] = &result["benches"].as_array().unwrap()[..] else {
            panic!("{result}")
        };
        assert_eq!(
            (&madvise["workload"], &madvise["commit"]),
            (&"madvise".into(), &"abc".into())
        );
        assert_eq!(madvise["rows"][0]["machine"], "pc");
        let group = &shoot["groups"][0];
        assert_eq!(
            (&group["plan"], &group["cpus"]),
            (&"shoot,calls=1".into(), &2.into())
        );
        assert_eq!(group["rows"][0]["peer"], "best");
        assert_eq!(
            last_page(TEXT),
            "shootdown 0.1.0: 2 CPUs\nmadvise: so and so\ndone: 2 rows\n"
        );
    }

    #[test]
    fn what_is_missing_or_wrong_is_told() {
        let told = |text: &str| read(text).judge().unwrap_err().to_string();
        let cut = TEXT.find("shootdown 0.1.0").unwrap();
        assert!(told(&TEXT[..cut]).contains("ends before"));
        assert!(told(&TEXT.replace("\"rows\":2", "\"rows\":3")).contains("2 rows where 3"));
        assert!(told(&TEXT.replace("\"stale\":0", "\"stale\":4")).contains("madvise: 4 stale"));
        assert!(told(&TEXT.replace("\"madvise\"", "\"other\"")).contains("no bench \"other\""));
        assert!(Survey::read(&TEXT.replace("\"wrong\":0}", "\"wro")).is_err());
        assert!(Survey::read("hello\n").unwrap().is_none());
    }

    #[test]
    fn the_last_boot_in_a_text_counts() {
        let survey = read(&format!("{}{TEXT}", &TEXT[..TEXT.len() / 2]));
        assert_eq!(survey.benches.len(), 2);
        survey.judge().unwrap();
    }
}
