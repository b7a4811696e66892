//! A real kernel with a device of rdma_rxe, played older than it is: the same walk by methods, by commands inside the ioctl
//! and by write(2).
#![expect(unsafe_code, reason = "registers memory with a real device")]

use std::path::Path;
use std::sync::Arc;

use pollux_eal::region::Region;
use pollux_tests::require::{Need, require};
use pollux_uverbs::abi::flags::{Access, CqFlags, LinkLayer, QpMask, QpState, QpType};
use pollux_uverbs::abi::id;
use pollux_uverbs::abi::memory::AhAttr;
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::abi::queue_pair::{ModifyQp, QpCap};
use pollux_uverbs::cq::CqRequest;
use pollux_uverbs::discovery::{self, Device};
use pollux_uverbs::mr::{MrChange, MrRequest};
use pollux_uverbs::mw::MwType;
use pollux_uverbs::qp::{QpHome, QpRequest};
use pollux_uverbs::srq::{SrqKind, SrqRequest};
use pollux_uverbs::{
    Call, Channel, Context, Driver, Errno, KernelFile, Page, PdHandle, Protection, Route, UverbsError,
    WriteCall,
};

use crate::door::Script;

/// The kernel's file with some of its ways closed.
#[derive(Debug)]
struct Older {
    file: Arc<KernelFile>,
    script: Script,
}

impl Channel for Older {
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
        let method = (call.object, call.method);
        if self.script.no_ioctl {
            return Err(Errno::ENOTTY);
        }
        let is_probe = method == (id::device::OBJECT, id::device::invoke_write::METHOD);
        if self.script.absent.contains(&method) || is_probe && self.script.no_invoke_write {
            return Err(Errno::EPROTONOSUPPORT);
        }
        // SAFETY: the same call, by the caller.
        unsafe { self.file.call(call) }
    }

    unsafe fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno> {
        assert!(
            route == Route::Plain || !(self.script.no_ioctl || self.script.no_invoke_write),
            "that way is closed"
        );
        // SAFETY: as above.
        unsafe { self.file.write(command, route) }
    }

    fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        self.file.map(offset, bytes, protection)
    }

    fn describe(&self) -> String {
        self.file.describe()
    }
}

fn rxe() -> Option<Device> {
    if !require(&[Need::Rxe]) {
        return None;
    }
    let all = discovery::devices(Path::new("/")).expect("a kernel with uverbs");
    let found = all.into_iter().find(|device| device.driver_id() == Some(driver::RXE));
    Some(found.expect("the device that was found"))
}

