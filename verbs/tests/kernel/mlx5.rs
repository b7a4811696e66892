//! What mlx5 has and rxe has not.

use pollux_verbs::{
    Ece, EthFilter, FlowSpec, FlowType, HashFields, HashQp, Ipv4Filter, Rule, TcpUdpFilter, Wq, WqOptions,
    WqState, WqTable,
};

use super::*;

/// Another process's view: the same file, by a duplicate of its descriptor.
#[test]
fn a_context_is_shared_by_its_file() {
    let Some((device, _)) = device_of(Need::Mlx5) else { return };
    let file = device.open().expect("the file");
    let copy = file.fd().try_clone_to_owned().expect("a descriptor");
    let first = Context::open(file, Provider::Mlx5, Options::default()).expect("a context");
    let pd = Pd::new(&first).expect("a domain");
    let mr = Mr::allocate(&pd, 4096, Access::LOCAL_WRITE | Access::REMOTE_READ).expect("a region");
    let copy = Arc::new(KernelFile::adopt(copy).expect("a device's file"));
    let second = Context::import(copy, Provider::Mlx5, Options::default()).expect("the same context");
    let imported = Pd::import(&second, pd.handle());
    // SAFETY: nobody has references into a region.
    let region = unsafe { Mr::import(&imported, mr.handle().expect("its own"), mr.access()) }.expect("known");
    assert_eq!((region.lkey(), region.rkey()), (mr.lkey(), mr.rkey()));
    assert_eq!((region.address(), region.bytes()), (mr.address(), mr.bytes()));
    // A queue pair of the second's reads what the first has.
    mr.write(0, b"of the first");
    let buffers = Buffers::new(&imported, 2, 64).expect("buffers");
    let mut cq = Cq::new(&second, CqOptions::new(16)).expect("a completion queue");
    let make = || {
        let mut qp = Qp::new(&imported, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
        qp.init(1, Access::REMOTE_READ).expect("INIT");
        qp
    };
    let (mut one, mut two) = (make(), make());
    let (index, own) = gid(&second);
    let path = To { hop_limit: 1, ..To::new(own, index) };
    one.connect(&Connection::new(path, two.qpn())).expect("connected");
    two.connect(&Connection::new(path, one.qpn())).expect("connected");
    let mut batch = one.batch();
    batch
        .read(1, region.address(), region.rkey())
        .piece(buffers.filled(&[0; 12]).expect("a buffer"))
        .signalled();
    assert_eq!(batch.ring(), Ok(1));
    let done = wait(&mut cq, 1);
    assert_eq!((done[0].status, &done[0].data[..]), (WcStatus::SUCCESS, &b"of the first"[..]));
    drop((one, two, cq, buffers, region, imported, second));
    mr.deregister().expect("still the first's");
    assert!(KernelFile::adopt(std::fs::File::open("/proc/self/status").expect("a file").into()).is_err());
}

/// Memory of the device as a dma-buf, and a region of that, where the kernel has it (from 7.0 on, with peer-to-peer).
#[test]
fn device_memory_is_exported() {
    let Some((_, context)) = device_of(Need::Mlx5) else { return };
    let dm = Dm::new(&context, 4096, 12).expect("memory of the device");
    dm.write(0, b"exported").expect("inside");
    match dm.export() {
        Ok(file) => {
            let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("open");
            assert!(link.to_string_lossy().contains("dmabuf"), "{link:?}");
        }
        Err(error) => {
            let line = error.to_string();
            assert!(matches!(error, VerbsError::Unsupported { .. }), "{line}");
            // Later than Linux 7.0 it is the build that lacks it.
            let told = context.port_speed_mbps(1).expect("asked");
            assert_eq!(line.contains("EPROTONOSUPPORT"), told.is_none(), "{line}");
            assert_eq!(line.contains("EOPNOTSUPP"), told.is_some(), "{line}");
        }
    }
    let mut seen = [0; 8];
    dm.read(0, &mut seen).expect("inside");
    assert_eq!(&seen, b"exported");
}

/// What the port carries: what width and speed make, where the kernel (from 7.0 on) tells it.
#[test]
fn a_port_tells_what_it_carries() {
    let Some((_, context)) = device_of(Need::Mlx5) else { return };
    let told = context.port_speed_mbps(1).expect("asked");
    println!("the kernel says {told:?} Mbit/s");
    assert!(told.is_none_or(|mbps| mbps == 100_000), "{told:?}: a card of 100 Gbit/s");
    assert!(told.is_none() || context.port_speed_mbps(9).is_err());
}

/// Two ends tell each other their options and agree, and messages go as ever. The device repeats lost packets as it is set to.
#[test]
fn ends_agree_on_options_of_their_connection() {
    let Some((_, context)) = device_of(Need::Mlx5) else { return };
    let pd = Pd::new(&context).expect("a domain");
    let buffers = Buffers::new(&pd, 4, 64).expect("buffers");
    let mut cq = Cq::new(&context, CqOptions::new(16)).expect("a completion queue");
    let make = || Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc).inline(32)).expect("a queue pair");
    let (mut one, mut two) = (make(), make());
    let has = one.query_ece().expect("options");
    assert_eq!((has.vendor, has.options >> 28), (0x15b3, 3), "{has:?}: a card of these years");
    assert_eq!(two.query_ece().expect("options"), has, "the same card");
    assert!(one.set_ece(Ece { vendor: 0x1234, ..has }).is_err(), "another vendor's");
    for qp in [&mut one, &mut two] {
        qp.init(1, Access::empty()).expect("INIT");
        assert_eq!(qp.query_ece().expect("options"), has, "nothing was asked for");
        // More than there is, as a newer card might say.
        qp.set_ece(Ece::mlx5(has.options | 0xf_ff00)).expect("a card that has options");
        assert_eq!(qp.query_ece().expect("options").options, 0, "not known yet");
    }
    let (index, own) = gid(&context);
    let path = To { hop_limit: 1, ..To::new(own, index) };
    one.ready_to_receive(&Connection::new(path, two.qpn())).expect("RTR");
    two.ready_to_receive(&Connection::new(path, one.qpn())).expect("RTR");
    assert_eq!((one.query_ece().expect("options"), two.query_ece().expect("options")), (has, has));
    // Asked for again on the way to RTS, the answer is the same.
    one.set_ece(has).expect("options");
    one.ready_to_send(&Connection::new(path, two.qpn())).expect("RTS");
    two.ready_to_send(&Connection::new(path, one.qpn())).expect("RTS");
    assert_eq!((one.query_ece().expect("options"), two.query_ece().expect("options")), (has, has));
    let mut receives = two.receives().expect("its own");
    receives.piece(1, buffers.take().expect("a buffer"));
    receives.ring().expect("posted");
    let mut batch = one.batch();
    batch.send(2).inline(b"agreed").signalled();
    batch.ring().expect("posted");
    // The device's own word, by a firmware command through the kernel.
    assert!(one.data_in_order().whole_message && two.data_in_order().aligned_128);
    let done = wait(&mut cq, 2);
    let got = done.iter().find(|done| done.id == 1).expect("what was received");
    assert_eq!((got.status, &got.data[..]), (WcStatus::SUCCESS, &b"agreed"[..]));
}

