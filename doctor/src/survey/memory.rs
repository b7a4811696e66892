//! Domains, registered memory, windows, memory on the device.

use pollux_verbs::{Access, Context, Dm, Mr, Mw, MwType, Pd};

use super::step::{Refusal, Step, refused, timed};
use super::subject::Subject;

/// Lengths that are registered: a page, several, a large page.
const LENGTHS: [usize; 3] = [1 << 12, 1 << 16, 1 << 21];

/// Rights that are asked for.
const RIGHTS: [(&str, Access); 6] = [
    ("none", Access::empty()),
    ("local", Access::LOCAL_WRITE),
    ("remote", Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ)),
    ("atomic", Access::LOCAL_WRITE.union(Access::REMOTE_ATOMIC)),
    ("relaxed", Access::LOCAL_WRITE.union(Access::RELAXED_ORDERING)),
    // The remote right without the local one: the kernel refuses it.
    ("remote_alone", Access::REMOTE_WRITE),
];

/// Bytes of device memory that are asked for.
const DEVICE_BYTES: usize = 4096;

/// Makes each kind, and lets it go.
pub(crate) fn memory(subject: &Subject, step: &mut Step) -> Result<(), Refusal> {
    let context = subject.context()?;
    let (cycles, pd) = timed(|| Pd::new(&context));
    let pd = pd.map_err(refused)?;
    step.cost("alloc_pd", vec![cycles]);
    for bytes in LENGTHS {
        let (mut registered, mut ended) = (Vec::new(), Vec::new());
        for (name, access) in RIGHTS {
            let (cycles, made) = timed(|| Mr::allocate(&pd, bytes, access));
            match made {
                Ok(mr) => {
                    registered.push(cycles);
                    let (cycles, end) = timed(|| mr.deregister());
                    ended.push(cycles);
                    let end = end.map(|_| "ok").map_err(|kept| refused(kept.0));
                    step.outcome(format!("mr_{bytes}_{name}"), end);
                }
                Err(error) => step.refusal(format!("mr_{bytes}_{name}"), refused(error)),
            }
        }
        step.cost(format!("reg_mr_{bytes}"), registered);
        step.cost(format!("dereg_mr_{bytes}"), ended);
    }
    for (name, kind) in [("mw_type1", MwType::Type1), ("mw_type2", MwType::Type2)] {
        let made = Mw::new(&pd, kind);
        step.outcome(name, made.map(|_| "ok").map_err(refused));
    }
    step.outcome("dm", device_memory(&context));
    Ok(())
}

/// Bytes through memory on the device and back.
fn device_memory(context: &Context) -> Result<String, Refusal> {
    let memory = Dm::new(context, DEVICE_BYTES, 0).map_err(refused)?;
    let pattern: Vec<u8> = (0..64_u8).collect();
    let mut back = vec![0; pattern.len()];
    memory.write(0, &pattern).map_err(refused)?;
    memory.read(0, &mut back).map_err(refused)?;
    Ok(if back == pattern { "ok".into() } else { "other bytes came back".into() })
}
