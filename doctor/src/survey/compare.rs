//! Where a card's report and its model's differ: refusals and answers call by call, capabilities by the names of their fields, what
//! came of each check.

use pollux_explain::line::digits;
use pollux_explain::normal;
use pollux_mlx5_abi::caps;

use super::document::Document;
use super::query::KINDS;
use super::step::Step;

/// How many differences of one check's calls are told; the rest is a number.
const CALLS_MAX: usize = 40;

/// Bytes in front of the block in the firmware's answer.
const HEAD_BYTES: usize = 16;
/// A query of capabilities, as a trace has it: DEVX/OTHER with CMD_IN, and the command's number QUERY_HCA_CAP.
const QUERY: &str = "call 0x1000/0x1000 0x1000=in:0100";

/// A line for each difference, `STEP: WHAT: card THIS, model THAT`; none where both say the same.
pub(crate) fn differences(card: &Document, model: &Document) -> Vec<String> {
    let mut found = Vec::new();
    for ours in &model.steps {
        match card.steps.iter().find(|step| step.name == ours.name) {
            Some(theirs) => step(theirs, ours, &mut found),
            None => found.push(format!("{}: the report has no such check", ours.name)),
        }
    }
    for step in card.steps.iter().filter(|step| !model.steps.iter().any(|ours| ours.name == step.name)) {
        found.push(format!("{}: this doctor makes no such check", step.name));
    }
    found
}

fn step(card: &Step, model: &Step, found: &mut Vec<String>) {
    let name = &card.name;
    for (fact, ours) in &model.facts {
        match card.facts.get(fact) {
            Some(theirs) if theirs == ours => {}
            Some(theirs) => found.push(format!("{name}: {fact}: card {theirs}; model {ours}")),
            None => found.push(format!("{name}: {fact}: card does not say; model {ours}")),
        }
    }
    for (fact, theirs) in card.facts.iter().filter(|(fact, _)| !model.facts.contains_key(*fact)) {
        found.push(format!("{name}: {fact}: card {theirs}; model does not say"));
    }
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    capabilities(name, card, model, found, (&mut theirs, &mut ours));
    let lines = |calls: &[&str]| calls.iter().map(|line| format!("{line}\n")).collect::<String>();
    let calls = normal::differences(&lines(&ours), &lines(&theirs));
    found.extend(calls.iter().take(CALLS_MAX).map(|line| format!("{name}: {line}")));
    if calls.len() > CALLS_MAX {
        found.push(format!("{name}: {} further calls differ", calls.len() - CALLS_MAX));
    }
}

/// Compares answers about capabilities by field; the other calls of both go to `rest`.
fn capabilities<'a>(
    name: &str,
    card: &'a Step,
    model: &'a Step,
    found: &mut Vec<String>,
    rest: (&mut Vec<&'a str>, &mut Vec<&'a str>),
) {
    let take = |step: &'a Step, others: &mut Vec<&'a str>| {
        let mut told = Vec::new();
        for line in &step.calls {
            match capability(line) {
                Some(answer) => told.push(answer),
                None => others.push(line.as_str()),
            }
        }
        told
    };
    let (theirs, ours) = (take(card, rest.0), take(model, rest.1));
    for (kind, block) in &theirs {
        let Some((_, our_block)) = ours.iter().find(|(our_kind, _)| our_kind == kind) else {
            found.push(format!(
                "{name}: capabilities {}: the card tells them, the model does not",
                title(*kind)
            ));
            continue;
        };
        if block == our_block {
            continue;
        }
        let layout = caps::layout(*kind);
        let mut known = block.clone();
        for place in layout.map_or(&[][..], |layout| layout.fields) {
            let (theirs, ours) = (place.value(block), place.value(our_block));
            if theirs != ours {
                let said = |value: Option<u64>| value.map_or("nothing".into(), |value| format!("{value:#x}"));
                let field = place.manual_name();
                found.push(format!(
                    "{name}: {}.{field}: card {}; model {}",
                    title(*kind),
                    said(theirs),
                    said(ours)
                ));
            }
            copy_bits(&mut known, our_block, place.bit, place.bits);
        }
        // What no field is known for.
        let bytes = known.iter().zip(our_block).filter(|(theirs, ours)| theirs != ours).count();
        if bytes > 0 || known.len() != our_block.len() {
            found.push(format!("{name}: {}: {bytes} bytes differ of which no field is known", title(*kind)));
        }
    }
    for (kind, _) in ours.iter().filter(|(kind, _)| !theirs.iter().any(|(their, _)| their == kind)) {
        found.push(format!("{name}: capabilities {}: the model tells them, the card does not", title(*kind)));
    }
}

