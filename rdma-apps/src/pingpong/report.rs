//! The lines that the pingpongs print, as the originals print them.
//!
//! Source: rdma-core `libibverbs/examples/{rc,ud,xsrq}_pingpong.c`.

use std::net::Ipv6Addr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::exchange::pingpong::{Address, XsrqAddress};

/// One end, with what stands before the GID: a comma, or a colon at UD's own end.
fn address(whose: &str, address: &Address, mark: char) -> String {
    let Address { lid, qpn, psn, gid } = address;
    let gid = Ipv6Addr::from(*gid);
    format!("  {whose:<15} LID 0x{lid:04x}, QPN 0x{qpn:06x}, PSN 0x{psn:06x}{mark} GID {gid}\n")
}

/// This end.
#[must_use]
pub fn local(own: &Address) -> String {
    address("local address:", own, ',')
}

/// This end, as `ibv_ud_pingpong` writes it.
#[must_use]
pub fn local_of_ud(own: &Address) -> String {
    address("local address:", own, ':')
}

/// The other end.
#[must_use]
pub fn remote(other: &Address) -> String {
    address("remote address:", other, ',')
}

/// One end of an XSRQ run; `whose` is `local` or `remote`.
#[must_use]
pub fn xsrq(whose: &str, address: &XsrqAddress) -> String {
    let XsrqAddress { lid, receive_qpn, send_qpn, psn, srqn, gid } = address;
    let gid = Ipv6Addr::from(*gid);
    format!(
        "{whose:>8}: LID {lid:04x}, QPN RECV {receive_qpn:06x} SEND {send_qpn:06x}, PSN {psn:06x}, SRQN {srqn:06x}, GID {gid}\n"
    )
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Bytes of a message.
    pub size: u64,
    /// Exchanges.
    pub iterations: u64,
    /// How long they took.
    pub time: Duration,
    /// Cycles of the device's clock between receive completions, when they were asked for: most, fewest, all, how many.
    pub ticks: Option<Ticks>,
}

/// Of the device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// Most between two receives.
    pub max: u64,
    /// Fewest.
    pub min: u64,
    /// In all.
    pub total: u64,
    /// Pairs of receives.
    pub count: u64,
}

impl Default for Ticks {
    fn default() -> Self {
        Self { max: 0, min: u64::MAX, total: 0, count: 0 }
    }
}

impl Ticks {
    /// Counts the time between two receives.
    pub fn add(&mut self, ticks: u64) {
        *self = Self {
            max: self.max.max(ticks),
            min: self.min.min(ticks),
            total: self.total.wrapping_add(ticks),
            count: self.count + 1,
        };
    }
}

impl Outcome {
    fn microseconds(&self) -> f64 {
        self.time.as_secs_f64() * 1e6
    }

    fn bytes(&self) -> u64 {
        self.size.saturating_mul(self.iterations).saturating_mul(2)
    }

    fn megabits(&self) -> f64 {
        if self.time.is_zero() { 0.0 } else { self.bytes() as f64 * 8.0 / self.microseconds() }
    }

    fn each(&self) -> f64 {
        if self.iterations == 0 { 0.0 } else { self.microseconds() / self.iterations as f64 }
    }

    /// The last lines.
    #[must_use]
    pub fn lines(&self) -> String {
        let seconds = self.time.as_secs_f64();
        let mut text = format!(
            "{} bytes in {seconds:.2} seconds = {:.2} Mbit/sec\n{} iters in {seconds:.2} seconds = {:.2} usec/iter\n",
            self.bytes(),
            self.megabits(),
            self.iterations,
            self.each()
        );
        if let Some(Ticks { max, min, total, count }) = self.ticks.filter(|ticks| ticks.count > 0) {
            let average = total as f64 / count as f64;
            text.push_str(&format!(
                "Max receive completion clock cycles = {max}\nMin receive completion clock cycles = {min}\n\
                 Average receive completion clock cycles = {average:.6}\n"
            ));
        }
        text
    }

    /// The same as one object.
    #[must_use]
    pub fn json(&self, app: &str, device: &str) -> Value {
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        json!({
            "app": app, "device": device, "seconds": (self.time.as_secs_f64() * 1e6).round() / 1e6, "size": self.size,
            "iterations": self.iterations, "bytes": self.bytes(), "megabits_per_second": rounded(self.megabits()),
            "microseconds_per_iteration": rounded(self.each()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_originals() {
        let gid = u128::to_be_bytes(0xfe80_0000_0000_0000_5054_00ff_fe12_3456);
        let own = Address { lid: 0, qpn: 0x11, psn: 0xa3_c9f0, gid };
        // What C's printf and inet_ntop make of the originals' formats.
        let tail = "GID fe80::5054:ff:fe12:3456\n";
        assert_eq!(local(&own), format!("  local address:  LID 0x0000, QPN 0x000011, PSN 0xa3c9f0, {tail}"));
        assert_eq!(remote(&own), format!("  remote address: LID 0x0000, QPN 0x000011, PSN 0xa3c9f0, {tail}"));
        assert_eq!(
            local_of_ud(&own),
            format!("  local address:  LID 0x0000, QPN 0x000011, PSN 0xa3c9f0: {tail}")
        );
        let mapped = Address { gid: u128::to_be_bytes(0xffff_0a00_0001), ..own };
        assert!(local(&mapped).ends_with("GID ::ffff:10.0.0.1\n"), "{}", local(&mapped));
        let xrc = XsrqAddress { lid: 0, receive_qpn: 0x12, send_qpn: 0x11, psn: 0xbeef, srqn: 9, gid };
        assert_eq!(
            xsrq("local", &xrc),
            format!("   local: LID 0000, QPN RECV 000012 SEND 000011, PSN 00beef, SRQN 000009, {tail}")
        );
        let mut ticks = Ticks::default();
        ticks.add(10);
        ticks.add(15);
        let outcome =
            Outcome { size: 4096, iterations: 1000, time: Duration::from_micros(12_340), ticks: Some(ticks) };
        assert_eq!(
            outcome.lines(),
            "8192000 bytes in 0.01 seconds = 5310.86 Mbit/sec\n1000 iters in 0.01 seconds = 12.34 usec/iter\n\
             Max receive completion clock cycles = 15\nMin receive completion clock cycles = 10\n\
             Average receive completion clock cycles = 12.500000\n"
        );
        assert_eq!(outcome.json("rc_pingpong", "mlx5_model0")["megabits_per_second"], 5310.859);
        assert!(Outcome::default().lines().starts_with("0 bytes in 0.00 seconds = 0.00 Mbit/sec\n"));
    }
}
