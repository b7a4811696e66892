//! clap's reports, which span several lines, made into one.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::ConfigError;

pub(super) fn one_line(error: &clap::Error, other_half: &[String]) -> ConfigError {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        Some(ContextValue::StyledStr(text)) => text.to_string(),
        Some(ContextValue::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    // clap names an option with its value, `--duration <S>`; the option alone is what the user typed.
    let named = text(ContextKind::InvalidArg);
    let (option, value_name) = match named.split_once([' ', '[', '=']) {
        Some((option, value)) => (option.to_owned(), value.trim_matches(['<', '>', '=', '[', ']', ' '])),
        None => (named.clone(), ""),
    };
    let value = text(ContextKind::InvalidValue);
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let nearest = text(ContextKind::SuggestedArg);
            let typed = named.split('=').next().unwrap_or_default();
            if !named.starts_with('-') {
                return ConfigError::Stray { text: named };
            }
            let hint = if other_half.iter().any(|known| known == typed) {
                format!("it is an app option, write it after '--': -- {named}")
            } else if nearest.is_empty() {
                "--help lists all options".to_owned()
            } else {
                format!("did you mean '{nearest}'? --help lists all options")
            };
            ConfigError::UnknownOption { option: named, hint }
        }
        ErrorKind::ArgumentConflict if text(ContextKind::PriorArg) == named => {
            ConfigError::usage(&option, "is given twice: give it once")
        }
        ErrorKind::ArgumentConflict => {
            let prior = text(ContextKind::PriorArg);
            let prior = prior.split([' ', '[', '=']).next().unwrap_or_default().to_owned();
            ConfigError::conflict(&option, &prior, "keep one")
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            ConfigError::usage(&option, format!("needs a value: {option} {value_name}"))
        }
        ErrorKind::InvalidValue => {
            let allowed = text(ContextKind::ValidValue);
            ConfigError::value(&option, &value, format!("is not one of {allowed}"))
        }
        ErrorKind::ValueValidation => {
            let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            ConfigError::value(&option, &value, reason)
        }
        ErrorKind::MissingRequiredArgument => {
            ConfigError::usage(&option, format!("is missing: give {named}"))
        }
        ErrorKind::TooManyValues => {
            ConfigError::usage(&option, format!("takes no value, and was given '{value}': leave it out"))
        }
        _ => {
            let whole = error.to_string();
            let first = whole.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
            ConfigError::usage(&option, first)
        }
    }
}
