//! What `native.py` tells of the tests, in lines of JSON.

use serde::Deserialize;

use crate::run::Outcome;

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// With the suite's reason.
    Skipped(String),
    /// With what was wrong.
    Failing(String),
}

/// Tests in the order in which they ran.
pub(super) type Report = Vec<(String, Verdict)>;

#[derive(Deserialize)]
struct Line {
    test: String,
    #[serde(default)]
    outcome: String,
    #[serde(default)]
    why: String,
}

fn lines(text: &str) -> Outcome<Vec<Line>> {
    // A process that is ended may leave half a line.
    let whole = text.lines().filter(|line| line.ends_with('}'));
    whole
        .map(|line| serde_json::from_str(line).map_err(|why| format!("a report's line '{line}': {why}")))
        .collect()
}

/// The tests of a list.
pub(super) fn names(text: &str) -> Outcome<Vec<String>> {
    Ok(lines(text)?.into_iter().map(|line| line.test).collect())
}

/// The verdicts; a test that only begins has ended the process.
pub(super) fn parse(text: &str) -> Outcome<Report> {
    let mut report = Report::new();
    for line in lines(text)? {
        let why = line.why.split_whitespace().collect::<Vec<_>>().join(" ");
        let verdict = match line.outcome.as_str() {
            "passed" => Verdict::Passed,
            "skipped" => Verdict::Skipped(why),
            "failing" => Verdict::Failing(why),
            _ => Verdict::Failing("took too long, or crashed".into()),
        };
        match report.iter_mut().find(|(test, _)| *test == line.test) {
            Some((_, known)) => *known = verdict,
            None => report.push((line.test, verdict)),
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_only_begins_fails() {
        let text = "{\"test\": \"a\", \"begins\": true}\n\
                    {\"test\": \"a\", \"outcome\": \"passed\", \"why\": \"\"}\n\
                    {\"test\": \"b\", \"begins\": true}\n\
                    {\"test\": \"b\", \"outcome\": \"skipped\", \"why\": \"no\\n lasers\"}\n\
                    {\"test\": \"c\", \"begins\": true}\n{\"test\": \"c\", \"outc";
        let report = parse(text).expect("a report");
        let skipped = Verdict::Skipped("no lasers".into());
        assert_eq!(report[..2], [("a".into(), Verdict::Passed), ("b".into(), skipped)]);
        assert!(matches!(&report[2], (test, Verdict::Failing(_)) if test == "c"));
        assert!(parse("{}").is_err());
        assert_eq!(names("{\"test\": \"a\"}\n{\"test\": \"b\"}\n").expect("names"), ["a", "b"]);
    }
}
