//! The tests of a session, size by size. Source of their steps: linux-rdma/perftest `src/{send,write,read,atomic}_{bw,lat}.c`.

use std::time::Duration;

use pollux_eal::clock::Clock;

use super::Session;
use crate::exchange::Side;
use crate::exchange::perftest::{PortShare, Results};
use crate::perftest::end::End;
use crate::perftest::format;
use crate::perftest::load::Load;
use crate::perftest::options::Connection;
use crate::perftest::settings::{Extent, Kind, Verb};
use crate::perftest::{bandwidth, latency, statistic, validate};
use crate::rdma::Failure;
use crate::rdma::endless::Watch;

impl Session<'_> {
    /// Runs the test, and shows what it comes to.
    pub(super) fn measure(&mut self) -> Result<(), Failure> {
        match self.settings().test.kind {
            Kind::Latency => self.latencies(),
            Kind::Bandwidth if self.settings().takes_receives() => self.messages(),
            Kind::Bandwidth => self.transfers(),
            Kind::LatencyUnderLoad => unreachable!("raw Ethernet alone has it, and a session of its own"),
        }
    }

    fn sizes(&self) -> Result<Vec<u64>, Failure> {
        let longest = match self.settings().connection {
            Connection::Ud => u64::from(self.mtu.bytes()),
            _ => u64::from(
                self.device.context.port(self.settings().options.ib_port as u8)?.legacy_resp.max_msg_sz,
            ),
        };
        Ok(self.settings().sizes(longest))
    }

    /// Watches over a loop: the other end is connected as long as it lives.
    fn watched<T>(
        &mut self,
        run: impl FnOnce(&mut End, &mut Watch<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut watch = Watch::new(self.lcore, Some(&self.line), Duration::from_millis(200));
        run(&mut self.end, &mut watch)
    }

    /// One run of a bandwidth test, its results and how busy the machine was.
    fn bandwidth(&mut self, size: u64) -> Result<(Results, Option<f64>), Failure> {
        let sends = self.sends;
        let before = self.settings().options.cpu_util.then(Load::now);
        let mut progress = std::mem::take(&mut self.progress);
        let run = self.watched(|end, watch| bandwidth::run(end, size, sends, &mut progress, watch))?;
        if matches!(self.settings().extent, Extent::Forever { .. }) {
            self.progress = progress;
        }
        let load = before.map(|before| Load::now().since(before));
        let gigabits = self.settings().options.report_gbits;
        let hz = Clock::get().hz() as f64;
        let results = statistic::bandwidth(&run.moments, size, run.messages, gigabits, hz);
        let by_port = run.by_port.map(|counts| statistic::shares(&run.moments, size, counts, gigabits, hz));
        Ok((Results { by_port, ..results }, load))
    }

    fn show(&mut self, results: &Results, load: Option<f64>) {
        self.report.bandwidth(&self.end.settings, results, load);
    }

    /// Both ends' results: what they come to, and each where that is asked for.
    fn show_with_others(&mut self, own: &Results, load: Option<f64>) -> Result<(), Failure> {
        let other = self.results(own)?;
        self.show(&sum(own, &other), load);
        self.show_both(own, &other);
        Ok(())
    }

    /// `send_bw`, and `write_bw` of WRITEs that complete where they come.
    fn messages(&mut self) -> Result<(), Failure> {
        let both = self.settings().bidirectional;
        let timed = !matches!(self.settings().extent, Extent::Iterations(_));
        let forever = matches!(self.settings().extent, Extent::Forever { .. });
        for size in self.sizes()? {
            self.end.resize(size);
            if self.receives {
                self.end.fill_receives()?;
            }
            self.step(true)?;
            loop {
                let (own, load) = self.bandwidth(size)?;
                if both && !timed {
                    self.show_with_others(&own, load)?;
                } else {
                    self.show(&own, load);
                }
                if !forever {
                    break;
                }
            }
            if self.settings().all {
                self.step(true)?;
            }
        }
        Ok(())
    }

    /// `write_bw`, `read_bw`, `atomic_bw`.
    fn transfers(&mut self) -> Result<(), Failure> {
        let both = self.settings().bidirectional;
        let forever = matches!(self.settings().extent, Extent::Forever { .. });
        if self.settings().options.data_validation && self.sends {
            return self.validated();
        }
        if !self.sends {
            // The other end does it all, as long as it takes.
            self.step(false)?;
            let by_port = self.settings().options.report_per_port.then(Default::default);
            let other = self.results(&Results { by_port, ..Results::default() })?;
            if forever {
                self.console.print(" Client closed connection\n");
            } else {
                self.show(&other, None);
            }
            return Ok(());
        }
        let mut last = Results::default();
        for size in self.sizes()? {
            self.end.resize(size);
            if self.settings().options.perform_warm_up {
                self.watched(bandwidth::warm_up)?;
            }
            if both {
                self.step(true)?;
            }
            loop {
                let (own, load) = self.bandwidth(size)?;
                last = own;
                if both {
                    if self.settings().all && self.settings().test.verb != Verb::Atomic {
                        self.step(true)?;
                    }
                    self.show_with_others(&own, load)?;
                } else {
                    self.show(&own, load);
                }
                if !forever {
                    break;
                }
            }
        }
        if !both {
            self.step(true)?;
            self.results(&last)?;
        }
        Ok(())
    }

    /// The same, with every byte compared.
    fn validated(&mut self) -> Result<(), Failure> {
        let size = self.settings().size;
        self.end.resize(size);
        let (run, compared) = self.watched(validate::run)?;
        let gigabits = self.settings().options.report_gbits;
        let results =
            statistic::bandwidth(&run.moments, size, run.messages, gigabits, Clock::get().hz() as f64);
        self.show(&results, None);
        self.report.note("bytes_validated", compared.bytes.into());
        self.report.note("bytes_wrong", compared.wrong.into());
        if self.full() {
            let text =
                format!(" Data validation: {} bytes verified, {} wrong\n", compared.bytes, compared.wrong);
            self.console.print(&text);
        }
        self.step(true)?;
        self.results(&results)?;
        if compared.wrong > 0 {
            return Err(Failure::Error(format!(
                "data validation failed: {} of {} bytes are wrong",
                compared.wrong, compared.bytes
            )));
        }
        Ok(())
    }

    fn results(&mut self, own: &Results) -> Result<Results, Failure> {
        let lcore = self.lcore;
        Ok(self.line.trade_results(own, &|| lcore.stop_requested())?)
    }

    /// `--report-both`.
    fn show_both(&self, own: &Results, other: &Results) {
        if !self.settings().options.report_both || !self.full() {
            return;
        }
        let part = |name: &str, results: &Results| {
            let columns = format::columns(self.settings());
            let row = format::bandwidth(results, self.settings().options.report_gbits, None);
            let rule = format::rule(self.settings());
            format!("{rule}\n {name} results: \n{rule}{columns}{row}")
        };
        self.console.print(&format!("{}{}", part("Local", own), part("Remote", other)));
    }

    /// The four latency tests.
    fn latencies(&mut self) -> Result<(), Failure> {
        let takes_receives = self.settings().takes_receives();
        if !self.sends {
            // Of a READ or an atomic this end notices nothing; it ends with the other one.
            return Ok(());
        }
        let client = self.line.side() == Side::Client;
        for size in self.sizes()? {
            self.end.resize(size);
            if takes_receives {
                self.end.fill_receives()?;
                self.step(true)?;
            }
            let before = self.settings().options.cpu_util.then(Load::now);
            let run = self.watched(|end, watch| latency::run(end, client, watch))?;
            let load = before.map(|before| Load::now().since(before));
            self.report.latency(&self.end.settings, size, &run, load);
        }
        Ok(())
    }
}

/// Both directions together.
fn sum(one: &Results, other: &Results) -> Results {
    let share = |one: PortShare, other: PortShare| PortShare {
        average: one.average + other.average,
        rate: one.rate + other.rate,
    };
    let by_port = one.by_port.zip(other.by_port);
    Results {
        peak: one.peak + other.peak,
        average: one.average + other.average,
        rate: one.rate + other.rate,
        by_port: by_port.map(|(one, other)| [share(one[0], other[0]), share(one[1], other[1])]),
        ..*one
    }
}
