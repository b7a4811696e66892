//! What a device and its ports can and are: attributes, port state, the GID table.

use std::path::Path;

use crate::abi::device::{
    ExQueryDevice, ExQueryDeviceResp, QueryDevice, QueryDeviceResp, QueryPort, QueryPortResp,
};
use crate::abi::flags::{GidType, LinkLayer};
use crate::abi::ioctl_verbs::{GidEntry, QueryPortRespEx};
use crate::abi::{id, write};
use crate::call::{ATTRIBUTE_BYTES_MAX, Call};
use crate::context::filled;
use crate::{Context, Driver, Errno, Operation, UverbsError};

/// Most entries of the GID tables that are asked for: those that one answer can hold. Devices have some hundreds.
const GIDS_MAX: usize = ATTRIBUTE_BYTES_MAX / size_of::<GidEntry>();

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its 16 bytes.
    pub gid: [u8; 16],
    /// Where it stands.
    pub index: u32,
    /// The port.
    pub port: u32,
    /// Its kind.
    pub kind: GidType,
    /// Interface behind it, if there is one.
    pub ifindex: Option<u32>,
}

impl Context {
    /// Asks what the device can. Fields that the kernel is too old for are zero; `response_length` says how many bytes it
    /// filled. Where it lacks even the extended command, the driver gets nothing.
    ///
    /// # Errors
    /// What the kernel says, or an answer shorter than its oldest form.
    pub fn query_device(&self, mut driver: Driver<'_>) -> Result<ExQueryDeviceResp, UverbsError> {
        let request = ExQueryDevice::default();
        match self.write::<_, ExQueryDeviceResp>(write::EX_QUERY_DEVICE, &request, driver.reborrow()) {
            Ok(answer) => {
                filled(write::EX_QUERY_DEVICE, answer.response_length, size_of::<QueryDeviceResp>())?;
                Ok(answer)
            }
            Err(UverbsError::Refused { errno: Errno::EOPNOTSUPP | Errno::ENOSYS, .. }) => {
                let base: QueryDeviceResp =
                    self.write(write::QUERY_DEVICE, &QueryDevice::default(), Driver::none())?;
                let response_length = size_of::<QueryDeviceResp>() as u32;
                Ok(ExQueryDeviceResp { base, response_length, ..ExQueryDeviceResp::default() })
            }
            Err(error) => Err(error),
        }
    }

    /// Asks for the state of a port, counted from 1. The fields after the older answer are zero where the kernel is too
    /// old for them.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a port that is not there.
    pub fn query_port(&self, port: u8) -> Result<QueryPortRespEx, UverbsError> {
        use id::device::query_port as a;
        let mut answer = QueryPortRespEx::default();
        let mut call = Call::new(id::device::OBJECT, a::METHOD);
        call.u64(a::PORT_NUM, u64::from(port)).out(a::RESP, zerocopy::IntoBytes::as_mut_bytes(&mut answer));
        if self.native(&mut call, Driver::none())? {
            // An older kernel writes a shorter answer; the rest of the room is zero.
            call.get::<QueryPortResp>(a::RESP)?;
            drop(call);
            return Ok(answer);
        }
        drop(call);
        let request = QueryPort { port_num: port, ..QueryPort::default() };
        let legacy_resp = self.write(write::QUERY_PORT, &request, Driver::none())?;
        Ok(QueryPortRespEx { legacy_resp, ..QueryPortRespEx::default() })
    }