fn walk(device: &Device, script: Script) -> Result<(), UverbsError> {
    let channel: Arc<dyn Channel> = Arc::new(Older { file: device.open()?, script });
    // SAFETY: what is registered is a zone of this function's, which nobody looks into; what is destroyed was made here.
    let context = unsafe { Context::open(channel, driver::RXE, Driver::none())? };
    let context = context.with_sysfs(device.sysfs.clone());
    assert!(context.comp_vectors() > 0);
    let attributes = context.query_device(Driver::none())?;
    assert!(attributes.base.max_qp > 0 && attributes.base.phys_port_cnt == 1);
    assert_eq!(LinkLayer(context.query_port(1)?.legacy_resp.link_layer), LinkLayer::ETHERNET);
    assert_eq!(context.query_port(9).expect_err("one port").errno(), Some(Errno::EINVAL));
    // rxe tells none, and kernels before 7.0 have no method for it.
    assert_eq!(context.query_port_speed(1)?, None);
    let gids = context.query_gid_table()?;
    let first = gids.first().expect("an interface that is up has a GID");
    assert_eq!(context.query_gid(1, first.index)?, Some(*first));

    let pd = context.alloc_pd(Driver::none())?;
    memory(&context, pd)?;
    let channel = context.create_comp_channel()?;
    // rxe answers where queues can be mapped: 16 bytes for each.
    let mut maps = [0; 32];
    let request = CqRequest {
        entries: 10,
        user_handle: 77,
        channel: Some(&channel),
        vector: 0,
        flags: CqFlags::empty(),
    };
    let cq = context.create_cq(&request, Driver::new(&[], &mut maps[..16]))?;
    assert!(cq.entries >= 10);
    assert_ne!(maps[8..12], [0; 4], "the length of the queue");
    context.req_notify_cq(cq.handle, false)?;
    assert_eq!((channel.next()?, context.events().next()?), (None, None));

    let mut place = [0; 24];
    let request = SrqRequest { pd, kind: SrqKind::Basic, max_wr: 8, max_sge: 2, limit: 0, user_handle: 78 };
    let srq = context.create_srq(&request, Driver::new(&[], &mut place))?;
    assert!(context.query_srq(srq.handle)?.max_wr >= 8);
    assert_eq!(context.destroy_srq(srq.handle)?.events_reported, 0);

    let cap = QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 32 };
    let request = QpRequest {
        send_cq: Some(cq.handle),
        recv_cq: Some(cq.handle),
        cap,
        ..QpRequest::new(QpType::UD, QpHome::Pd(pd))
    };
    let qp = context.create_qp(&request, Driver::new(&[], &mut maps))?;
    assert!(qp.qpn > 1 && qp.cap.max_send_wr >= 8 && qp.cap.max_inline_data >= 32);
    let values = ModifyQp { qp_state: QpState::INIT.0, port_num: 1, qkey: 0x1234, ..ModifyQp::default() };
    let mask = QpMask::STATE | QpMask::PORT | QpMask::PKEY_INDEX | QpMask::QKEY;
    context.modify_qp(qp.handle, mask, &values, Driver::none())?;
    let found = context.query_qp(qp.handle, QpMask::STATE | QpMask::QKEY)?;
    assert_eq!((QpState(found.qp_state), found.qkey, found.port_num), (QpState::INIT, 0x1234, 1));
    let values = ModifyQp { qp_state: QpState::RTS.0, ..ModifyQp::default() };
    let error =
        context.modify_qp(qp.handle, QpMask::STATE, &values, Driver::none()).expect_err("RTR comes before");
    assert_eq!(error.errno(), Some(Errno::EINVAL));

    let mut address = AhAttr { is_global: 1, port_num: 1, ..AhAttr::default() };
    address.grh.dgid = first.gid;
    address.grh.sgid_index = first.index as u8;
    let mut number = [0; 4];
    let ah = context.create_ah(pd, &address, Driver::new(&[], &mut number))?;
    context.destroy_ah(ah)?;

    let error = context.destroy_cq(cq.handle).expect_err("a queue pair uses it");
    assert_eq!(error.errno(), Some(Errno::EBUSY));
    assert_eq!(context.destroy_qp(qp.handle)?.events_reported, 0);
    assert_eq!(context.destroy_cq(cq.handle)?.comp_events_reported, 0);
    context.dealloc_pd(pd)?;
    let error = context.dealloc_pd(pd).expect_err("gone");
    assert_eq!(error.errno(), Some(Errno::ENOENT));
    Ok(())
}

fn memory(context: &Context, pd: PdHandle) -> Result<(), UverbsError> {
    let memory = Region::anonymous("walk", 8192).expect("memory").into_zone();
    let start = memory.base().as_ptr().expose_provenance() as u64;
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let request = MrRequest { pd, start, length: 8192, hca_va: 0x10_0000, access };
    // SAFETY: the zone outlives the region.
    let mr = unsafe { context.reg_mr(&request, Driver::none())? };
    assert_ne!((mr.lkey, mr.rkey), (0, 0));
    let error = context.dealloc_pd(pd).expect_err("memory is in it");
    assert_eq!(error.errno(), Some(Errno::EBUSY));
    let change = MrChange { access: Some(Access::LOCAL_WRITE), ..MrChange::default() };
    // SAFETY: as above; nothing was posted.
    match unsafe { context.rereg_mr(mr.handle, &change, Driver::none()) } {
        Ok(changed) => assert_eq!(changed.handle, mr.handle),
        // Older kernels' rxe cannot do it.
        Err(error) => assert!(error.says_unsupported(), "{error}"),
    }
    let mw = context.alloc_mw(pd, MwType::Type2, Driver::none())?;
    context.dealloc_mw(mw.handle)?;
    context.dereg_mr(mr.handle)
}

#[test]
fn the_walk_works_by_every_way() {
    let Some(device) = rxe() else { return };
    for script in [
        Script::default(),
        Script { no_invoke_write: true, ..Script::default() },
        Script::linux_5_4(),
        Script { no_invoke_write: true, ..Script::linux_5_4() },
        Script { no_ioctl: true, ..Script::default() },
    ] {
        match walk(&device, script.clone()) {
            Ok(()) => {}
            // Since 7.x the old form of GET_CONTEXT cannot be tunnelled, and no such kernel lacks the method.
            Err(error) if kernel_major() >= 7 && is_tunnelled_get_context(&error) => {
                assert!(script.absent.contains(&(0, 3)), "{script:?}: {error}");
            }
            Err(error) => panic!("{script:?}: {error}"),
        }
    }
}

fn kernel_major() -> u32 {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0)
}

fn is_tunnelled_get_context(error: &UverbsError) -> bool {
    error.errno() == Some(Errno::EBADF) && error.to_string().starts_with("GET_CONTEXT")
}
