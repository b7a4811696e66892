//! Configuration space: what a PCI bus sees of the function.
//!
//! Source of the layout: PCI Express base specification, as Linux `include/uapi/linux/pci_regs.h` names it.

/// Bytes of it.
pub(super) const BYTES: usize = 4096;

/// Capabilities, by offset: power management, PCI Express, MSI-X, the vendor's own.
const POWER: usize = 0x40;
const EXPRESS: usize = 0x60;
const MSIX: usize = 0x9c;
const VENDOR: usize = 0xc0;

/// The vendor's own: a gateway to address spaces of the card, of which the model has none; its semaphore works. Source: Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/lib/pci_vsc.c`.
mod vendor {
    pub(super) const COUNTER: usize = super::VENDOR + 0x08;
    pub(super) const SEMAPHORE: usize = super::VENDOR + 0x0c;
    pub(super) const BYTES: u32 = 0x18;
}

/// Offsets in BAR 0 of the table of interrupt vectors and of their pending bits, where real cards have them.
const MSIX_TABLE: u32 = 0x2000;
const MSIX_PENDING: u32 = 0x3000;

/// What can be written: offset, mask of a dword.
const WRITABLE: &[(usize, u32)] = &[
    // Command: memory, bus master, parity, SERR, interrupt off.
    (0x04, 0x0000_0547),
    // Cache line, latency timer.
    (0x0c, 0x0000_ffff),
    // Interrupt line.
    (0x3c, 0x0000_00ff),
    // Power state; PME enable.
    (POWER + 4, 0x0000_0103),
    // Device control.
    (EXPRESS + 8, 0x0000_7fff),
    // Link control.
    (EXPRESS + 0x10, 0x0000_0fff),
    // Device control 2, link control 2.
    (EXPRESS + 0x28, 0x0000_ffff),
    (EXPRESS + 0x30, 0x0000_ffff),
    // MSI-X: enable, mask all.
    (MSIX, 0xc000_0000),
    // The vendor's: which space; the address.
    (VENDOR + 0x04, 0x0000_ffff),
    (VENDOR + 0x10, 0x3fff_ffff),
];

/// The function's configuration space.
#[derive(Clone, Debug)]
pub(super) struct ConfigSpace {
    bytes: Vec<u8>,
}

