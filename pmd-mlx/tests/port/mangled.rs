//! The driver at a door that answers almost right: no answer makes it panic, and no buffer stays behind.
#![expect(unsafe_code, reason = "the calls of a channel are raw")]

use std::sync::{Arc, Mutex, PoisonError};

use pollux_eal::memory::Memory;
use pollux_mlx5_abi::caps::{self, QueryHcaCapIn, QueryHcaCapOut, general::GeneralCaps, kind};
use pollux_mlx5_abi::command::{header, opcode, status};
use pollux_mlx5_abi::kernel::attribute::devx_other;
use pollux_mlx5_abi::kernel::{method, object};
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::{Device, Opening};
use pollux_mlx5_common::uar::Uars;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::wire::Cable;
use pollux_mlx5_model::{Model, watch};
use pollux_pmd_mlx::Arguments;
use pollux_pmd_mlx::eth::backend::{Backend, FlowAction, FlowRule};
use pollux_pmd_mlx::eth::devx::Devx;
use pollux_port::{PortConfig, PortError};
use pollux_uverbs::abi::flow::Ipv4Filter;
use pollux_uverbs::flow::FlowSpec;
use pollux_uverbs::{Call, Channel, Errno, Output, Page, Protection, Route, Value, WriteCall};

use crate::fault::{Chance, behind, seeds};
use crate::harness::{A, B, Pair, burst, frame, pool, received};

/// Changes a byte of an answer now and then. Handles stay right: whoever destroys the wrong object has no memory to rely on.
#[derive(Debug)]
struct Mangled {
    inner: Arc<dyn Channel>,
    chance: Mutex<Chance>,
    one_in: u64,
}

impl Mangled {
    fn mangle(&self, output: &mut Output<'_>) {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(written) = output.written().map(<[u8]>::len).filter(|written| *written > 0) else { return };
        if !chance.one_in(self.one_in) {
            return;
        }
        match chance.below(4) {
            0 => output.set_written(chance.below(written as u64) as usize),
            what => {
                let at = chance.below(written as u64) as usize;
                output.room_mut()[at] = [0, 0xff, chance.below(256) as u8][what as usize - 1];
            }
        }
    }
}

impl Channel for Mangled {
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
        // SAFETY: the same, by the caller.
        let done = unsafe { self.inner.call(call) };
        for attribute in call.attributes_mut() {
            if let Value::Out(output) = &mut attribute.value {
                self.mangle(output);
            }
        }
        done
    }

    unsafe fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno> {
        // SAFETY: the same, by the caller.
        let done = unsafe { self.inner.write(command, route) };
        self.mangle(&mut command.driver_out);
        done
    }

    fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        self.inner.map(offset, bytes, protection)
    }

    fn describe(&self) -> String {
        "a door that mumbles".into()
    }
}

/// Opens a port at such a door and moves frames; how many came.
fn life(model: &Model, channel: Arc<dyn Channel>, arguments: Arguments) -> Result<usize, PortError> {
    let pool = pool("mangled", 511);
    let mut came = 0;
    let done = behind(model, channel, arguments).and_then(|mut port| {
        let mut config = PortConfig::queues(1, 1, &pool);
        (config.rx_queues[0].descriptors, config.tx_queues[0].descriptors) = (64, 64);
        let mut queues = port.bring_up(config)?;
        for number in 0..20 {
            queues.tx[0].tx_burst(&mut burst(&pool, &[frame(B, A, number, 200)]));
            (0..4).for_each(|_| {
                model.step();
            });
            came += received(&mut queues, 0).len();
            port.poll_event();
            let told = (port.stats(), port.xstats());
            drop(told);
        }
        port.stop()?;
        drop(queues);
        port.close()
    });
    assert_eq!(pool.in_use(), 0, "mbufs that did not come home");
    done.map(|()| came)
}

#[test]
fn no_answer_of_the_kernel_makes_the_driver_panic() {
    let (mut refused, mut worked) = (0, 0);
    for seed in seeds(250) {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let arguments = chance.arguments();
        println!("seed {seed}: {arguments:?}");
        let (near, _far) = Cable::pair();
        let model = Model::builder("mlx5_model0")
            .stepped()
            .strict(false)
            .plugged(near)
            .mac(A)
            .build()
            .expect("a model");
        let _watched = watch(model.device(), |_| {});
        let one_in = [5, 20, 60, 200][chance.below(4) as usize];
        let channel = Mangled { inner: model.open(), chance: Mutex::new(chance), one_in };
        match life(&model, Arc::new(channel), arguments) {
            Ok(_) => worked += 1,
            Err(error) => {
                refused += 1;
                let line = error.to_string();
                assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
            }
        }
    }
    println!("{refused} were refused, {worked} worked");
    assert!(refused > 20 && worked > 20 || std::env::var_os("POLLUX_SEED").is_some(), "{refused} {worked}");
}

