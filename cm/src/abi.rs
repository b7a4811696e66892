//! What the kernel's connection manager and its clients say of connections, as it is here.

pub(crate) mod address;

use pollux_uverbs::abi::connection::ConnParam;
use pollux_uverbs::abi::memory::AhAttr;
use pollux_verbs::Path;
use zerocopy::FromBytes;

use crate::parameters::ConnectionParameters;

/// Parameters as they are told.
pub(crate) fn told(qpn: u32, parameters: &ConnectionParameters) -> ConnParam {
    let mut told = ConnParam {
        qp_num: qpn,
        private_data_len: parameters.private_data.len() as u8,
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
        flow_control: parameters.flow_control.into(),
        retry_count: parameters.retry_count,
        rnr_retry_count: parameters.rnr_retry_count,
        valid: 1,
        ..ConnParam::default()
    };
    crate::message::fill(&mut told.private_data, &parameters.private_data);
    told
}

/// The same, heard: the queue pair, and the parameters.
pub(crate) fn heard(bytes: &[u8]) -> (u32, ConnectionParameters) {
    let Ok((heard, _)) = ConnParam::read_from_prefix(bytes) else {
        return Default::default();
    };
    let parameters = ConnectionParameters {
        private_data: heard.private_data[..usize::from(heard.private_data_len)].to_vec(),
        responder_resources: heard.responder_resources,
        initiator_depth: heard.initiator_depth,
        flow_control: heard.flow_control != 0,
        retry_count: heard.retry_count,
        rnr_retry_count: heard.rnr_retry_count,
    };
    (heard.qp_num, parameters)
}

/// A path, of what describes an address; [`Path::attributes`] is the way back.
pub(crate) fn path(attributes: &AhAttr) -> Path {
    let global = &attributes.grh;
    Path {
        port: attributes.port_num,
        service_level: attributes.sl,
        traffic_class: global.traffic_class,
        hop_limit: global.hop_limit,
        flow_label: global.flow_label,
        rate: attributes.static_rate,
        lid: attributes.dlid,
        ..Path::new(global.dgid, global.sgid_index)
    }
}
