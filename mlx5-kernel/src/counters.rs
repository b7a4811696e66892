//! Counters of flow rules. Source: Linux `drivers/infiniband/hw/mlx5/counters.c`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use pollux_mlx5_abi::command::counter::{
    AllocFlowCounterOut, DeallocFlowCounterIn, QueryFlowCounterIn, QueryFlowCounterOut, TrafficCounter,
};
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::kernel::flow::{CounterPlace, CountersData, CreateFlow, counter};
use pollux_uverbs::abi::id;
use pollux_uverbs::{Call, Errno};
use zerocopy::{FromBytes, IntoBytes};

use crate::core::Core;
use crate::firmware::{SHORT, begin};
use crate::handle::{Object, ObjectKind};
use crate::session::Session;

/// Most values of a set. Source: Linux `drivers/infiniband/hw/mlx5/counters.h`, `MAX_COUNTERS_NUM`: 65535 bytes of pairs.
const VALUES_MAX: u32 = 8191;

/// A set of counters: which of packets (0) and bytes (1) each of its values is, once a rule has said so.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counter: Option<u32>,
    values: Vec<Option<u32>>,
}

impl Object for Counters {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Counters
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        if let Some(counter) = self.counter {
            let mut input: [u8; DeallocFlowCounterIn::BYTES] = begin(opcode::DEALLOC_FLOW_COUNTER, 0, 0);
            DeallocFlowCounterIn::FLOW_COUNTER_ID.set(&mut input, counter);
            core.execute(&input, &mut [0; SHORT])?;
            self.counter = None;
        }
        Ok(())
    }
}

impl Session {
    /// `COUNTERS/CREATE`.
    pub(crate) fn create_counters(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let handle = self.handles.add(Counters::default(), &[]);
        call.create(id::counters::create::HANDLE, handle)
    }

    /// `COUNTERS/READ`.
    pub(crate) fn read_counters(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::counters::read as a;
        let counters = self.handles.get::<Counters>(call.handle(a::HANDLE)?)?;
        let room = call.output(a::BUFF).ok_or(Errno::EINVAL)?.room() / 8;
        // No rule counts there yet, or more is asked for than there is.
        if counters.values.is_empty() || room > counters.values.len() || room == 0 {
            return Err(Errno::EINVAL);
        }
        let counter = counters.counter.ok_or(Errno::EINVAL)?;
        let (packets, octets) = read(&self.core, counter)?;
        let values: Vec<u8> = counters.values[..room]
            .iter()
            .flat_map(|value| match value {
                Some(counter::PACKETS) => packets.to_ne_bytes(),
                Some(_) => octets.to_ne_bytes(),
                None => [0; 8],
            })
            .collect();
        call.reply(a::BUFF, values.as_slice())
    }

    /// Binds a set to a rule: the device's counter, made by the first rule, which also says which value is what.
    pub(crate) fn bind_counters(&mut self, handle: u32, driver: &[u8]) -> Result<u32, Errno> {
        let described = describe(&self.core.memory.caller_folder(), driver)?;
        let core = Arc::clone(&self.core);
        let counters = self.handles.get_mut::<Counters>(handle)?;
        match described {
            Some(_) if !counters.values.is_empty() => return Err(Errno::EINVAL),
            Some(values) => counters.values = values,
            None if counters.values.is_empty() => return Err(Errno::EINVAL),
            None => {}
        }
        if let Some(counter) = counters.counter {
            return Ok(counter);
        }
        let input: [u8; SHORT] = begin(opcode::ALLOC_FLOW_COUNTER, 0, 0);
        let mut output = AllocFlowCounterOut::ZERO;
        if let Err(errno) = core.execute(&input, &mut output) {
            counters.values.clear();
            return Err(errno);
        }
        let counter = AllocFlowCounterOut::FLOW_COUNTER_ID.get(&output);
        counters.counter = Some(counter);
        Ok(counter)
    }
}

/// Packets and bytes of a counter.
fn read(core: &Core, counter: u32) -> Result<(u64, u64), Errno> {
    let mut input: [u8; QueryFlowCounterIn::BYTES] = begin(opcode::QUERY_FLOW_COUNTER, 0, 0);
    QueryFlowCounterIn::FLOW_COUNTER_ID.set(&mut input, counter);
    let mut output = [0; QueryFlowCounterOut::BYTES + TrafficCounter::BYTES];
    core.execute(&input, &mut output)?;
    let mut block = TrafficCounter::ZERO;
    block.copy_from_slice(&output[QueryFlowCounterOut::BYTES..]);
    Ok((TrafficCounter::PACKETS.get(&block), TrafficCounter::OCTETS.get(&block)))
}

/// What the driver's part of a rule says about its counters: at most one list, which leads to places in the program's memory.
fn describe(process: &str, driver: &[u8]) -> Result<Option<Vec<Option<u32>>>, Errno> {
    if driver.is_empty() {
        return Ok(None);
    }
    let (head, lists) = CreateFlow::read_from_prefix(driver).map_err(|_| Errno::EINVAL)?;
    match head.ncounters_data {
        0 => return Ok(None),
        1 => {}
        _ => return Err(Errno::EINVAL),
    }
    let (list, _) = CountersData::read_from_prefix(lists).map_err(|_| Errno::EINVAL)?;
    if list.ncounters > VALUES_MAX {
        return Err(Errno::EINVAL);
    }
    let mut places = vec![CounterPlace::default(); list.ncounters as usize];
    // Memory of the process that calls, read as the kernel reads it: an address that is not mapped is an error.
    let memory = File::open(format!("{process}/mem")).map_err(Errno::from)?;
    memory.read_exact_at(places.as_mut_bytes(), list.counters_data).map_err(|_| Errno::EFAULT)?;
    let mut values = Vec::new();
    for CounterPlace { description, index } in places {
        if description > counter::BYTES || index >= VALUES_MAX {
            return Err(Errno::EINVAL);
        }
        let index = index as usize;
        if values.len() <= index {
            values.resize(index + 1, None);
        }
        values[index] = Some(description);
    }
    Ok(Some(values))
}