/// A door whose answers to QUERY_HCA_CAP of one kind are changed.
struct Spoilt {
    inner: Arc<dyn Channel>,
    kind: u16,
    spoil: fn(&mut Output<'_>),
}

impl std::fmt::Debug for Spoilt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spoilt").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Channel for Spoilt {
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
        // SAFETY: the same, by the caller.
        unsafe { self.inner.call(call) }?;
        if (call.object, call.method) != (object::DEVX, method::devx::OTHER) {
            return Ok(());
        }
        let head = call.input(devx_other::CMD_IN).and_then(header).expect("a command");
        if (head.opcode, head.op_mod) == (opcode::QUERY_HCA_CAP, caps::op_mod(self.kind, caps::NOW)) {
            let output = call.output(devx_other::CMD_OUT).expect("room for the answer");
            (self.spoil)(output);
        }
        Ok(())
    }

    unsafe fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno> {
        // SAFETY: the same, by the caller.
        unsafe { self.inner.write(command, route) }
    }

    fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        self.inner.map(offset, bytes, protection)
    }

    fn describe(&self) -> String {
        "mlx5_9".into()
    }
}

/// Firmware that fails at the question.
fn fails(output: &mut Output<'_>) {
    pollux_mlx5_abi::command::answer(output.room_mut(), status::INT_ERR, 0xbad);
}

/// Firmware whose answer has another length.
fn ends_early(output: &mut Output<'_>) {
    output.set_written(64);
}

/// A card with queues that are stamped in a way that nobody knows yet.
fn stamps_otherwise(output: &mut Output<'_>) {
    let answer: &mut [u8; QueryHcaCapOut::BYTES] = output.room_mut().try_into().expect("the whole answer");
    let block = QueryHcaCapOut::CAPABILITY.of_mut(answer);
    GeneralCaps::RQ_TS_FORMAT.set(block.first_chunk_mut().expect("the general part"), 3);
}

/// What making the firmware's objects says where one of its questions is answered so, and a rule then.
fn said(kind: u16, spoil: fn(&mut Output<'_>)) -> Result<(), MlxError> {
    let pair = Pair::new(DoorProfile::default());
    let channel = Spoilt { inner: pair.a.kernel.open(), kind, spoil };
    let opening = Opening {
        devx: true,
        relaxed_ordering: false,
        memlock: None,
        address_shift_pages: 0,
        register_regions: false,
        memory: Memory::ordinary(),
        socket: None,
    };
    let done = {
        // SAFETY: no memory is told to it, and no handle of another.
        let device = unsafe { Device::open(Arc::new(channel), opening) }.expect("a device");
        Devx::new(&Arc::new(Uars::new(&device))).and_then(|devx| {
            let any = Ipv4Filter::default();
            let items = [FlowSpec::Ipv4 { value: any, mask: any, inner: false }];
            let rule =
                FlowRule { items: &items, priority: 0, action: FlowAction::Drop, tag: None, counter: None };
            devx.create_flow(&rule).map(drop)
        })
    };
    assert_eq!(pair.a.kernel.abandoned(), 0, "{kind:#x}");
    done
}

#[test]
fn a_question_that_is_not_answered_is_not_taken_for_no() {
    assert!(said(kind::GENERAL, |_| ()).is_ok());
    let refused = "cannot query the device: QUERY_HCA_CAP: INT_ERR (0x1), syndrome 0xbad: the firmware failed; \
                   reset the function, and update the firmware if it happens again";
    let short =
        "mlx5_9: QUERY_HCA_CAP: an answer of 64 bytes, 4112 are needed; update the kernel or the firmware";
    for asked in [kind::GENERAL, kind::ETHERNET_OFFLOADS, kind::FLOW_TABLE] {
        for (spoil, expected) in [(fails as fn(&mut Output<'_>), refused), (ends_early, short)] {
            let error = said(asked, spoil).expect_err(expected);
            assert_eq!(error.to_string(), expected, "{asked:#x}");
        }
    }
    assert_eq!(
        said(kind::GENERAL, stamps_otherwise).expect_err("an unknown layout").to_string(),
        "mlx5_9: QUERY_HCA_CAP: rq_ts_format is 3, one of [0, 1, 2] expected; update this driver, which knows no other"
    );
    const { assert!(QueryHcaCapIn::BYTES == 16 && QueryHcaCapOut::BYTES == 4112) };
}