/// A receiver of XRC, known by its number, in a domain that two contexts share by a file.
#[test]
fn a_receiver_of_xrc_is_opened() {
    let Some((device, context)) = device_of(Need::Mlx5) else { return };
    let path = std::env::temp_dir().join(format!("pollux-xrc-{}", std::process::id()));
    let file = std::fs::File::create(&path).expect("a file");
    drop(std::fs::remove_file(&path));
    let own = Xrcd::of_file(&context, file.as_fd()).expect("mlx5 has XRC");
    let mut receiver = Qp::xrc_receiver(&own).expect("a receiver");
    receiver.init(1, Access::empty()).expect("INIT");
    let other = Context::open_device(&device, Options::default()).expect("a context");
    let pd = Pd::new(&other).expect("a domain");
    let shared = Xrcd::of_file(&other, file.as_fd()).expect("the same domain");
    let buffers = Buffers::new(&pd, 4, 64).expect("buffers");
    let mut cq = Cq::new(&other, CqOptions::new(16)).expect("a completion queue");
    let mut srq = Srq::xrc(&pd, &shared, &cq, &SrqOptions::new(8)).expect("a shared queue");
    let mut receives = srq.receives();
    receives.piece(5, buffers.take().expect("a buffer"));
    receives.ring().expect("posted");
    let opened = Qp::open(&shared, receiver.qpn()).expect("opened");
    assert_eq!(QpState(opened.query().expect("values").qp_state), QpState::INIT);

    let mut send_cq = Cq::new(&other, CqOptions::new(16)).expect("a completion queue");
    let options = QpOptions::new(QpKind::XrcSend).inline(32);
    let mut sender = Qp::new(&pd, &send_cq, &send_cq, &options).expect("a sender");
    sender.init(1, Access::empty()).expect("INIT");
    let (index, gid) = gid(&context);
    let path = To { hop_limit: 1, ..To::new(gid, index) };
    sender.connect(&Connection::new(path, receiver.qpn())).expect("RTS");
    receiver.ready_to_receive(&Connection::new(path, sender.qpn())).expect("RTR");
    opened
        .modify(&QpAttributes { sq_psn: Some(0), timeout: Some(14), ..QpAttributes::state(QpState::RTS) })
        .expect("RTS");
    drop((receiver, own));
    let mut batch = sender.batch();
    batch.send(7).to_srq(srq.number()).inline(b"to the other").signalled();
    batch.ring().expect("posted");
    assert_eq!(wait(&mut send_cq, 1)[0].status, WcStatus::SUCCESS);
    let got = wait(&mut cq, 1);
    assert_eq!((got[0].id, &got[0].data[..]), (5, &b"to the other"[..]));
}

