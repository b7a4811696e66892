//! Latency against rate, as SVG: a colour for each size, half of the frames dashed, 99 of 100 in full.
//!
//! By hand, for the reasons of `benches/src/bin/rdma_loss/plot.rs`.

use std::fmt::Write;

use super::report::{OfSize, Report};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
/// Of the names at the right.
const NAMES: f64 = 110.0;
const COLOURS: [&str; 7] = ["#1b6ca8", "#c2571a", "#4b8b3b", "#8a3fa0", "#b3202c", "#6b6b6b", "#0f8b8d"];

/// The plot.
pub(super) fn svg(report: &Report) -> String {
    let (width, height) = (LEFT + WIDTH + NAMES + 20.0, TOP + HEIGHT + 60.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">latency, us: 99 % in full, 50 % dashed</text>\n",
        TOP - 14.0
    );
    let decades = decades(report);
    let y = |us: f64| {
        let (least, most) = (f64::from(decades.0), f64::from(decades.1));
        TOP + HEIGHT * (1.0 - (us.log10() - least) / (most - least)).clamp(0.0, 1.0)
    };
    for decade in decades.0..=decades.1 {
        let (us, name) = (
            10_f64.powi(decade),
            if decade < 0 { "0.1".into() } else { 10_u64.pow(decade.unsigned_abs()).to_string() },
        );
        let _ = writeln!(
            text,
            "<line x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{1}\" y2=\"{0:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{name}</text>",
            y(us),
            LEFT + WIDTH,
            LEFT - 6.0,
            y(us) + 4.0
        );
    }
    for percent in (0..=100).step_by(20) {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{percent}</text>",
            LEFT + WIDTH * f64::from(percent) / 100.0,
            TOP + HEIGHT + 18.0
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">rate, % of the highest</text>",
        LEFT + WIDTH / 2.0,
        TOP + HEIGHT + 40.0
    );
    for (number, (size, colour)) in report.sizes.iter().zip(COLOURS.iter().cycle()).enumerate() {
        line(&mut text, size, 0, colour, " stroke-dasharray=\"5 4\"", y);
        line(&mut text, size, 1, colour, "", y);
        let (x, at) = (LEFT + WIDTH + 14.0, TOP + 14.0 + 18.0 * number as f64);
        let _ = writeln!(
            text,
            "<line x1=\"{x}\" y1=\"{at}\" x2=\"{}\" y2=\"{at}\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"{}\">{} bytes</text>",
            x + 20.0,
            x + 26.0,
            at + 4.0,
            size.bytes
        );
    }
    text.push_str("</svg>\n");
    text
}

/// The powers of ten between which all latencies lie.
fn decades(report: &Report) -> (i32, i32) {
    let all = report.sizes.iter().flat_map(|size| &size.latency).filter_map(super::report::Point::latency_us);
    let all: Vec<f64> = all.flatten().filter(|us| *us > 0.0).collect();
    let (least, most) =
        all.iter().fold((f64::MAX, 0.0_f64), |(least, most), us| (least.min(*us), most.max(*us)));
    if all.is_empty() {
        return (0, 3);
    }
    let least = (least.log10().floor() as i32).clamp(-1, 6);
    (least, (most.log10().ceil() as i32).clamp(least + 1, 8))
}

fn line(text: &mut String, size: &OfSize, which: usize, colour: &str, dashes: &str, y: impl Fn(f64) -> f64) {
    let points = size.latency.iter().filter_map(|point| {
        let x = LEFT + WIDTH * point.pps() / size.highest_pps;
        Some(format!("{x:.1},{:.1}", y(point.latency_us()?[which])))
    });
    let points: Vec<String> = points.collect();
    if !points.is_empty() {
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>",
            points.join(" ")
        );
    }
}
