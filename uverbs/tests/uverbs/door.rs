//! A door that plays kernels: it lacks what its script says, notes what it is asked, and answers everything else with
//! numbers that tell which way they came.
#![expect(unsafe_code, reason = "the calls of a channel are raw")]

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use pollux_eal::region::Region;
use pollux_uverbs::abi::device::QueryDeviceResp;
use pollux_uverbs::abi::{id, write};
use pollux_uverbs::{
    Call, Channel, Context, Driver, Errno, Operation, Page, Protection, Route, Value, WriteCall,
};

/// Handles and numbers of native methods begin here.
pub(crate) const NATIVE: u32 = 0x2_0000;

/// The words of an answer to a write command count from here.
pub(crate) const WRITTEN: u32 = 0x1_0000;

/// What every byte of a driver's answer is.
pub(crate) const DRIVER_BYTE: u8 = 0xd7;

/// What a kernel lacks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// The ioctl as a whole.
    pub(crate) no_ioctl: bool,
    /// Write commands inside the ioctl.
    pub(crate) no_invoke_write: bool,
    /// Methods.
    pub(crate) absent: HashSet<(u16, u16)>,
    /// Attributes of methods that are there.
    pub(crate) absent_attributes: HashSet<(u16, u16, u16)>,
    /// Methods that are there and answer with an error.
    pub(crate) failing: HashMap<(u16, u16), Errno>,
    /// Write commands that answer with an error.
    pub(crate) failing_writes: HashMap<u32, Errno>,
}

impl Script {
    /// As `self`, without some methods.
    pub(crate) fn without(mut self, methods: &[(u16, u16)]) -> Self {
        self.absent.extend(methods);
        self
    }

    /// Linux 5.4: what of the methods came later. Source: `kernel-headers/rdma/ib_user_ioctl_cmds.h` of rdma-core v26.0
    /// and v27.0, its contemporaries.
    pub(crate) fn linux_5_4() -> Self {
        let absent_attributes = [(id::cq::OBJECT, id::cq::create::METHOD, id::cq::create::EVENT_FD)].into();
        Self { absent_attributes, ..Self::default() }.without(&[
            (id::device::OBJECT, id::device::get_context::METHOD),
            (id::device::OBJECT, id::device::query_context::METHOD),
            (id::device::OBJECT, id::device::query_gid_table::METHOD),
            (id::device::OBJECT, id::device::query_gid_entry::METHOD),
            (id::device::OBJECT, id::device::query_port_speed::METHOD),
            (id::dmabuf::OBJECT, id::dmabuf::alloc::METHOD),
            (id::async_event::OBJECT, id::async_event::alloc::METHOD),
            (id::qp::OBJECT, id::qp::create::METHOD),
            (id::qp::OBJECT, id::qp::destroy::METHOD),
            (id::srq::OBJECT, id::srq::create::METHOD),
            (id::srq::OBJECT, id::srq::destroy::METHOD),
            (id::wq::OBJECT, id::wq::create::METHOD),
            (id::wq::OBJECT, id::wq::destroy::METHOD),
            (id::mr::OBJECT, id::mr::query::METHOD),
            (id::mr::OBJECT, id::mr::reg_dmabuf::METHOD),
            (id::mr::OBJECT, id::mr::reg::METHOD),
        ])
    }
}

/// The door.
#[derive(Debug)]
pub(crate) struct Door {
    script: Script,
    asked: Mutex<Vec<String>>,
    /// Other ends of the descriptors that were handed out.
    ends: Mutex<Vec<UnixStream>>,
    driver_bytes: Mutex<Vec<Vec<u8>>>,
}

impl Door {
    pub(crate) fn new(script: Script) -> Arc<Self> {
        Arc::new(Self {
            script,
            asked: Mutex::default(),
            ends: Mutex::default(),
            driver_bytes: Mutex::default(),
        })
    }

    /// A context over a new door, and the door.
    pub(crate) fn open(script: Script) -> (Arc<Self>, Context) {
        let door = Self::new(script);
        let channel: Arc<dyn Channel> = Arc::<Self>::clone(&door);
        // SAFETY: no device is behind it.
        let context = unsafe { Context::open(channel, 1, Driver::none()) }.expect("context");
        (door, context)
    }

