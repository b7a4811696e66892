//! Specs as plain data: EAL options, device arguments, TOML profiles.
