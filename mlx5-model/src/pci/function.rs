//! The function: registers that a driver reads and writes.

use std::sync::Arc;
use std::time::Duration;

use pollux_mlx5_abi::command::queue::init_segment as segment;
use pollux_mlx5_abi::command::{self, opcode};
use pollux_mlx5_abi::doorbell::uar::PAGE_BYTES;
use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_kernel::CommandQueue;

use super::command_ring::{self, LOG_ENTRIES, LOG_STRIDE, NotFetched};
use super::config_space::ConfigSpace;
use super::write_combining::WriteCombining;
use crate::device::Device;
use crate::firmware::{FIRST_UAR, LENT_BYTES, LENT_OFFSET};

/// Bytes of BAR 0: the initialization segment, behind it the UARs, and then memory that the device lends.
pub(super) const BAR_BYTES: u64 = 32 << 20;
const _: () = assert!(LENT_OFFSET + LENT_BYTES <= BAR_BYTES);

/// Version of the command interface that drivers ask for. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`,
/// `CMD_IF_REV`.
const COMMAND_INTERFACE: u32 = 5;
/// How often the health counter moves.
const HEARTBEAT: Duration = Duration::from_millis(10);

/// A function on a bus.
#[derive(Debug)]
pub struct Function {
    device: Arc<Device>,
    config: ConfigSpace,
    combining: Arc<WriteCombining>,
    /// Major, minor, sub-minor.
    firmware: (u16, u16, u16),
    queue_high: u32,
    queue: u64,
    commands: u64,
}

impl Function {
    /// The function of a device whose memory is a guest's.
    #[must_use]
    pub fn new(device: Arc<Device>, pci_device: u16) -> Self {
        let config = ConfigSpace::new(pci_device, device.vectors());
        let firmware = device.identity().firmware;
        Self { device, config, firmware, combining: Arc::default(), queue_high: 0, queue: 0, commands: 0 }
    }

    /// The device behind it.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its stores to BlueFlame buffers that wait for more.
    pub(super) fn combining(&self) -> &Arc<WriteCombining> {
        &self.combining
    }

    /// Commands that were executed since the last reset.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands
    }

    /// Reads configuration space.
    pub fn config_read(&self, offset: u64, into: &mut [u8]) {
        self.config.read(offset, into);
    }

    /// Writes configuration space.
    pub fn config_write(&mut self, offset: u64, from: &[u8]) {
        if self.config.write(offset, from) {
            self.reset();
        }
    }

    /// Function-level reset: everything that commands made is gone.
    pub fn reset(&mut self) {
        self.device.reset();
        self.combining.reset();
        (self.queue_high, self.queue, self.commands) = (0, 0, 0);
    }

    /// Reads BAR 0. Registers are 4 bytes, big-endian; what is none reads as zero, a function that was taken away as ones.
    pub fn bar_read(&self, offset: u64, into: &mut [u8]) {
        if self.device.is_gone() {
            into.fill(0xff);
            return;
        }
        if self.device.lent_read(offset, into) {
            return;
        }
        for (index, part) in into.chunks_mut(4).enumerate() {
            let register = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(index * 4));
            let value = register.map_or(0, |register| self.register(register)).to_be_bytes();
            part.copy_from_slice(&value[..part.len()]);
        }
    }

    fn register(&self, offset: usize) -> u32 {
        let now = self.device.clock_source().now();
        let ticks = now.as_nanos() as u64;
        match offset {
            segment::FW_REV => u32::from(self.firmware.1) << 16 | u32::from(self.firmware.0),
            segment::CMDIF_REV_FW_SUB => COMMAND_INTERFACE << 16 | u32::from(self.firmware.2),
            segment::CMDQ_ADDR_H => self.queue_high,
            segment::CMDQ_ADDR_L_SZ => LOG_ENTRIES << 4 | LOG_STRIDE,
            segment::INTERNAL_TIMER_H => (ticks >> 32) as u32,
            segment::INTERNAL_TIMER_L => ticks as u32,
            segment::HEALTH_COUNTER => (now.as_millis() / HEARTBEAT.as_millis()) as u32 & 0x00ff_ffff,
            segment::REAL_TIME_H => now.as_secs() as u32,
            segment::REAL_TIME_L => now.subsec_nanos(),
            _ => 0,
        }
    }

    /// Writes BAR 0. True when the device may have work now.
    pub fn bar_write(&mut self, offset: u64, from: &[u8]) -> bool {
        if self.device.is_gone() || self.device.lent_write(offset, from) {
            return false;
        }
        let Ok(offset) = usize::try_from(offset) else { return false };
        let page = offset / PAGE_BYTES;
        if page >= FIRST_UAR as usize {
            tracing::trace!(target: "model.pci", page, offset = offset % PAGE_BYTES, ?from, "doorbell");
            let stores = self.combining.store(page as u32, offset % PAGE_BYTES, from);
            for (page, offset, bytes) in &stores {
                self.device.doorbell_store(*page, *offset, bytes);
            }
            return !stores.is_empty();
        }
        for (page, offset, bytes) in self.combining.waited(true) {
            self.device.doorbell_store(page, offset, &bytes);
        }
        let Some(value) = from.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)) else {
            return false;
        };
        match offset {
            segment::CMDQ_ADDR_H => self.queue_high = value,
            segment::CMDQ_ADDR_L_SZ => {
                // The low bits, where size and stride are read, are no part of the address: it is a page's.
                self.queue = u64::from(self.queue_high) << 32 | u64::from(value & !0xfff);
            }
            segment::CMD_DBELL => {
                self.execute(value);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Executes the commands whose bits are set.
    fn execute(&mut self, bits: u32) {
        if self.queue == 0 {
            return;
        }
        for index in (0..1_u32 << LOG_ENTRIES).filter(|index| bits >> index & 1 == 1) {
            let fetched = self.device.with_host(|host| command_ring::fetch(host, self.queue, index));
            let mut fetched = match fetched {
                Ok(fetched) => fetched,
                Err(NotFetched::Nothing) => continue,
                Err(NotFetched::Undelivered(why)) => {
                    tracing::debug!(target: "model.pci", index, why, "command not delivered");
                    self.device.raise(event::CMD, &(1_u32 << index).to_be_bytes());
                    continue;
                }
            };
            self.commands += 1;
            // The command that makes the queue for command events is itself polled for: an event for it would find the
            // driver unprepared.
            let told = self.device.takes(event::CMD);
            if self.device.execute(&fetched.input, &mut fetched.output).is_err() {
                return;
            }
            log(&fetched.input, &fetched.output);
            if self.device.with_host(|host| command_ring::answer(host, &fetched)).is_err() {
                tracing::warn!(target: "model.pci", index, "the command's entry went away");
            }
            if told {
                self.device.raise(event::CMD, &(1_u32 << index).to_be_bytes());
            }
        }
    }
}

/// Bytes as hexadecimal words.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for word in self.0.chunks(4) {
            word.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
            f.write_str(" ")?;
        }
        Ok(())
    }
}

fn log(input: &[u8], output: &[u8]) {
    tracing::trace!(target: "model.pci", input = %Hex(input), output = %Hex(output), "bytes");
    let Some(head) = command::header(input) else { return };
    match command::outcome(output) {
        Ok(()) => tracing::debug!(
            target: "model.pci",
            "{}", opcode::name(head.opcode).unwrap_or("unknown command")
        ),
        Err(refused) => tracing::info!(
            target: "model.pci",
            "{} (op_mod {:#x}): {refused}", command::describe_input(input), head.op_mod
        ),
    }
}
