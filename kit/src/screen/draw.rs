//! The picture, from top to bottom; what has no room at the bottom is left out.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, RenderDirection, Sparkline};

use super::Picture;
use crate::counts::{Counts, Latency, LcoreCounts, PoolCounts, PortCounts, StreamCounts};
use crate::table::{grouped, rate};

/// Columns of a bar.
const BAR: usize = 24;
/// Rows of a curve.
const CURVE: u16 = 3;
/// Rows of the latency's histogram.
const HISTOGRAM: u16 = 4;

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    coloured: bool,
}

impl Palette {
    /// Source: <https://no-color.org>.
    pub(super) fn of_environment() -> Self {
        Self { coloured: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    fn colour(self, colour: Color) -> Style {
        if self.coloured { Style::new().fg(colour) } else { Style::new() }
    }

    fn head(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn rx(self) -> Style {
        self.colour(Color::Cyan)
    }

    fn tx(self) -> Style {
        self.colour(Color::Green)
    }

    fn bad(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }
}

/// What is left of the terminal below what was drawn.
struct Rest(Rect);

impl Rest {
    /// The next rows, as many as there are.
    fn take(&mut self, rows: u16) -> Option<Rect> {
        let rows = rows.min(self.0.height);
        let taken = Rect { height: rows, ..self.0 };
        self.0 = Rect { y: self.0.y + rows, height: self.0.height - rows, ..self.0 };
        (rows > 0 && taken.width > 0).then_some(taken)
    }

    fn lines(&mut self, frame: &mut Frame<'_>, lines: Vec<Line<'_>>) {
        if let Some(area) = self.take(u16::try_from(lines.len()).unwrap_or(u16::MAX)) {
            frame.render_widget(Paragraph::new(lines), area);
        }
    }

    fn gap(&mut self) {
        self.take(1);
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, picture: &Picture, palette: Palette) {
    let mut rest = Rest(frame.area());
    // Notes are at the bottom, and lines above them are left out first.
    let notes = u16::try_from(picture.notes.len()).unwrap_or(0).min(rest.0.height / 4);
    let [above, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(notes)]).areas(rest.0);
    let shown = picture.notes.iter().skip(picture.notes.len() - usize::from(notes));
    Rest(below).lines(frame, shown.map(|note| Line::styled(note.as_str(), palette.dim())).collect());
    rest.0 = above;

    let (total, span) = (&picture.sample.total, &picture.sample.span);
    rest.lines(frame, vec![title(&picture.sample.app, total, rest.0.width, palette)]);
    rest.gap();
    rest.lines(frame, ports(total, span, palette));
    let drops = drops(total, span, palette);
    if !drops.is_empty() {
        rest.lines(frame, drops);
    }
    rest.gap();
    for (name, history, style) in [("rx", &picture.rx, palette.rx()), ("tx", &picture.tx, palette.tx())] {
        let Some(area) = rest.take(CURVE) else { break };
        let [label, curve] = Layout::horizontal([Constraint::Length(18), Constraint::Min(0)]).areas(area);
        let now = history.front().copied().unwrap_or(0);
        let most = history.iter().take(usize::from(curve.width)).copied().max().unwrap_or(0);
        let text = vec![
            Line::from(vec![Span::styled(name, style), format!(" {} Mpps", rate(now as f64 / 1e6)).into()]),
            Line::styled(format!("max {}", rate(most as f64 / 1e6)), palette.dim()),
        ];
        frame.render_widget(Paragraph::new(text), label);
        let history: Vec<u64> = history.iter().copied().collect();
        let curve_of = Sparkline::default().data(&history).direction(RenderDirection::RightToLeft);
        frame.render_widget(curve_of.max(most.max(1)).style(style), curve);
    }
    rest.gap();
    rest.lines(frame, span.lcores.iter().map(|one| lcore(one, palette)).collect());
    rest.lines(frame, total.pools.iter().map(|one| pool(one, palette)).collect());
    for stream in &span.streams {
        let Some(latency) = &stream.latency else { continue };
        rest.gap();
        rest.lines(frame, vec![latency_line(stream, latency, palette)]);
        if let Some(area) = rest.take(HISTOGRAM) {
            histogram(frame, latency, area, palette);
        }
    }
}

fn title<'a>(app: &'a str, total: &Counts, width: u16, palette: Palette) -> Line<'a> {
    let seconds = total.seconds as u64;
    let up = format!("  up {}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let keys = "q or Ctrl-C ends";
    let used = app.chars().count() + up.len() + keys.len();
    let gap = " ".repeat(usize::from(width).saturating_sub(used));
    Line::from(vec![
        Span::styled(app, palette.head()),
        up.into(),
        gap.into(),
        Span::styled(keys, palette.dim()),
    ])
}

/// Widths of the columns behind the port's name.
const COLUMNS: [usize; 6] = [9, 9, 9, 9, 9, 11];

fn ports<'a>(total: &Counts, span: &Counts, palette: Palette) -> Vec<Line<'a>> {
    let name = |port: &PortCounts| {
        let state = if port.gone {
            " gone"
        } else if port.link_up {
            ""
        } else {
            " down"
        };
        format!("{} {}{state}", port.id, port.name)
    };
    let width = total.ports.iter().map(|port| name(port).chars().count()).max().unwrap_or(0).max(5);
    let row = |name: &str, cells: [String; 6]| {
        let mut text = format!("{name:<width$}");
        for (cell, column) in cells.into_iter().zip(COLUMNS) {
            text += &format!(" {cell:>column$}");
        }
        text
    };
    let heads = ["rx Mpps", "tx Mpps", "rx Gbit/s", "tx Gbit/s", "drops/s", "dropped"];
    let mut lines = vec![Line::styled(row("port", heads.map(str::to_owned)), palette.head())];
    for (port, recent) in total.ports.iter().zip(&span.ports) {
        let per_second = |count: u64| span.per_second(count);
        let text = row(
            &name(port),
            [
                rate(per_second(recent.rx_packets) / 1e6),
                rate(per_second(recent.tx_packets) / 1e6),
                rate(per_second(recent.rx_bytes) * 8.0 / 1e9),
                rate(per_second(recent.tx_bytes) * 8.0 / 1e9),
                grouped(per_second(recent.dropped_packets()) as u64),
                grouped(port.dropped_packets()),
            ],
        );
        let dropping = recent.dropped_packets() > 0 || port.gone;
        lines.push(if dropping { Line::styled(text, palette.bad()) } else { Line::from(text) });
    }
    lines
}

fn drops<'a>(total: &Counts, span: &Counts, palette: Palette) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for (port, recent) in total.ports.iter().zip(&span.ports) {
        for (reason, count) in port.dropped.iter().filter(|(_, count)| **count > 0) {
            let now = span.per_second(recent.dropped.get(reason).copied().unwrap_or(0));
            let text =
                format!("  port {} {reason}: {} ({}/s)", port.id, grouped(*count), grouped(now as u64));
            lines.push(Line::styled(text, if now > 0.0 { palette.bad() } else { palette.dim() }));
        }
    }
    lines
}

