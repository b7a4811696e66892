//! The driver's part of a command.

/// What a driver adds to a command: bytes for its kernel half, and room for what that answers.
#[derive(Debug, Default)]
pub struct Driver<'a> {
    /// Its input.
    pub input: &'a [u8],
    /// Room for its output. Zero where the kernel wrote nothing.
    pub output: &'a mut [u8],
}

impl<'a> Driver<'a> {
    /// Nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Bytes in and out.
    #[must_use]
    pub fn new(input: &'a [u8], output: &'a mut [u8]) -> Self {
        Self { input, output }
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.input.is_empty() && self.output.is_empty()
    }

    /// The same for one attempt; a refused one leaves it for the next.
    pub(crate) fn reborrow(&mut self) -> Driver<'_> {
        Driver { input: self.input, output: self.output }
    }
}
