//! The report as JSON: perftest's file, and this project's last line.

use serde_json::{Map, Value, json};

use super::format::{Facts, title};
use super::options::Connection;
use super::settings::{Kind, Settings, Verb};
use super::statistic::Latency;
use crate::exchange::perftest::Results;

/// One row, by perftest's names.
#[must_use]
pub fn bandwidth(results: &Results, cpu: Option<f64>) -> Value {
    let Results { size, iterations, peak, average, rate, by_port } = results;
    let mut row = json!({
        "MsgSize": size, "n_iterations": iterations, "BW_peak": digits(*peak, 6), "BW_average": digits(*average, 6),
        "MsgRate": digits(*rate, 6),
    });
    // perftest's own file has no such part.
    for (number, share) in (1..).zip(by_port.iter().flatten()) {
        row[format!("BW_average_port{number}")] = digits(share.average, 6);
        row[format!("MsgRate_port{number}")] = digits(share.rate, 6);
    }
    with_cpu(row, cpu)
}

/// One row, by perftest's names.
#[must_use]
pub fn latency(size: u64, iterations: u64, found: &Latency, cpu: Option<f64>) -> Value {
    let two = |value: f64| digits(value, 2);
    with_cpu(
        json!({
            "MsgSize": size, "n_iterations": iterations, "t_min": two(found.min), "t_max": two(found.max),
            "t_typical": two(found.typical), "t_avg": two(found.average), "t_stdev": two(found.stdev),
            "percentile_99": two(found.percentile_99), "percentile_99.9": two(found.percentile_99_9),
        }),
        cpu,
    )
}

/// One row, by perftest's names.
#[must_use]
pub fn latency_over_time(
    size: u64,
    iterations: u64,
    average: f64,
    per_second: f64,
    cpu: Option<f64>,
) -> Value {
    with_cpu(
        json!({
            "MsgSize": size, "n_iterations": iterations, "t_avg": digits(average, 2), "tps_average": digits(per_second, 2),
        }),
        cpu,
    )
}

fn with_cpu(mut row: Value, cpu: Option<f64>) -> Value {
    if let (Some(cpu), Some(row)) = (cpu, row.as_object_mut()) {
        row.insert("CPU_util".into(), digits(cpu, 2));
    }
    row
}

fn digits(value: f64, digits: i32) -> Value {
    let parts = 10_f64.powi(digits);
    json!((value * parts).round() / parts)
}

/// What `--out_json` saves: perftest's two parts. Several sizes give a list of results; perftest's own file keeps the last one alone.
#[must_use]
pub fn file(settings: &Settings, facts: &Facts<'_>, rows: &[Value]) -> Value {
    let on = |on: bool| if on { "ON" } else { "OFF" };
    let mut info = Map::new();
    let mut tell = |key: &str, value: Value| {
        info.insert(key.into(), value);
    };
    tell("test", title(settings).replace(' ', "_").into());
    tell("Dual_port", on(settings.options.dualport).into());
    tell("Device", facts.device.into());
    tell("Number_of_qps", settings.queue_pairs().into());
    tell("Transport_type", "IB".into());
    tell("Connection_type", settings.connection.name().into());
    tell("Using_SRQ", on(settings.options.use_srq).into());
    tell("PCIe_relax_order", "OFF".into());
    tell("ibv_wr_API", on(settings.connection != Connection::RawEth).into());
    if facts.sends {
        tell("TX_depth", settings.tx_depth.into());
    }
    if settings.post_list > 1 {
        tell("Post_List", settings.post_list.into());
    }
    if settings.recv_post_list > 1 {
        tell("Recv_Post_List", settings.recv_post_list.into());
    }
    if facts.receives {
        tell("RX_depth", settings.rx_depth.into());
    }
    if settings.test.kind == Kind::Bandwidth {
        tell("CQ_Moderation", settings.cq_mod.into());
    }
    tell("Mtu", facts.mtu.into());
    tell("Link_type", "Ethernet".into());
    if let Some(bytes) = facts.forwarded {
        tell("Buffer_size", bytes.into());
    }
    tell("GID_index", facts.gid_indices[0].into());
    if settings.options.dualport {
        tell("GID_index2", facts.gid_indices[1].into());
    }
    if matches!(settings.test.verb, Verb::Read | Verb::Atomic) {
        tell("Outstand_reads", facts.outs.into());
    } else {
        tell("Max_inline_data", settings.inline.into());
    }
    tell("rdma_cm_QPs", if settings.options.rdma_cm { "ON" } else { "OFF" }.into());
    tell("Data_ex_method", if settings.by_address() { "rdma_cm" } else { "Ethernet" }.into());
    let results = match rows {
        [one] => one.clone(),
        all => all.into(),
    };
    json!({ "test_info": info, "results": results })
}

#[cfg(test)]
mod tests {
    use super::super::options::Options;
    use super::super::settings::Test;
    use super::*;
    use crate::exchange::perftest::PortShare;

    #[test]
    fn the_file_has_perftests_names() {
        let test = Test { verb: Verb::Write, kind: Kind::Bandwidth };
        let options = Options::usual();
        let settings = Settings::new(test, options).expect("nothing typed");
        let facts = Facts {
            device: "mlx5_0",
            sends: true,
            receives: false,
            mtu: 1024,
            gid_indices: [3; 2],
            outs: 0,
            forwarded: None,
        };
        let row = bandwidth(
            &Results {
                size: 64,
                iterations: 5000,
                peak: 2.0,
                average: 1.234_567_89,
                rate: 0.5,
                by_port: Some(
                    [(0.75, 0.3), (0.484_567_89, 0.2)].map(|(average, rate)| PortShare { average, rate }),
                ),
            },
            Some(3.333),
        );
        assert_eq!([&row["BW_average_port1"], &row["MsgRate_port2"]], [0.75, 0.2]);
        let one = file(&settings, &facts, std::slice::from_ref(&row));
        assert_eq!(one["test_info"]["test"], "RDMA_Write_BW_Test");
        assert_eq!(one["test_info"]["TX_depth"], 128);
        assert_eq!(one["results"]["BW_average"], 1.234568);
        assert_eq!(one["results"]["CPU_util"], 3.33);
        assert_eq!(file(&settings, &facts, &[row.clone(), row])["results"].as_array().map(Vec::len), Some(2));
    }
}
