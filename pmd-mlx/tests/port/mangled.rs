//! The driver at a door that answers almost right: no answer makes it panic, and no buffer stays behind.
#![expect(unsafe_code, reason = "the calls of a channel are raw")]

use std::sync::{Arc, Mutex, PoisonError};

use pollux_mlx5_model::wire::Cable;
use pollux_mlx5_model::{Model, watch};
use pollux_pmd_mlx::Arguments;
use pollux_port::{PortConfig, PortError};
use pollux_uverbs::{Call, Channel, Errno, Output, Page, Protection, Route, Value, WriteCall};

use crate::fault::{Chance, behind, seeds};
use crate::harness::{A, B, burst, frame, pool, received};

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