/// Makes bits of `block` those of another one.
fn copy_bits(block: &mut [u8], from: &[u8], bit: u32, bits: u32) {
    for bit in bit..bit + bits {
        let (at, mask) = (bit as usize / 8, 0x80 >> (bit % 8));
        if let (Some(byte), Some(other)) = (block.get_mut(at), from.get(at)) {
            *byte = *byte & !mask | other & mask;
        }
    }
}

fn title(kind: u16) -> String {
    let known = KINDS.iter().find(|(_, number)| *number == kind);
    known.map_or_else(|| format!("kind {kind:#x}"), |(name, _)| (*name).to_owned())
}

/// Kind and block of an answered query of capabilities; none of another call, or one that was refused.
fn capability(line: &str) -> Option<(u16, Vec<u8>)> {
    let (asked, answered) = line.split_once(" -> ok ")?;
    let input = digits(asked.strip_prefix(QUERY)?.split(' ').next()?)?;
    // Behind the number: user id, reserved, op_mod.
    let op_mod = u16::from_be_bytes(*input.get(4..)?.first_chunk()?);
    let output = digits(answered.split_once('=')?.1)?;
    Some((op_mod >> 1, output.get(HEAD_BYTES..)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::super::step::Refusal;
    use super::*;

    /// An answer about the general capabilities whose first bytes are these.
    fn told(block: &str) -> String {
        let zeros = 4096 - block.len() / 2;
        format!(
            "call 0x1000/0x1000 0x1000=in:0100000000000001{{8}} 0x1001=out:4112 -> ok 0x1001={{16}}{block}{{{zeros}}}"
        )
    }

    fn document(call: &str, fact: &str) -> Document {
        let mut step = Step::new("capabilities");
        step.calls.push(call.to_owned());
        step.fact("general", fact);
        Document { steps: vec![step], ..Document::default() }
    }

    #[test]
    fn the_same_has_no_differences() {
        let one = document(&told("00"), "told");
        assert!(differences(&one, &one).is_empty());
    }

    #[test]
    fn capabilities_differ_by_field() {
        // vhca_id stands in the second dword's lower half.
        let (one, other) =
            (document(&told("0000000000000007"), "told"), document(&told("0000000000000009"), "told"));
        assert_eq!(differences(&one, &other), ["capabilities: general.vhca_id: card 0x7; model 0x9"]);
        // No field is known for the first byte.
        let other = document(&told("8000000000000007"), "told");
        assert_eq!(
            differences(&one, &other),
            ["capabilities: general: 1 bytes differ of which no field is known"]
        );
    }

    #[test]
    fn no_other_call_is_taken_for_a_query() {
        // The number of a port is 1, in the same bytes as the number of the command.
        let port = "call 0x0000/0x0002 0x0000=in:0100000000000000 0x0001=out:48 -> ok 0x0001={48}";
        assert_eq!(capability(port), None);
        assert!(capability(&told("00")).is_some());
    }

    #[test]
    fn refusals_facts_and_missing_checks_are_told() {
        let refused = "call 0x1000/0x1000 0x1000=in:0100000000000001{8} 0x1001=out:4112 -> EINVAL";
        let (one, other) = (document(refused, "EINVAL"), document(&told("00"), "told"));
        let found = differences(&one, &other);
        assert!(found[0].contains("general: card EINVAL; model told"), "{found:?}");
        assert!(
            found.iter().any(|line| line.contains("the model tells them, the card does not")),
            "{found:?}"
        );
        let empty = Document::default();
        assert_eq!(differences(&empty, &other), ["capabilities: the report has no such check"]);
        assert_eq!(differences(&other, &empty), ["capabilities: this doctor makes no such check"]);
    }

    #[test]
    fn refusals_are_compared_by_what_was_answered() {
        let refused = |said: &str| {
            let mut step = Step::new("memory");
            step.refusal("mw", Refusal { fact: "EINVAL".into(), said: said.into() });
            Document { steps: vec![step], ..Document::default() }
        };
        let (card, model) = (refused("mlx5_5: Invalid argument"), refused("mlx5_model0: no such window"));
        assert!(differences(&card, &model).is_empty());
        let mut other = card.clone();
        other.steps[0].fact("mw", "EPERM");
        assert_eq!(differences(&other, &model), ["memory: mw: card EPERM; model EINVAL"]);
    }
}