#[test]
fn memory_of_the_device_is_written_and_read_back() {
    let Some((_, context)) = device_of(Need::Mlx5) else { return };
    let Ends { mut one, two, mut cq, buffers, pd } = connected(&context, QpKind::Rc);
    let dm = Dm::new(&context, 256, 6).expect("memory of the device");
    let mr =
        Mr::of_device(&pd, &dm, 0..256, Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE)
            .expect("a region of it");
    let mut batch = one.batch();
    batch.write(1, mr.address() + 8, mr.rkey()).inline(b"by the peer!").signalled();
    assert_eq!(batch.ring(), Ok(1));
    assert_eq!(wait(&mut cq, 1)[0].status, WcStatus::SUCCESS);
    let mut seen = [0; 12];
    dm.read(8, &mut seen).expect("inside");
    assert_eq!(&seen, b"by the peer!");
    dm.write(100, b"by us").expect_err("not whole words");
    dm.write(100, b"by us...").expect("inside");
    let mut batch = one.batch();
    batch
        .read(2, mr.address() + 100, mr.rkey())
        .piece(buffers.filled(&[0; 8]).expect("a buffer"))
        .signalled();
    assert_eq!(batch.ring(), Ok(1));
    let done = wait(&mut cq, 1);
    assert_eq!((done[0].status, &done[0].data[..]), (WcStatus::SUCCESS, &b"by us..."[..]));
    drop(two);
}

/// The MAC address that the device's link-local GID is made of.
fn mac(context: &Context) -> [u8; 6] {
    let all = context.gids().expect("GIDs");
    let gid = all.iter().find(|gid| gid.gid[..2] == [0xfe, 0x80]).expect("a link-local GID").gid;
    [gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15]]
}

