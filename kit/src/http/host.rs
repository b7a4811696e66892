//! Whom a request is for. A page of somebody else that a browser shows may resolve its own name to this machine's loopback address and
//! read what is served there (DNS rebinding); its requests still carry that name.

use std::net::{IpAddr, SocketAddr};

/// Whether a request with this `Host` may be answered by a server on `listening`. One on a loopback address answers to loopback addresses
/// and `localhost` alone; another one is known by names that it cannot know.
pub(super) fn is_ours(host: Option<&str>, listening: IpAddr) -> bool {
    // Without the header the client is no browser.
    let Some(host) = host.filter(|_| listening.is_loopback()) else { return true };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let numeric = host.parse().map(|host: SocketAddr| host.ip()).or_else(|_| address.parse::<IpAddr>());
    name.eq_ignore_ascii_case("localhost") || numeric.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_name_is_none_of_a_loopback_server() {
        let (loopback, any) = ("127.0.0.1".parse().expect("one"), "0.0.0.0".parse().expect("one"));
        for host in
            ["127.0.0.1", "127.0.0.1:9100", "localhost", "LocalHost:80", "[::1]", "[::1]:9100", "127.1.2.3:1"]
        {
            assert!(is_ours(Some(host), loopback), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9100",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9100",
            "192.0.2.1:9100",
            "[2001:db8::1]:9100",
            ":9100",
            "localhost:x",
            "[::1",
            "0.0.0.0",
        ] {
            assert!(!is_ours(Some(host), loopback), "{host}");
            assert!(is_ours(Some(host), any), "{host}");
        }
        assert!(is_ours(None, loopback));
    }
}
