//! Where one stands in the words of a filter.

use super::FilterError;
use super::qualifiers::Qualifiers;
use super::token::{Token, tokens};

pub(super) struct Cursor {
    tokens: Vec<Token>,
    next: usize,
    /// Parentheses and negations around the next word.
    pub(super) depth: usize,
    /// Bytes by which VLAN tags that were asked for move what follows: as in libpcap, for the rest of the filter.
    pub(super) shift: u32,
    /// Those of the last primitive with a value: `port 80 or 443`.
    pub(super) last: Option<Qualifiers>,
}

impl Cursor {
    /// Before the first word.
    pub(super) fn new(text: &str) -> Result<Self, FilterError> {
        Ok(Self { tokens: tokens(text)?, next: 0, depth: 0, shift: 0, last: None })
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    /// The next word, if it is one.
    pub(super) fn peek_word(&self) -> Option<&str> {
        match self.peek() {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// The next two words.
    pub(super) fn words_ahead(&self) -> Option<(&str, &str)> {
        match self.tokens.get(self.next..self.next + 2) {
            Some([Token::Word(one), Token::Word(other)]) => Some((one.as_str(), other.as_str())),
            _ => None,
        }
    }

    pub(super) fn step(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).cloned();
        self.next += usize::from(token.is_some());
        token
    }

    /// Takes the next token if it is this word or sign.
    pub(super) fn take(&mut self, wanted: &str) -> bool {
        let is = match self.peek() {
            Some(Token::Word(word)) => word == wanted,
            Some(Token::Sign(sign)) => *sign == wanted,
            _ => false,
        };
        self.next += usize::from(is);
        is
    }

    /// The next word, which must be one.
    pub(super) fn word(&mut self, expected: &str) -> Result<String, FilterError> {
        match self.peek() {
            Some(Token::Word(_)) => {}
            _ => return Err(self.unexpected(expected)),
        }
        match self.step() {
            Some(Token::Word(word)) => Ok(word),
            _ => unreachable!("it was seen"),
        }
    }

    pub(super) fn unexpected(&self, expected: &str) -> FilterError {
        let found = match self.peek() {
            None => "it ends".into(),
            Some(Token::Word(word)) => format!("'{word}' stands"),
            Some(Token::Index(index)) => format!("'[{index}]' stands"),
            Some(Token::Sign(sign)) => format!("'{sign}' stands"),
        };
        FilterError(format!("{found} where {expected} is expected"))
    }
}
