//! A filter's words and signs.

use super::FilterError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A keyword, a name, a number or an address.
    Word(String),
    /// What stands between brackets.
    Index(String),
    /// Of `( ) & | && || ! = != < <= > >=`; `==` is `=`.
    Sign(&'static str),
}

/// Longest first.
const SIGNS: [&str; 13] = ["&&", "||", "!=", "==", "<=", ">=", "(", ")", "&", "|", "!", "<", ">"];

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, FilterError> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c);
        if first == '[' {
            let (inside, behind) =
                rest[1..].split_once(']').ok_or_else(|| FilterError("a '[' without its ']'".into()))?;
            tokens.push(Token::Index(inside.trim().into()));
            rest = behind;
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(if sign == "==" { "=" } else { sign }));
            rest = &rest[sign.len()..];
        } else if first == '=' {
            tokens.push(Token::Sign("="));
            rest = &rest[1..];
        } else if is_word(first) || first == '\\' {
            // A backslash makes a name of a keyword; names and keywords do not stand in the same places here.
            let word = rest.trim_start_matches('\\');
            let end = word.find(|c: char| !is_word(c)).unwrap_or(word.len());
            if end == 0 {
                return Err(FilterError("a '\\' without a name".into()));
            }
            tokens.push(Token::Word(word[..end].to_ascii_lowercase()));
            rest = &word[end..];
        } else {
            return Err(FilterError(format!("'{first}' is not part of a filter")));
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}