/// A share as a bar.
fn bar(share: f64, style: Style, palette: Palette) -> [Span<'static>; 2] {
    let full = ((share.clamp(0.0, 1.0) * BAR as f64).round() as usize).min(BAR);
    [Span::styled("█".repeat(full), style), Span::styled("░".repeat(BAR - full), palette.dim())]
}

fn lcore<'a>(lcore: &LcoreCounts, palette: Palette) -> Line<'a> {
    let [full, empty] = bar(lcore.busy(), palette.colour(Color::Yellow), palette);
    let cycles = match lcore.packets {
        0 => "-".to_owned(),
        _ => format!("{:.1}", lcore.cycles_per_packet()),
    };
    let ports: Vec<String> = lcore.ports.iter().map(u16::to_string).collect();
    let text = format!(" {:5.1}%  {cycles} cycles/packet  ports {}", lcore.busy() * 100.0, ports.join(" "));
    Line::from(vec![format!("lcore {:<10}", lcore.id).into(), full, empty, text.into()])
}

fn pool<'a>(pool: &PoolCounts, palette: Palette) -> Line<'a> {
    let used = pool.capacity.saturating_sub(pool.available);
    let [full, empty] =
        bar(used as f64 / pool.capacity.max(1) as f64, palette.colour(Color::Magenta), palette);
    let text = format!(" {} of {} in use", grouped(used), grouped(pool.capacity));
    Line::from(vec![format!("pool {:<11}", pool.name).into(), full, empty, text.into()])
}

