//! How words are joined: `and`, `or` and `not`, parentheses, and what a word without a qualifier takes over from the one before.

use super::FilterError;
use super::cursor::Cursor;
use super::tree::{Tree, all, any, not};

/// Deepest nesting of parentheses and negations.
const DEPTH_MAX: usize = 100;

/// The tree of a filter; none without a word.
pub(super) fn parse(text: &str) -> Result<Option<Tree>, FilterError> {
    let mut cursor = Cursor::new(text)?;
    if cursor.peek().is_none() {
        return Ok(None);
    }
    let tree = cursor.joined()?;
    match cursor.peek() {
        None => Ok(Some(tree)),
        Some(_) => Err(cursor.unexpected("'and', 'or' or the end of the filter")),
    }
}

impl Cursor {
    /// `and` and `or` bind alike, from left to right, as pcap-filter(7) has it.
    fn joined(&mut self) -> Result<Tree, FilterError> {
        let mut tree = self.single()?;
        loop {
            if self.take("and") || self.take("&&") {
                tree = all([tree, self.single()?]);
            } else if self.take("or") || self.take("||") {
                tree = any([tree, self.single()?]);
            } else {
                return Ok(tree);
            }
        }
    }

    fn single(&mut self) -> Result<Tree, FilterError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(FilterError(format!(
                "more than {DEPTH_MAX} parentheses and negations inside each other"
            )));
        }
        let tree = if self.take("not") || self.take("!") {
            not(self.single()?)
        } else if self.take("(") {
            let inner = self.joined()?;
            if !self.take(")") {
                return Err(self.unexpected("')'"));
            }
            inner
        } else {
            self.primitive()?
        };
        self.depth -= 1;
        Ok(tree)
    }
}