#[test]
fn frames_are_spread_over_queues() {
    if !require(&[Need::Mlx5]) {
        return;
    }
    let all = pollux_verbs::devices(Path::new("/")).expect("a kernel with uverbs");
    let mut contexts: Vec<Context> = all
        .iter()
        .filter(|device| device.driver_id() == Some(driver::MLX5))
        .map(|device| Context::open_device(device, Options::default()).expect("it opens"))
        .collect();
    let (Some(far), Some(near)) = (contexts.pop(), contexts.pop()) else { panic!("both ends of a cable") };
    let own = mac(&far);
    let pd = Pd::new(&far).expect("a domain");
    let buffers = Buffers::new(&pd, 64, 2048).expect("buffers");
    let mut cq = Cq::new(&far, CqOptions::new(64)).expect("a completion queue");
    let queues: Vec<Wq> = (0..4)
        .map(|_| {
            let mut wq = Wq::new(&pd, &cq, &WqOptions::new(16)).expect("a queue");
            wq.modify(WqState::RDY).expect("it receives");
            let mut receives = wq.receives();
            for id in 0..16 {
                receives.piece(id, buffers.take().expect("a buffer"));
            }
            assert_eq!(receives.ring(), Ok(16));
            wq
        })
        .collect();
    let table = WqTable::new(&pd, &queues.iter().collect::<Vec<_>>()).expect("a table");
    let fields =
        HashFields::SRC_IPV4 | HashFields::DST_IPV4 | HashFields::SRC_PORT_UDP | HashFields::DST_PORT_UDP;
    let key: [u8; 40] = std::array::from_fn(|at| (at as u8).wrapping_mul(37) ^ 0x5a);
    let mut spread = HashQp::new(&table, fields, &key).expect("a queue pair");
    let value = EthFilter { dst_mac: own, ..EthFilter::default() };
    let mask = EthFilter { dst_mac: [0xff; 6], ..EthFilter::default() };
    let any = FlowSpec::Udp { value: TcpUdpFilter::default(), mask: TcpUdpFilter::default(), inner: false };
    let any_ip = FlowSpec::Ipv4 { value: Ipv4Filter::default(), mask: Ipv4Filter::default(), inner: false };
    let specs = [FlowSpec::Eth { value, mask, inner: false }, any_ip, any, FlowSpec::Tag(0xbeef)];
    spread.steer(&Rule { port: 1, priority: 0, kind: FlowType::NORMAL, specs: &specs }).expect("a rule");

    let sender = Pd::new(&near).expect("a domain");
    let outgoing = Buffers::new(&sender, 4, 2048).expect("buffers");
    let mut sent = Cq::new(&near, CqOptions::new(16)).expect("a completion queue");
    let options = QpOptions::new(QpKind::Raw).depth(16, 0);
    let mut raw = Qp::new(&sender, &sent, &sent, &options).expect("a queue pair");
    raw.init(1, Access::empty()).expect("INIT");
    for state in [QpState::RTR, QpState::RTS] {
        raw.modify(&QpAttributes::state(state)).expect("ready");
    }
    let mut met = std::collections::HashMap::new();
    for port in 0..32_u16 {
        let mut frame = own.to_vec();
        frame.extend([
            2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
        ]);
        frame.extend(port.to_be_bytes());
        frame.extend([0x12, 0x34, 0, 26, 0, 0]);
        frame.resize(60, port as u8);
        let mut batch = raw.batch();
        batch.send(99).checksums().piece(outgoing.filled(&frame).expect("a buffer")).signalled();
        batch.ring().expect("posted");
        assert_eq!(wait(&mut sent, 1)[0].status, WcStatus::SUCCESS);
        let end = Instant::now() + patient(Duration::from_secs(10));
        let mut came = None;
        while came.is_none() {
            assert!(Instant::now() < end, "port {port} did not come");
            cq.poll(1, |wc: &mut Wc<'_, '_>| {
                let about = (wc.qpn(), wc.rss_hash(), wc.flow_tag(), wc.are_checksums_ok());
                came = Some((about, wc.take_buf().map(|buf| buf.to_vec()).unwrap_or_default()));
            });
        }
        let ((number, hash, tag, good), data) = came.expect("it came");
        assert_eq!((tag, good), (0xbeef, true), "port {port}");
        assert_eq!((&data[34..36], data.last()), (&port.to_be_bytes()[..], Some(&(port as u8))));
        assert_eq!(number, queues[hash as usize % 4].number(), "port {port}, hash {hash:#x}");
        *met.entry(number).or_insert(0) += 1;
    }
    assert_eq!(met.len(), 4, "all queues had some: {met:?}");
    // The kernel lets go children first, whatever is dropped first here.
    drop((queues, table));
    drop(spread);
    cq.poll(1, |wc: &mut Wc<'_, '_>| panic!("{wc:?}"));
    assert_eq!(buffers.available(), buffers.count(), "all came home");
}
