//! Messages of JSON-RPC 2.0. Source: the specification at jsonrpc.org, sections 4 to 6.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pollux_bringup::program::say;
use pollux_eal::prefix_socket::{Gone, Service};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
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

/// What requests ask for.
pub(super) trait Calls {
    fn call(&mut self, method: &str, params: &Value) -> Result<Value, Refusal>;
}

/// All clients, who are answered by the same.
pub(super) struct Clients<C>(pub(super) C);

/// A client that is connected.
pub(super) struct Client(OwnedFd);

impl<C: Calls> Service for Clients<C> {
    type Client = Client;
    const CLIENTS_MAX: usize = 16;

    fn welcome(&mut self, socket: OwnedFd) -> Result<Client, Gone> {
        Ok(Client(socket))
    }

    fn waits_for(client: &Client) -> (BorrowedFd<'_>, PollFlags) {
        (client.0.as_fd(), PollFlags::IN)
    }

    /// Answers a message. A client that does not read its answers goes.
    fn step(&mut self, client: &mut Client) -> Result<(), Gone> {
        let mut message = vec![0; BYTES_MAX];
        let bytes = match recv(&client.0, &mut message[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, 0)) => return Err(Gone),
            Ok((_, bytes)) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(_) => return Err(Gone),
        };
        let answer = match message.get(..bytes) {
            Some(message) => answer(message, |method, params| self.0.call(method, params)),
            None => Some(failure(
                &Value::Null,
                &(INVALID_REQUEST, format!("a request has up to {BYTES_MAX} bytes")),
            )),
        };
        let Some(answer) = answer else { return Ok(()) };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        send(&client.0, answer.to_string().as_bytes(), flags).map(drop).map_err(|_| Gone)
    }

    fn gives_way(_client: &Client) -> bool {
        false
    }

    fn say_no_files(&self) {
        say(format_args!("pktgen: no file descriptor is left for a client"));
    }
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
