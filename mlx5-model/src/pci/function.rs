//! The function: registers that a driver reads and writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use pollux_mlx5_abi::command;
use pollux_mlx5_abi::command::queue::init_segment as segment;
use pollux_mlx5_abi::doorbell::uar::PAGE_BYTES;
use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_kernel::CommandQueue;

use super::command_ring::{self, LOG_ENTRIES, LOG_STRIDE, NotFetched};
use super::config_space::ConfigSpace;
use super::write_combining::WriteCombining;
use crate::device::Device;
use crate::device::lent::{BYTES as LENT_BYTES, OFFSET as LENT_OFFSET};
use crate::device::uar::FIRST_UAR;

/// Bytes of BAR 0: the initialization segment, behind it the UARs, and then memory that the device lends.
pub(super) const BAR_BYTES: u64 = 32 << 20;
const _: () = assert!(LENT_OFFSET + LENT_BYTES <= BAR_BYTES);

/// Version of the command interface that drivers ask for. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`,
/// `CMD_IF_REV`.
const COMMAND_INTERFACE: u32 = 5;
/// In the register where the command queue's address is written, the interface's state: bits 10 to 8. Source: Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/health.c`, `mlx5_get_nic_state`, and `include/linux/mlx5/driver.h`,
/// `MLX5_NIC_IFC_*`.
mod interface {
    pub(super) const SHIFT: u32 = 8;
    pub(super) const MASK: u32 = 7;
    /// A driver has it.
    pub(super) const FULL: u32 = 0;
    /// Nobody has it: after a reset, until a driver says where its queue is.
    pub(super) const DISABLED: u32 = 1;
    /// Written: the firmware shall start anew.
    pub(super) const RESET: u32 = 7;
}
/// In `INITIALIZING`: the firmware can be started anew. Source: Linux `include/linux/mlx5/device.h`,
/// `MLX5_FW_RESET_SUPPORTED_OFFSET`.
const RESET_SUPPORTED: u32 = 1 << 30;
/// In the byte at `HEALTH_SEVERITY`: a reset is asked for; the severity, that of a critical condition, is valid. Source: Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/health.c`, `MLX5_RFR_BIT_OFFSET`, `MLX5_SEVERITY_VALID_MASK`.
const ASKS_FOR_RESET: u32 = 0x80 | 0x08 | 2;
/// How often the health counter moves.
const HEARTBEAT: Duration = Duration::from_millis(10);

/// The register that holds the health syndrome: its second byte.
const SYNDROME_WORD: usize = segment::HEALTH_SYNDROME & !3;
const _: () = assert!(segment::HEALTH_SYNDROME % 4 == 1);

/// The firmware's health, which others may change: what the driver's poll of the health buffer finds.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<AtomicU8>);

impl Health {
    /// The firmware failed with this syndrome: it answers no command and asks for a reset. 0: it is well. Syndromes: Linux
    /// `drivers/net/ethernet/mellanox/mlx5/core/health.c`, `MLX5_HEALTH_SYNDR_*`.
    pub fn fail(&self, syndrome: u8) {
        self.0.store(syndrome, Ordering::Release);
    }

    /// What it failed with.
    #[must_use]
    pub fn syndrome(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }
}

/// A function on a bus.
#[derive(Debug)]
pub struct Function {
    device: Arc<Device>,
    config: ConfigSpace,
    combining: Arc<WriteCombining>,
    health: Health,
    interface: u32,
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
        let combining = Arc::new(WriteCombining::new(device.clock_source().clone(), device.buffer_bytes()));
        Self {
            device,
            config,
            firmware,
            combining,
            health: Health::default(),
            interface: interface::DISABLED,
            queue_high: 0,
            queue: 0,
            commands: 0,
        }
    }

    /// The same, whose firmware others can have fail.
    #[must_use]
    pub fn with_health(self, health: Health) -> Self {
        Self { health, ..self }
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
        self.health.fail(0);
        self.interface = interface::DISABLED;
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
        // Any bytes of them: the health buffer has registers of one and two.
        let mut rest = into;
        let mut at = offset;
        while !rest.is_empty() {
            let (register, skip) = (at & !3, (at & 3) as usize);
            let value = usize::try_from(register).map_or(0, |register| self.register(register)).to_be_bytes();
            let (part, after) = rest.split_at_mut(rest.len().min(4 - skip));
            part.copy_from_slice(&value[skip..skip + part.len()]);
            rest = after;
            // Past the end of all addresses nothing is.
            at = register.wrapping_add(4);
        }
    }

    fn register(&self, offset: usize) -> u32 {
        let now = self.device.clock_source().now();
        let ticks = now.as_nanos() as u64;
        match offset {
            segment::FW_REV => u32::from(self.firmware.1) << 16 | u32::from(self.firmware.0),
            segment::CMDIF_REV_FW_SUB => COMMAND_INTERFACE << 16 | u32::from(self.firmware.2),
            segment::CMDQ_ADDR_H => self.queue_high,
            segment::CMDQ_ADDR_L_SZ => self.interface << interface::SHIFT | LOG_ENTRIES << 4 | LOG_STRIDE,
            segment::INITIALIZING => RESET_SUPPORTED,
            segment::HEALTH_SEVERITY if self.health.syndrome() != 0 => ASKS_FOR_RESET << 24,
            SYNDROME_WORD => u32::from(self.health.syndrome()) << 16,
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
                match value >> interface::SHIFT & interface::MASK {
                    interface::RESET => {
                        tracing::info!(target: "model.pci", "the firmware starts anew");
                        self.reset();
                        return false;
                    }
                    state => self.interface = state,
                }
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
        // Firmware that failed answers nobody.
        if self.queue == 0 || self.interface != interface::FULL || self.health.syndrome() != 0 {
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
            "{} (op_mod {:#x}, uid {}) -> {}",
            command::describe_input(input),
            head.op_mod,
            head.uid,
            command::describe_output(head.opcode, output),
        ),
        Err(refused) => tracing::info!(
            target: "model.pci",
            "{} (op_mod {:#x}): {refused}", command::describe_input(input), head.op_mod
        ),
    }
}
