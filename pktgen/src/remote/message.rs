//! Messages of JSON-RPC 2.0. Source: the specification at jsonrpc.org, sections 4 to 6.

use pollux_bringup::program::say;
use pollux_eal::prefix_socket::Answers;
use serde_json::{Value, json};

/// Bytes of a request or an answer: what a socket takes as one message by default.
const BYTES_MAX: usize = 64 << 10;

/// Why a request is answered with an error: the code and what is said.
pub(super) type Refusal = (i32, String);

const PARSE_ERROR: i32 = -32_700;
const INVALID_REQUEST: i32 = -32_600;
pub(super) const METHOD_NOT_FOUND: i32 = -32_601;
pub(super) const INVALID_PARAMS: i32 = -32_602;
/// Of this program: it cannot be done now.
pub(super) const NOT_NOW: i32 = -32_000;
/// Of this program: the answer is too long.
const NO_ROOM: i32 = -32_001;

/// What requests ask for.
pub(super) trait Calls {
    fn call(&mut self, method: &str, params: &Value) -> Result<Value, Refusal>;
}

/// All clients, who are answered by the same.
pub(super) struct Clients<C>(pub(super) C);

impl<C: Calls> Answers for Clients<C> {
    const CLIENTS_MAX: usize = 16;
    const MESSAGE_MAX: usize = BYTES_MAX;

    fn answer(&mut self, message: &[u8], bytes: usize) -> Option<String> {
        if bytes > message.len() {
            let why = format!("a request has up to {BYTES_MAX} bytes, and this one {bytes}");
            return Some(failure(&Value::Null, &(INVALID_REQUEST, why)).to_string());
        }
        answer(message, |method, params| self.0.call(method, params)).map(|answer| fitting(&answer))
    }

    fn say_no_files(&self) {
        say(format_args!("pktgen: no file descriptor is left for a client"));
    }
}

/// The text of an answer, or that it has no room in a message.
fn fitting(answer: &Value) -> String {
    let text = answer.to_string();
    if text.len() <= BYTES_MAX {
        return text;
    }
    let why = format!("the answer has {} bytes, and {BYTES_MAX} have room: ask for less", text.len());
    let id = answer.get("id").unwrap_or(&Value::Null);
    failure(id, &(NO_ROOM, why)).to_string()
}

fn failure(id: &Value, (code, message): &Refusal) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

/// The answer to a message, a request or several; none where only notifications are in it.
fn answer(message: &[u8], mut call: impl FnMut(&str, &Value) -> Result<Value, Refusal>) -> Option<Value> {
    let request = match serde_json::from_slice(message) {
        Ok(request) => request,
        Err(error) => return Some(failure(&Value::Null, &(PARSE_ERROR, format!("no JSON: {error}")))),
    };
    match request {
        Value::Array(requests) if !requests.is_empty() => {
            let answers: Vec<Value> =
                requests.iter().filter_map(|request| answer_one(request, &mut call)).collect();
            (!answers.is_empty()).then_some(Value::Array(answers))
        }
        request => answer_one(&request, &mut call),
    }
}

fn answer_one(
    request: &Value,
    call: &mut impl FnMut(&str, &Value) -> Result<Value, Refusal>,
) -> Option<Value> {
    let id = request.get("id");
    let is_id = matches!(id, None | Some(Value::Null | Value::Number(_) | Value::String(_)));
    let params = request.get("params").unwrap_or(&Value::Null);
    let are_params = matches!(params, Value::Null | Value::Object(_) | Value::Array(_));
    let method = request.get("method").and_then(Value::as_str);
    let (Some(method), true) = (method, request["jsonrpc"] == "2.0" && is_id && are_params) else {
        let why =
            "a request has members jsonrpc (2.0), method (text), params (named) and id (number or text)";
        return Some(failure(&Value::Null, &(INVALID_REQUEST, why.into())));
    };
    let done = call(method, params);
    let id = id?;
    Some(match done {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(refusal) => failure(id, &refusal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(message: &str) -> Option<Value> {
        answer(message.as_bytes(), |method, params| match method {
            "double" => Ok(json!(2 * params["number"].as_i64().unwrap_or(0))),
            other => Err((METHOD_NOT_FOUND, format!("no method {other}"))),
        })
    }

    #[test]
    fn requests_are_answered_by_their_ids() {
        let request = r#"{"jsonrpc":"2.0","method":"double","params":{"number":21},"id":"a"}"#;
        assert_eq!(answered(request), Some(json!({"jsonrpc": "2.0", "id": "a", "result": 42})));
        let several = format!(
            r#"[{request},{{"jsonrpc":"2.0","method":"double"}},{{"jsonrpc":"2.0","method":"x","id":2}},1]"#
        );
        let Some(Value::Array(answers)) = answered(&several) else { panic!("several") };
        assert_eq!(answers.len(), 3);
        assert_eq!(answers[0]["result"], 42);
        assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!(2), &json!(METHOD_NOT_FOUND)));
        assert_eq!(
            (&answers[2]["id"], &answers[2]["error"]["code"]),
            (&Value::Null, &json!(INVALID_REQUEST))
        );
        assert_eq!(answered(r#"{"jsonrpc":"2.0","method":"double"}"#), None, "a notification");
    }

    #[test]
    fn what_has_no_room_is_told_of() {
        struct Long;
        impl Calls for Long {
            fn call(&mut self, _: &str, params: &Value) -> Result<Value, Refusal> {
                Ok("x".repeat(params["bytes"].as_u64().unwrap_or(0) as usize).into())
            }
        }
        let mut clients = Clients(Long);
        let mut ask = |bytes: usize| -> Value {
            let request =
                json!({"jsonrpc": "2.0", "method": "", "id": 3, "params": {"bytes": bytes}}).to_string();
            let answer = clients.answer(request.as_bytes(), request.len()).expect("an answer");
            assert!(answer.len() <= BYTES_MAX);
            serde_json::from_str(&answer).expect("JSON")
        };
        assert_eq!(ask(1000)["result"].as_str().map(str::len), Some(1000));
        let refused = ask(BYTES_MAX);
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(3), &json!(NO_ROOM)), "{refused}");
        let cut = clients.answer(b"{", BYTES_MAX + 1).expect("an answer");
        assert!(cut.contains("a request has up to 65536 bytes, and this one 65537"), "{cut}");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for (text, code) in [
            ("", PARSE_ERROR),
            ("{", PARSE_ERROR),
            ("[]", INVALID_REQUEST),
            ("7", INVALID_REQUEST),
            (r#"{"method":"double","id":1}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","method":7,"id":1}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","method":"double","params":7,"id":1}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","method":"double","id":[1]}"#, INVALID_REQUEST),
        ] {
            let answer = answered(text).expect("an answer");
            assert_eq!(answer["error"]["code"], code, "{text}: {answer}");
            assert_eq!(answer["id"], Value::Null, "{text}");
        }
    }
}
