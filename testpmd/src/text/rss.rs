//! How a port spreads packets over its queues.

use std::fmt::Write;

use super::port;
use crate::hash;
use crate::session::Session;

/// `show port N rss-hash [key|algorithm]`.
///
/// # Errors
/// There is no such port, or it has no RSS.
pub fn rss_hash(session: &mut Session, id: u16, what: &str) -> Result<String, String> {
    let port = port(session, id)?;
    if port.info().rss.is_none() {
        return Err("dev_info did not provide a valid hash key size".into());
    }
    let rss = port.rss().map_err(|error| error.to_string())?;
    if rss.fields.is_empty() {
        return Ok("RSS disabled\n".into());
    }
    if what == "algorithm" {
        return Ok(format!("RSS algorithm:\n  {}\n", rss.algorithm));
    }
    let mut text = format!("RSS functions:\n{}\n", hash::names(rss.fields));
    if what == "key" {
        let key: String = rss.key.iter().flatten().map(|byte| format!("{byte:02X}")).collect();
        let _ = writeln!(text, "RSS key:\n{key}");
    }
    Ok(text)
}
