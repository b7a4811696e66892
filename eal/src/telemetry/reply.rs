//! An answer as bytes, of no more than a client has room for.
//!
//! DPDK's rule (`lib/telemetry/telemetry_json.h`): what has no room as a whole is left out, and what comes after it is still put in if
//! that has.

use serde_json::Value;

use super::{COMMAND_MAX, OUTPUT_MAX};

/// `{"command":value}`, [`OUTPUT_MAX`] bytes at most.
pub(super) fn text(command: &str, value: &Value) -> String {
    let mut shown: String = command.to_owned();
    shown.truncate(shown.floor_char_boundary(COMMAND_MAX));
    let mut out = format!("{{{}:", Value::from(shown));
    let room = OUTPUT_MAX - out.len() - 1;
    fill(&mut out, value, room);
    out.push('}');
    out
}

/// Appends `value`, or what of it has room.
fn fill(out: &mut String, value: &Value, room: usize) {
    let whole = value.to_string();
    if whole.len() <= room {
        out.push_str(&whole);
        return;
    }
    let end = out.len() + room;
    match value {
        Value::Object(members) => {
            let members =
                members.iter().map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())));
            list(out, end, ('{', '}'), members);
        }
        Value::Array(elements) => list(out, end, ('[', ']'), elements.iter().map(Value::to_string)),
        _ => out.push_str("null"),
    }
}

fn list(out: &mut String, end: usize, (open, close): (char, char), parts: impl Iterator<Item = String>) {
    out.push(open);
    let mut comma = "";
    for part in parts {
        if out.len() + comma.len() + part.len() < end {
            out.push_str(comma);
            out.push_str(&part);
            comma = ",";
        }
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_has_no_room_is_left_out_and_the_rest_is_there() {
        let long = "x".repeat(OUTPUT_MAX);
        for (value, answer) in [
            (json!(["a", long, "b"]), r#"{"/c":["a","b"]}"#),
            (json!({"a": 1, "long": long, "b": [2]}), r#"{"/c":{"a":1,"b":[2]}}"#),
            (json!({"inner": [long, 1], "b": {}}), r#"{"/c":{"b":{}}}"#),
            (json!(long), r#"{"/c":null}"#),
        ] {
            assert_eq!(text("/c", &value), answer);
        }
    }

    #[test]
    fn an_answer_may_fill_the_room_to_the_last_byte() {
        let room = OUTPUT_MAX - r#"{"/c":""}"#.len();
        assert_eq!(text("/c", &json!("x".repeat(room))).len(), OUTPUT_MAX);
        assert_eq!(text("/c", &json!("x".repeat(room + 1))), r#"{"/c":null}"#);
        let room = OUTPUT_MAX - r#"{"/c":["","a"]}"#.len();
        for (length, shown) in
            [(room, OUTPUT_MAX), (room + 1, OUTPUT_MAX - 3), (room + 4, OUTPUT_MAX), (room + 5, 12)]
        {
            let answer = text("/c", &json!(["x".repeat(length), "a"]));
            assert_eq!(answer.len(), shown, "{length}");
        }
    }

    #[test]
    fn a_long_command_is_cut() {
        assert_eq!(text(&"é".repeat(100), &Value::Null), format!("{{\"{}\":null}}", "é".repeat(28)));
        // Each of these takes six bytes.
        assert_eq!(text(&"\u{1}".repeat(2000), &Value::Null).len(), 6 * COMMAND_MAX + r#"{"":null}"#.len());
    }
}
