//! How many descriptors a launcher may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as the hard limit is: programs of others have files that are each a descriptor here. Called before the program starts, the
/// program has the same limit.
pub fn raise() {
    let limit = getrlimit(Resource::Nofile);
    // With fewer it works until they are used up.
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).ok();
}
