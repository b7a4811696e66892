//! The plot: goodput and the 99th percentile of latency against loss, a line a way and delay.
//!
//! By hand: plotters' last release (0.3.7) is of 2024, and with its legends, which stand inside the axes, this would be no shorter.

use std::fmt::Write;

use crate::run::Way;
use crate::{Cell, DELAYS, LOSSES, percent};

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
const GAP: f64 = 80.0;
/// A colour a delay.
const COLOURS: [&str; 3] = ["#1b6ca8", "#c2571a", "#4b8b3b"];

/// Where a value stands, from 0 at the bottom to 1 at the top, and the values that are marked.
struct Axis {
    title: &'static str,
    marks: &'static [f64],
    logarithmic: bool,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let (least, most) = (self.marks[0], self.marks[self.marks.len() - 1]);
        let share = if self.logarithmic {
            (value / least).ln() / (most / least).ln()
        } else {
            (value - least) / (most - least)
        };
        share.clamp(0.0, 1.0)
    }
}

const GOODPUT: Axis =
    Axis { title: "goodput, Gbit/s", marks: &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0], logarithmic: false };
const LATENCY: Axis = Axis {
    title: "latency, 99 %, us",
    marks: &[10.0, 100.0, 1000.0, 10_000.0, 100_000.0],
    logarithmic: true,
};

/// The plot as SVG.
pub(crate) fn svg(cells: &[Cell]) -> String {
    let (width, height) = (LEFT * 2.0 + WIDTH * 2.0 + GAP, TOP + HEIGHT + 90.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    panel(&mut text, LEFT, &GOODPUT, cells, |cell| cell.found.goodput);
    panel(&mut text, LEFT + WIDTH + GAP, &LATENCY, cells, |cell| cell.found.p99 / 1e3);
    let mut x = LEFT;
    for (delay, colour) in DELAYS.iter().zip(COLOURS) {
        for (way, name) in [(Way::GoBackN, "go-back-N"), (Way::SelectiveRepeat, "selective repeat")] {
            let y = TOP + HEIGHT + 62.0;
            let _ = writeln!(
                text,
                "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\"{}/>\n\
                 <text x=\"{}\" y=\"{}\">{name}, {} us</text>",
                x + 24.0,
                dashes(way),
                x + 28.0,
                y + 4.0,
                delay.as_micros(),
            );
            x += 158.0;
        }
    }
    text.push_str("</svg>\n");
    text
}

fn dashes(way: Way) -> &'static str {
    if way == Way::GoBackN { " stroke-dasharray=\"5 4\"" } else { "" }
}

fn panel(text: &mut String, left: f64, axis: &Axis, cells: &[Cell], value: impl Fn(&Cell) -> f64) {
    let x = |number: usize| left + WIDTH * number as f64 / (LOSSES.len() - 1) as f64;
    let y = |value: f64| TOP + HEIGHT * (1.0 - axis.at(value));
    let bottom = TOP + HEIGHT;
    let _ =
        writeln!(text, "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{}</text>", TOP - 14.0, axis.title);
    for mark in axis.marks {
        let at = y(*mark);
        let _ = writeln!(
            text,
            "<line x1=\"{left}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{mark}</text>",
            left + WIDTH,
            left - 6.0,
            at + 4.0,
        );
    }
    for (number, loss) in LOSSES.iter().enumerate() {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x(number),
            bottom + 18.0,
            percent(*loss)
        );
    }
    let _ = writeln!(
        text,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">frames lost, each way</text>",
        left + WIDTH / 2.0,
        bottom + 36.0
    );
    for (delay, colour) in DELAYS.iter().zip(COLOURS) {
        for way in [Way::GoBackN, Way::SelectiveRepeat] {
            let points: Vec<String> = LOSSES
                .iter()
                .enumerate()
                .filter_map(|(number, loss)| {
                    let found = |cell: &&Cell| cell.way == way && cell.delay == *delay && cell.loss == *loss;
                    let cell = cells.iter().find(found)?;
                    Some(format!("{:.1},{:.1}", x(number), y(value(cell))))
                })
                .collect();
            let _ = writeln!(
                text,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{}/>",
                points.join(" "),
                dashes(way)
            );
        }
    }
}