    /// Asks how much a port carries now, in units of 100 Mbit/s; 0 while it is down. `None` where the kernel lacks the method
    /// (before 7.0) or the device's driver does not tell: the width and the speed of [`query_port`](Self::query_port) are
    /// what is known then. Source: rdma-core `libibverbs/cmd_device.c`, `ibv_cmd_query_port_speed`.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a port that is not there.
    pub fn query_port_speed(&self, port: u32) -> Result<Option<u64>, UverbsError> {
        use id::device::query_port_speed as a;
        let mut call = Call::new(id::device::OBJECT, a::METHOD);
        call.u64(a::PORT_NUM, u64::from(port)).answer(a::RESP, size_of::<u64>());
        match self.native(&mut call, Driver::none()) {
            Ok(true) => call.get(a::RESP).map(Some),
            Ok(false) | Err(UverbsError::Refused { errno: Errno::EOPNOTSUPP, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks for an entry of a port's GID table; `None` when it is empty. Kernels that lack the method tell it through
    /// sysfs.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a port or an index that is not there. [`UverbsError::TooOld`] when the method is
    /// absent and [`Context::with_sysfs`] was not told.
    pub fn query_gid(&self, port: u32, index: u32) -> Result<Option<Gid>, UverbsError> {
        use id::device::query_gid_entry as a;
        let mut call = Call::new(id::device::OBJECT, a::METHOD);
        call.u64(a::PORT, u64::from(port))
            .u64(a::GID_INDEX, u64::from(index))
            .u32(a::FLAGS, 0)
            .answer(a::RESP_ENTRY, size_of::<GidEntry>());
        match self.native(&mut call, Driver::none()) {
            Ok(true) => Ok(gid(&call.get(a::RESP_ENTRY)?)),
            Ok(false) => {
                let folder = self.gid_folder()?;
                let layer = self.query_port(u8::try_from(port).unwrap_or(u8::MAX))?.legacy_resp.link_layer;
                sysfs_gid(folder, port, index, LinkLayer(layer))
            }
            Err(UverbsError::Refused { errno: Errno::ENODATA, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks for all entries of all ports that are not empty.
    ///
    /// # Errors
    /// As [`query_gid`](Self::query_gid).
    pub fn query_gid_table(&self) -> Result<Vec<Gid>, UverbsError> {
        use id::device::query_gid_table as a;
        let ports = self.query_device(Driver::none())?.base.phys_port_cnt;
        let mut count = 0;
        for port in 1..=ports {
            count += self.query_port(port)?.legacy_resp.gid_tbl_len as usize;
        }
        let count = count.min(GIDS_MAX);
        let mut call = Call::new(id::device::OBJECT, a::METHOD);
        call.u64(a::ENTRY_SIZE, size_of::<GidEntry>() as u64)
            .u32(a::FLAGS, 0)
            .answer(a::RESP_ENTRIES, count * size_of::<GidEntry>())
            .answer(a::RESP_NUM_ENTRIES, 8);
        if self.native(&mut call, Driver::none())? {
            let told: u64 = call.get(a::RESP_NUM_ENTRIES)?;
            let told = usize::try_from(told).ok().filter(|told| *told <= count).ok_or_else(|| {
                let operation = call.operation();
                let attribute = operation.attribute(a::RESP_NUM_ENTRIES);
                UverbsError::Unexpected {
                    operation,
                    attribute,
                    value: told,
                    allowed: "no more than there was room for",
                }
            })?;
            if told == 0 {
                // A table that is empty need not be written.
                return Ok(Vec::new());
            }
            let bytes = call.answered(a::RESP_ENTRIES)?;
            let wanted = told * size_of::<GidEntry>();
            if bytes.len() < wanted {
                let operation = call.operation();
                let attribute = operation.attribute(a::RESP_ENTRIES);
                return Err(UverbsError::Short { operation, attribute, bytes: bytes.len(), wanted });
            }
            let (entries, _) = bytes[..wanted].as_chunks::<{ size_of::<GidEntry>() }>();
            return Ok(entries.iter().filter_map(|raw| gid(&zerocopy::transmute!(*raw))).collect());
        }
        let folder = self.gid_folder()?;
        let mut table = Vec::new();
        for port in 1..=ports {
            let state = self.query_port(port)?.legacy_resp;
            for index in 0..state.gid_tbl_len.min(GIDS_MAX as u32) {
                table.extend(sysfs_gid(folder, u32::from(port), index, LinkLayer(state.link_layer))?);
            }
        }
        Ok(table)
    }

    /// Where sysfs tells the GIDs, for kernels that lack the methods.
    fn gid_folder(&self) -> Result<&Path, UverbsError> {
        let operation = Operation::method(id::device::OBJECT, id::device::query_gid_entry::METHOD);
        self.sysfs().ok_or(UverbsError::TooOld { operation, what: "a GID query; sysfs was not told" })
    }
}

fn gid(entry: &GidEntry) -> Option<Gid> {
    let bytes: [u8; 16] = zerocopy::transmute!(entry.gid);
    (bytes != [0; 16]).then_some(Gid {
        gid: bytes,
        index: entry.gid_index,
        port: entry.port_num,
        kind: GidType(entry.gid_type),
        ifindex: (entry.netdev_ifindex != 0).then_some(entry.netdev_ifindex),
    })
}

/// Reads an entry from the files of `/sys/class/infiniband/<device>`. Source: rdma-core `libibverbs/cmd_device.c`; Linux
/// `Documentation/ABI/stable/sysfs-class-infiniband`.
fn sysfs_gid(folder: &Path, port: u32, index: u32, layer: LinkLayer) -> Result<Option<Gid>, UverbsError> {
    let ports = folder.join("ports").join(port.to_string());
    let read = |path: &Path| std::fs::read_to_string(path).map(|text| text.trim_end().to_owned());
    let path = ports.join("gids").join(index.to_string());
    let text = read(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => UverbsError::Refused {
            operation: Operation::method(id::device::OBJECT, id::device::query_gid_entry::METHOD),
            errno: Errno::EINVAL,
            words: None,
        },
        _ => UverbsError::Sysfs { path: path.clone(), problem: error.to_string() },
    })?;
    let bytes = parse_gid(&text)
        .ok_or_else(|| UverbsError::Sysfs { path: path.clone(), problem: format!("{text:?} is no GID") })?;
    if bytes == [0; 16] {
        return Ok(None);
    }
    let attributes = ports.join("gid_attrs");
    // Where the file is missing or cannot be read the port knows one kind alone.
    let kind = match read(&attributes.join("types").join(index.to_string())) {
        Ok(text) if text == "RoCE v2" => GidType::ROCE_V2,
        _ if layer == LinkLayer::ETHERNET => GidType::ROCE_V1,
        _ => GidType::IB,
    };
    let interface = read(&attributes.join("ndevs").join(index.to_string())).ok();
    let ifindex = interface.and_then(|name| {
        let class = folder.parent()?.parent()?;
        read(&class.join("net").join(name).join("ifindex")).ok()?.parse().ok()
    });
    Ok(Some(Gid { gid: bytes, index, port, kind, ifindex }))
}

/// Eight groups of four hexadecimal digits.
fn parse_gid(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    let mut groups = text.split(':');
    for place in bytes.chunks_exact_mut(2) {
        let group = groups
            .next()
            .filter(|group| group.len() == 4 && group.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        place.copy_from_slice(&u16::from_str_radix(group, 16).ok()?.to_be_bytes());
    }
    groups.next().is_none().then_some(bytes)
}
