//! From a configuration to a running EAL and opened ports; the only crate that names every driver.
