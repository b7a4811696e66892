//! A packet compiled: a template for each size, and the list of its edits.

use arrayvec::ArrayVec;
use pollux_wire::MacAddress;

use crate::edit::{Checksum, Edit, SUMS_MAX};
use crate::frame::{Coverage, Layout, is_switch, put_bits};
use crate::packet::Packet;
use crate::source::{Source, spread};
use crate::stamp;
use crate::window::Window;

/// A frame of one size.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// Without the check sequence.
    pub(crate) bytes: Box<[u8]>,
    /// The sums of what does not vary, by the number of the checksum.
    pub(crate) sums: [u32; SUMS_MAX],
}

impl Template {
    /// Its sums, in some of which there is a mark.
    #[inline(always)]
    pub(crate) fn sums_with(&self, mark: u32, into: &[u8]) -> [u32; SUMS_MAX] {
        let mut sums = self.sums;
        into.iter().for_each(|sum| sums[usize::from(*sum) % SUMS_MAX] += mark);
        sums
    }
}

/// All packets of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) templates: Vec<Template>,
    pub(crate) edits: Vec<Edit>,
    /// Those that change, inner ones first.
    pub(crate) checksums: Vec<Checksum>,
    /// The sums that a stamp is a part of.
    pub(crate) stamp_into: ArrayVec<u8, SUMS_MAX>,
    /// Some frames end in the middle of a word.
    pub(crate) has_odd: bool,
}

impl Shape {
    /// The packet in each of `sizes`, with fields of `tuple` one after the other, and stamps if they are `stamped`. `order` is the number of a
    /// copy of the stream among `copies`, which begin with different values.
    pub(crate) fn new(
        packet: &Packet,
        sizes: &[u16],
        source: MacAddress,
        (tuple, stamped): (&[String], bool),
        (seed, order, copies): (u64, u64, u64),
    ) -> Result<Self, String> {
        let layouts: Vec<Layout> = sizes
            .iter()
            .map(|size| Layout::new(packet, usize::from(*size), source))
            .collect::<Result<_, _>>()?;
        let Some(first) = layouts.first() else { return Err("has no size".into()) };
        let mut fields = varying(packet, first, seed)?;
        chain(&mut fields, tuple)?;
        for (_, edits) in &mut fields {
            for edit in edits {
                let period = edit.source.period().unwrap_or(0);
                // A field that follows others counts their rounds, not packets.
                if !edit.chained {
                    edit.source
                        .skip((u128::from(period) * u128::from(order) / u128::from(copies.max(1))) as u64);
                }
            }
        }
        let mut edits: Vec<Edit> = fields.into_iter().flat_map(|(_, edits)| edits).collect();

        let changes = |coverage: &Coverage, also: &[usize]| {
            stamped && coverage.over.end == first.bytes.len()
                || edits.iter().any(|edit| covers(coverage, &edit.window))
                || also.iter().any(|at| coverage.covers(*at))
        };
        let mut dynamic: Vec<usize> = Vec::new();
        for (number, coverage) in first.coverages.iter().enumerate() {
            let inner: Vec<usize> = dynamic.iter().map(|inner| first.coverages[*inner].at).collect();
            if changes(coverage, &inner) {
                dynamic.push(number);
            }
        }
        if dynamic.len() > SUMS_MAX {
            return Err(format!("has {} checksums that change: at most {SUMS_MAX}", dynamic.len()));
        }
        let into = |covered: &dyn Fn(&Coverage) -> bool| -> ArrayVec<u8, SUMS_MAX> {
            let sums = dynamic.iter().enumerate();
            sums.filter(|(_, number)| covered(&first.coverages[**number])).map(|(sum, _)| sum as u8).collect()
        };
        for edit in &mut edits {
            edit.into = into(&|coverage| covers(coverage, &edit.window));
        }
        let checksum = |number: &usize| {
            let Coverage { at, zero_is_none, .. } = first.coverages[*number];
            // Not into itself.
            let into = into(&|coverage| coverage.at != at && coverage.covers(at));
            Checksum { at, zero_is_none, into }
        };
        let checksums = dynamic.iter().map(checksum).collect();
        let stamp_into = into(&|coverage| stamped && coverage.over.end == first.bytes.len());
        let template = |layout: &Layout| template(layout, &edits, &dynamic, stamped);
        let templates: Vec<Template> = layouts.iter().map(template).collect::<Result<_, _>>()?;
        let has_odd = templates.iter().any(|template| !template.bytes.len().is_multiple_of(2));
        Ok(Self { templates, edits, checksums, stamp_into, has_odd })
    }
}