    /// What was asked since last time.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("lock"))
    }

    /// The driver bytes that came since last time.
    pub(crate) fn driver_bytes(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.driver_bytes.lock().expect("lock"))
    }

    fn note(&self, what: String) {
        self.asked.lock().expect("lock").push(what);
    }

    fn descriptor(&self) -> OwnedFd {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        self.ends.lock().expect("lock").push(ours);
        theirs.into()
    }
}

impl Channel for Door {
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
        self.note(call.operation().to_string());
        let method = (call.object, call.method);
        if self.script.no_ioctl {
            return Err(Errno::ENOTTY);
        }
        if method == (id::device::OBJECT, id::device::invoke_write::METHOD) {
            assert_eq!(call.attributes().len(), 1, "the probe says which command and nothing else");
            return Err(if self.script.no_invoke_write { Errno::EPROTONOSUPPORT } else { Errno::ENOSPC });
        }
        if self.script.absent.contains(&method) {
            return Err(Errno::EPROTONOSUPPORT);
        }
        if let Some(errno) = self.script.failing.get(&method) {
            return Err(*errno);
        }
        let unknown = |id| self.script.absent_attributes.contains(&(call.object, call.method, id));
        if call.attributes().iter().any(|attribute| attribute.mandatory && unknown(attribute.id)) {
            return Err(Errno::EPROTONOSUPPORT);
        }
        assert_eq!(call.driver, 1, "the kernel refuses another driver's number");
        let driver_in = call.input(0x1000).map(<[u8]>::to_vec);
        for (index, attribute) in call.attributes_mut().iter_mut().enumerate() {
            let number = NATIVE + u32::from(attribute.id);
            match &mut attribute.value {
                Value::NewHandle(handle) => *handle = Some(number),
                Value::NewFd(fd) => *fd = Some(self.descriptor()),
                Value::Out(output) if attribute.id == 0x1001 => output.write(&[DRIVER_BYTE; 256]),
                Value::Out(output) if output.room() == 8 && attribute.id == 3 => {
                    output.write(&1u64.to_ne_bytes())
                }
                Value::Out(output) => {
                    let words = (0..200u32).flat_map(|word| (number + word).to_ne_bytes());
                    output.write(&words.collect::<Vec<_>>());
                }
                _ => assert!(index < 20, "more attributes than any method has"),
            }
        }
        self.driver_bytes.lock().expect("lock").extend(driver_in);
        Ok(())
    }

    unsafe fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno> {
        self.note(format!("{} {route:?}", command.operation()));
        match route {
            Route::Tunnelled if self.script.no_ioctl => return Err(Errno::ENOTTY),
            Route::Tunnelled if self.script.no_invoke_write => return Err(Errno::EPROTONOSUPPORT),
            _ => {}
        }
        if let Some(errno) = self.script.failing_writes.get(&command.command) {
            return Err(*errno);
        }
        if command.core_out.room() > 0 {
            let words = (0..200u32).flat_map(|word| (WRITTEN + word).to_ne_bytes());
            let mut words = words.collect::<Vec<_>>();
            if matches!(command.command, write::QUERY_DEVICE | write::EX_QUERY_DEVICE) {
                words[std::mem::offset_of!(QueryDeviceResp, phys_port_cnt)] = 1;
            }
            command.core_out.write(&words);
        }
        if command.driver_out.room() > 0 {
            command.driver_out.write(&[DRIVER_BYTE; 256]);
        }
        if !command.driver_in.is_empty() {
            self.driver_bytes.lock().expect("lock").push(command.driver_in.to_vec());
        }
        if write::answers_with_descriptor(command.command) {
            command.fd = Some(self.descriptor());
        }
        Ok(())
    }

    fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        self.note(Operation::Map { offset }.to_string());
        let zone = Region::anonymous("door", bytes).map_err(|_| Errno::ENOMEM)?.into_zone();
        Ok(Page::of_zone(Arc::new(zone), 0, bytes, protection))
    }

    fn describe(&self) -> String {
        "a scripted door".into()
    }
}
