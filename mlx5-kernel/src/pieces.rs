//! Objects of the device that make up one object of the program.

use pollux_uverbs::Errno;

use crate::adapter::Adapter;
use crate::firmware::{SHORT, naming, number};

/// What was made for an object, in order; it is ended the other way round.
#[derive(Debug, Default)]
pub(crate) struct Pieces(Vec<Piece>);

#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Command that ends it.
    end: u16,
    number: u32,
    uid: u16,
}

impl Pieces {
    /// Makes a piece; the answer is its number. `end` is the opcode that ends it, on behalf of `uid`.
    pub(crate) fn make(&mut self, adapter: &Adapter, input: &[u8], end: u16, uid: u16) -> Result<u32, Errno> {
        let mut output = [0; SHORT];
        adapter.execute(input, &mut output)?;
        let number = number(&output);
        self.0.push(Piece { end, number, uid });
        Ok(number)
    }

    /// Ends what is left, youngest first. What was ended before a refusal stays ended.
    pub(crate) fn end(&mut self, adapter: &Adapter) -> Result<(), Errno> {
        while let Some(piece) = self.0.last() {
            adapter.execute(&naming(piece.end, piece.uid, piece.number), &mut [0; SHORT])?;
            self.0.pop();
        }
        Ok(())
    }

    /// Ends what is left and takes no refusal.
    pub(crate) fn abandon(&mut self, adapter: &Adapter) {
        while let Some(piece) = self.0.pop() {
            let _ = adapter.execute(&naming(piece.end, piece.uid, piece.number), &mut [0; SHORT]);
        }
    }
}