fn covers(coverage: &Coverage, window: &Window) -> bool {
    coverage.covers(window.at)
}

/// The edits of each field that varies, under its name.
fn varying(packet: &Packet, layout: &Layout, seed: u64) -> Result<Vec<(String, Vec<Edit>)>, String> {
    let mut all: Vec<(String, Vec<Edit>)> = Vec::new();
    for (number, (header, offset)) in packet.headers.iter().zip(&layout.offsets).enumerate() {
        let alike = packet.headers[..number].iter().filter(|other| other.layer.name() == header.layer.name());
        // The second header of a kind is `ipv4:2`.
        let name = match alike.count() {
            0 => header.layer.name().to_owned(),
            before => format!("{}:{}", header.layer.name(), before + 1),
        };
        for (field, values) in &header.settings {
            let name = format!("{name}.{}", field.name);
            let mut edits = Vec::new();
            for window in Window::of(field, *offset) {
                let seed = spread(seed, (window.at * 64 + field.bit) as u64);
                if let Some(source) = Source::new(values, &window, &name, seed)? {
                    edits.push(Edit { window, source, chained: false, into: ArrayVec::new() });
                }
            }
            if !edits.is_empty() && !is_switch(header.layer, field) {
                all.push((name, edits));
            }
        }
    }
    Ok(all)
}

/// Puts the fields of a tuple first, each behind the one before it.
fn chain(fields: &mut Vec<(String, Vec<Edit>)>, tuple: &[String]) -> Result<(), String> {
    for (place, name) in tuple.iter().enumerate() {
        let at = fields.iter().position(|(field, _)| field == name).filter(|at| *at >= place);
        let at = at.ok_or_else(|| {
            let names: Vec<&str> =
                fields[place.min(fields.len())..].iter().map(|(name, _)| name.as_str()).collect();
            let names = if names.is_empty() { "none is left".into() } else { names.join(", ") };
            format!("tuple names '{name}', which is no field that varies: {names}")
        })?;
        let mut field = fields.remove(at);
        if field.1.iter().any(|edit| edit.source.period().is_none()) {
            return Err(format!("tuple names '{name}', which is random: it takes ranges and lists"));
        }
        if field.1.len() > 1 {
            return Err(format!("tuple names '{name}', whose values differ in more than their last bits"));
        }
        for edit in &mut field.1 {
            edit.chained = place > 0;
        }
        fields.insert(place, field);
    }
    Ok(())
}

fn template(layout: &Layout, edits: &[Edit], dynamic: &[usize], stamped: bool) -> Result<Template, String> {
    let mut bytes = layout.bytes.clone();
    if stamped && layout.said + stamp::BYTES > bytes.len() {
        return Err(format!(
            "size {} is too small for latency: headers and payload of {} bytes, a stamp of {} and the FCS need {} bytes",
            bytes.len() + crate::frame::FCS,
            layout.said,
            stamp::BYTES,
            layout.said + stamp::BYTES + crate::frame::FCS
        ));
    }
    // What varies is no part of the sums.
    for edit in edits {
        let window = &edit.window;
        let bits = window.mask.count_ones() as usize;
        put_bits(&mut bytes, 8 * (window.at + window.width) - window.shift as usize - bits, bits, 0);
    }
    for number in dynamic {
        let at = layout.coverages[*number].at;
        bytes[at..at + 2].fill(0);
    }
    let mut sums = [0; SUMS_MAX];
    for (sum, number) in sums.iter_mut().zip(dynamic) {
        *sum = layout.coverages[*number].sum(&bytes);
    }
    Ok(Template { bytes: bytes.into(), sums })
}