impl ConfigSpace {
    /// A card with this device number and so many interrupt vectors.
    pub(super) fn new(device: u16, vectors: u32) -> Self {
        let mut space = Self { bytes: vec![0; BYTES] };
        for (at, value) in [
            (0x00, u32::from(device) << 16 | 0x15b3),
            // Status: there is a list of capabilities.
            (0x04, 0x0010_0000),
            // Ethernet controller.
            (0x08, 0x0200_0000),
            // BAR 0: 64 bits, prefetchable.
            (0x10, 0x0000_000c),
            (0x2c, 0x0016_15b3),
            (0x34, EXPRESS as u32),
            // Version 2, an endpoint; MSI-X is next.
            (EXPRESS, 0x0002_0010 | (MSIX as u32) << 8),
            // Payloads of up to 512 bytes, role-based error reporting, function-level reset.
            (EXPRESS + 0x04, 0x1000_8fe2),
            (EXPRESS + 0x08, 0x0000_2810),
            // 16 lanes at 16 GT/s: what the link can do, and does.
            (EXPRESS + 0x0c, 0x0000_0104),
            (EXPRESS + 0x10, 0x1104_0000),
            (EXPRESS + 0x2c, 0x0000_001e),
            (EXPRESS + 0x30, 0x0000_0004),
            (MSIX, 0x0000_0011 | (POWER as u32) << 8 | (vectors.clamp(1, 2048) - 1) << 16),
            (MSIX + 4, MSIX_TABLE),
            (MSIX + 8, MSIX_PENDING),
            // Version 3; the vendor's own is next.
            (POWER, 0x0003_0001 | (VENDOR as u32) << 8),
            // The last.
            (VENDOR, 0x0000_0009 | vendor::BYTES << 16),
            (vendor::COUNTER, 1),
        ] {
            space.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        space
    }

    /// Reads; what is not there is zero.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            let at = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(index));
            *byte = at.and_then(|at| self.bytes.get(at)).copied().unwrap_or(0);
        }
    }

    /// Writes what can be written; the rest stays. True when a reset of the function was asked for.
    pub(super) fn write(&mut self, offset: u64, from: &[u8]) -> bool {
        let mut reset = false;
        if let (Ok(vendor::SEMAPHORE), Some(value)) = (usize::try_from(offset), from.first_chunk::<4>()) {
            self.semaphore(*value);
            return false;
        }
        for (index, &byte) in from.iter().enumerate() {
            let Some(at) = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(index)) else {
                return reset;
            };
            let Some(place) = self.bytes.get_mut(at) else { return reset };
            let mask = WRITABLE
                .iter()
                .find(|(start, _)| (*start..start + 4).contains(&at))
                .map_or(0, |(start, mask)| mask.to_le_bytes()[at - start]);
            *place = *place & !mask | byte & mask;
            // Bit 15 of device control; it reads as zero.
            reset |= at == EXPRESS + 9 && byte & 0x80 != 0;
        }
        reset
    }

    /// Who writes the counter to the semaphore while it is free has it; zero frees it.
    fn semaphore(&mut self, value: [u8; 4]) {
        let counter = vendor::COUNTER..vendor::COUNTER + 4;
        let place = vendor::SEMAPHORE..vendor::SEMAPHORE + 4;
        let free = self.bytes[place.clone()] == [0; 4];
        if value == [0; 4] {
            self.bytes[place].fill(0);
        } else if free && self.bytes[counter.clone()] == value {
            self.bytes[place].copy_from_slice(&value);
            let next = u32::from_le_bytes(value).wrapping_add(1).max(1);
            self.bytes[counter].copy_from_slice(&next.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dword(space: &ConfigSpace, at: u64) -> u32 {
        let mut bytes = [0; 4];
        space.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn the_capabilities_form_a_list() {
        let space = ConfigSpace::new(0x101d, 32);
        assert_eq!(dword(&space, 0), 0x101d_15b3);
        let mut at = u64::from(dword(&space, 0x34) & 0xff);
        let mut found = Vec::new();
        while at != 0 {
            let head = dword(&space, at);
            found.push(head & 0xff);
            at = u64::from(head >> 8 & 0xff);
        }
        assert_eq!(found, [0x10, 0x11, 0x01, 0x09]);
        assert_eq!(dword(&space, MSIX as u64) >> 16 & 0x7ff, 31);
    }

    #[test]
    fn only_what_is_writable_changes() {
        let mut space = ConfigSpace::new(0x101d, 32);
        let before = space.clone();
        for at in 0..BYTES as u64 {
            space.write(at, &[0xff]);
        }
        for at in (0..BYTES).step_by(4) {
            let mask = WRITABLE.iter().find(|(start, _)| *start == at).map_or(0, |(_, mask)| *mask);
            let (old, new) = (dword(&before, at as u64), dword(&space, at as u64));
            assert_eq!(new & !mask, old & !mask, "{at:#x}");
            assert_eq!(new & mask, mask, "{at:#x}");
        }
        space.write(u64::MAX, &[1, 2, 3]);
        let mut far = [7; 8];
        space.read(u64::MAX - 3, &mut far);
        assert_eq!(far, [0; 8]);
    }

    #[test]
    fn the_vendors_semaphore_has_one_owner() {
        let mut space = ConfigSpace::new(0x101d, 32);
        let at = vendor::SEMAPHORE as u64;
        let counter = dword(&space, vendor::COUNTER as u64);
        space.write(at, &(counter + 5).to_le_bytes());
        assert_eq!(dword(&space, at), 0, "not the counter");
        space.write(at, &counter.to_le_bytes());
        assert_eq!(dword(&space, at), counter);
        let next = dword(&space, vendor::COUNTER as u64);
        assert_ne!(next, counter);
        space.write(at, &next.to_le_bytes());
        assert_eq!(dword(&space, at), counter, "it is taken");
        space.write(at, &[0; 4]);
        assert_eq!(dword(&space, at), 0);
        // No space is there: its status stays zero.
        space.write(VENDOR as u64 + 4, &7_u32.to_le_bytes());
        assert_eq!(dword(&space, VENDOR as u64 + 4) >> 29, 0);
    }

    #[test]
    fn a_reset_is_asked_for_in_device_control() {
        let mut space = ConfigSpace::new(0x101d, 32);
        assert!(!space.write(EXPRESS as u64 + 8, &[0x10, 0x28]));
        assert!(space.write(EXPRESS as u64 + 8, &[0x10, 0xa8]));
        assert_eq!(dword(&space, EXPRESS as u64 + 8) & 0x8000, 0);
    }
}
