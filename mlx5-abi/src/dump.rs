//! A block in one line: its fields by name, those of the contexts in it in braces.

use std::fmt;

use crate::command::nested;
use crate::layout::Layout;

impl Layout {
    /// The fields of `block` that are not zero, in one line: `cqc: log_cq_size=10 uar_page=3`. A context inside stands in
    /// braces, `create_cq_in: {cq_context: log_cq_size=10}`.
    ///
    /// Takes blocks of any length: of a short one the fields that are whole, and a note.
    #[must_use]
    pub fn dump<'a>(&'a self, block: &'a [u8]) -> impl fmt::Display + 'a {
        Dump { title: self.name, layout: self, block }
    }

    /// The same under another name.
    pub(crate) fn dump_as<'a>(&'a self, title: &'a str, block: &'a [u8]) -> impl fmt::Display + 'a {
        Dump { title, layout: self, block }
    }
}

struct Dump<'a> {
    title: &'a str,
    layout: &'a Layout,
    block: &'a [u8],
}

impl fmt::Display for Dump<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.title)?;
        for place in self.layout.fields {
            let last = (place.bit + place.bits).div_ceil(8) as usize;
            let Some(bytes) = self.block.get(place.bit as usize / 8..last) else { continue };
            if let Some(value) = place.value(self.block) {
                if value != 0 {
                    write!(out, " {}={value:#x}", place.manual_name())?;
                }
            } else if bytes.iter().any(|byte| *byte != 0) {
                let name = place.manual_name();
                if let Some(inner) = nested(self.layout, &name, bytes.len()) {
                    write!(out, " {{{}}}", inner.dump_as(&name, bytes))?;
                } else {
                    write!(out, " {name}=")?;
                    bytes.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
                }
            }
        }
        if self.block.len() < self.layout.bytes {
            write!(out, " (short: {} of {} bytes)", self.block.len(), self.layout.bytes)?;
        }
        Ok(())
    }
}