fn nanos(nanos: u64) -> String {
    match nanos {
        0..10_000 => format!("{nanos} ns"),
        10_000..10_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        _ => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}

fn latency_line<'a>(stream: &StreamCounts, latency: &Latency, palette: Palette) -> Line<'a> {
    let at = |of| latency.quantile_ns(of).map_or_else(|| "-".to_owned(), nanos);
    let text = format!(" p50 {}  p99 {}  p99.9 {}  max {}", at(0.5), at(0.99), at(0.999), at(1.0));
    let name = format!("latency {}/{} -> {}", stream.from, stream.queue, stream.to);
    Line::from(vec![Span::styled(name, palette.head()), text.into()])
}

/// Packets by latency: the axis is logarithmic, from the least to what 99.9 % do not exceed; the few above would take most of it.
fn histogram(frame: &mut Frame<'_>, latency: &Latency, area: Rect, palette: Palette) {
    let most = latency.quantile_ns(0.999).unwrap_or(0);
    let buckets: Vec<(u64, u64)> = latency.buckets().take_while(|(nanos, _)| *nanos <= most).collect();
    let Some((least, _)) = buckets.first() else { return };
    let log = |nanos: u64| (nanos.max(1) as f64).ln();
    let (from, to) = (log(*least), log(most));
    let columns = usize::from(area.width);
    let mut heights = vec![0; columns];
    for (nanos, packets) in &buckets {
        let place = if to > from { (log(*nanos) - from) / (to - from) } else { 0.0 };
        heights[((place * (columns - 1) as f64) as usize).min(columns - 1)] += packets;
    }
    frame.render_widget(Sparkline::default().data(&heights).style(palette.rx()), area);
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::prometheus::tests::full;

    /// What is on a terminal of that size.
    fn shown(width: u16, height: u16, palette: Palette) -> (String, bool) {
        let mut sample = full();
        (sample.total.seconds, sample.span.seconds) = (3_671.0, 1.0);
        let picture = Picture {
            sample,
            rx: VecDeque::from([1_500_000, 750_000]),
            tx: VecDeque::new(),
            notes: VecDeque::from(["port 0: link down".to_owned()]),
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, &picture, palette)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let coloured = buffer.content().iter().any(|cell| cell.fg != Color::Reset);
        let rows = buffer.content().chunks(usize::from(width).max(1));
        let rows: Vec<String> = rows
            .map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned())
            .collect();
        (rows.join("\n"), coloured)
    }

    #[test]
    fn all_that_is_counted_is_on_the_screen() {
        let (text, coloured) = shown(100, 30, Palette { coloured: true });
        for part in [
            "l2fwd  up 1:01:11",
            "port",
            "0 net_\"odd\\name\"  0.000003",
            "port 0 tx full: 2 (2/s)",
            "rx 1.500 Mpps",
            "lcore 1         ████████████░░░░░░░░░░░░  50.0%  13.3 cycles/packet  ports 0",
            "pool mbufs      ██████████░░░░░░░░░░░░░░ 40 of 100 in use",
            "latency 0/0 -> 1",
            "max 3",
            "port 0: link down",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        assert!(coloured);
        assert!(!shown(100, 30, Palette { coloured: false }).1, "no colour where none is wanted");
    }

    #[test]
    fn a_terminal_of_any_size_is_drawn_on() {
        for (width, height) in [(1, 1), (0, 0), (20, 5), (80, 24), (300, 2), (3, 100)] {
            let (text, _) = shown(width, height, Palette { coloured: true });
            if height >= 24 && width >= 80 {
                assert!(text.contains("port 0: link down") && text.contains("lcore 1"), "{text}");
            }
        }
    }
}
