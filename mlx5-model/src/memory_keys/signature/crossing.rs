//! Data on its way between memory and the wire, by a key's [`Plan`].
//!
//! Sending reads memory alone, so that a packet that goes out again is the same. Receiving writes data as it comes, and looks at a block
//! in memory when the last of it is there; only signatures of the wire, which memory need not have, are kept until they are whole.

use std::cell::Cell;

use pollux_mlx5_abi::cqe::signature_domain;

use super::guard::Bytes;
use super::plan::{Domain, Place, Plan, copy, place, raw_before, signed};
use super::{Found, Part, Signing};
use crate::device::bus::Bus;
use crate::memory_keys::copy::{reader, writer};
use crate::memory_keys::{Access, Key, KeyError, Keys, Who};

/// Bytes of a block at most: of those that [`block::bytes`](pollux_mlx5_abi::wqe::signature::block::bytes) knows.
const BLOCK_MAX: usize = 4160;

/// An access to a key's memory, and what its signatures are.
pub(in crate::memory_keys) struct Signed<'a, 'b> {
    bus: &'a Bus<'b>,
    keys: &'a Keys,
    who: Who,
    name: u32,
    key: &'a Key,
    signing: &'a Signing,
    plan: &'a Plan,
    /// Where on the wire it begins, counted from the key's start.
    from: u64,
    writes: bool,
    /// The piece that was reached last, and how many bytes stand before it: an access goes over its blocks more than once, and would
    /// pass all the pieces in front of them each time.
    hint: Cell<(usize, u64)>,
}

fn plan_of(key: &Key) -> Result<(&Signing, &Plan), KeyError> {
    let signing = key.signing.as_deref().ok_or(KeyError::Signature)?;
    Ok((signing, signing.plan.as_ref().ok_or(KeyError::Signature)?))
}

/// The bytes of memory that an access takes, counted from the key's start: an access to `bytes` bytes of the wire at `at`.
pub(in crate::memory_keys) fn span(key: &Key, at: u64, bytes: u64) -> Result<(u64, u64), KeyError> {
    let (_, plan) = plan_of(key)?;
    span_by(plan, key, at, bytes)
}

fn span_by(plan: &Plan, key: &Key, at: u64, bytes: u64) -> Result<(u64, u64), KeyError> {
    let from = at.checked_sub(key.start).ok_or(KeyError::Bounds)?;
    let end = from.checked_add(bytes).ok_or(KeyError::Bounds)?;
    let (start, end) = plan.span(from, end).ok_or(KeyError::Bounds)?;
    if end > key.length { Err(KeyError::Bounds) } else { Ok((start, end)) }
}

impl<'a, 'b> Signed<'a, 'b> {
    /// An access to `bytes` bytes of the wire at `at` of the key `name`.
    pub(in crate::memory_keys) fn new(
        bus: &'a Bus<'b>,
        keys: &'a Keys,
        who: Who,
        name: u32,
        at: u64,
        access: Access,
        bytes: u64,
    ) -> Result<Self, KeyError> {
        let key = keys.allowed(name, who, access)?;
        // What an atomic does to a signature nobody says.
        if access == Access::Atomic {
            return Err(KeyError::Right);
        }
        let (signing, plan) = plan_of(key)?;
        span_by(plan, key, at, bytes)?;
        keys.begin_walk();
        let (from, writes) = (at - key.start, access.writes());
        Ok(Self { bus, keys, who, name, key, signing, plan, from, writes, hint: Cell::default() })
    }

    /// Reads what goes out.
    pub(in crate::memory_keys) fn read_out(&self, into: &mut [u8]) -> Result<(), KeyError> {
        let (wire, from) = (self.plan.wire.as_ref(), self.from);
        let mut done = 0;
        while done < into.len() {
            let left = into.len() - done;
            match place(wire, from + done as u64) {
                Place::Data(raw, more) => {
                    let run = more.min(left as u64) as usize;
                    self.read(raw, &mut into[done..done + run])?;
                    done += run;
                }
                Place::Signature(wire, index, byte) => {
                    let made = self.make(wire, index)?;
                    let whole = match &self.plan.memory {
                        Some(memory) if self.plan.same && self.plan.copy != 0 => {
                            copy(self.plan.copy, self.stored(memory, index)?, made)
                        }
                        _ => made,
                    };
                    let rest = &whole[byte as usize..wire.kind.bytes() as usize];
                    let run = rest.len().min(left);
                    into[done..done + run].copy_from_slice(&rest[..run]);
                    done += run;
                }
            }
        }
        let Some(memory) = &self.plan.memory else { return Ok(()) };
        if self.plan.check == 0 {
            return Ok(());
        }
        // Blocks whose last byte is among these.
        let raw = |at| raw_before(wire, at);
        let (first, end) = (raw(from) / memory.block, raw(from + into.len() as u64) / memory.block);
        for index in first..end {
            let found = self.stored(memory, index)?;
            self.check(memory, signature_domain::MEMORY, index, found)?;
        }
        Ok(())
    }

    /// Writes what came in.
    pub(in crate::memory_keys) fn take_in(&self, data: &[u8]) -> Result<(), KeyError> {
        let (wire, from) = (self.plan.wire.as_ref(), self.from);
        let mut part = self.signing.part.get();
        if part.next != from {
            part = Part { next: from, bytes: [0; 8], lacks: false };
            if let Place::Signature(_, index, 1..) = place(wire, from) {
                part.lacks = true;
                // What memory has of it stays as it is.
                if let Some(memory) = self.plan.memory.as_ref().filter(|_| self.plan.same) {
                    part.bytes = self.stored(memory, index)?;
                }
            }
        }
        let mut rest = data;
        while !rest.is_empty() {
            match place(wire, part.next) {
                Place::Data(raw, more) => {
                    let (now, behind) = rest.split_at(more.min(rest.len() as u64) as usize);
                    self.write(raw, now)?;
                    (rest, part.next) = (behind, part.next + now.len() as u64);
                }
                Place::Signature(wire, index, byte) => {
                    let room = &mut part.bytes[byte as usize..wire.kind.bytes() as usize];
                    let (now, behind) = rest.split_at(room.len().min(rest.len()));
                    room[..now.len()].copy_from_slice(now);
                    let whole = now.len() == room.len();
                    (rest, part.next) = (behind, part.next + now.len() as u64);
                    if whole {
                        self.close(wire, index, &part)?;
                        (part.bytes, part.lacks) = ([0; 8], false);
                    }
                }
            }
        }
        self.signing.part.set(part);
        Ok(())
    }

    /// A block and its signature came by the wire.
    fn close(&self, wire: &Domain, index: u64, part: &Part) -> Result<(), KeyError> {
        if !part.lacks && self.plan.check != 0 {
            self.check(wire, signature_domain::WIRE, index, part.bytes)?;
        }
        match &self.plan.memory {
            Some(memory) if self.plan.same => {
                let made = self.make(memory, index)?;
                self.store(memory, index, copy(self.plan.copy, part.bytes, made))
            }
            _ => Ok(()),
        }
    }

    /// Data of memory, without signatures.
    fn read(&self, raw: u64, into: &mut [u8]) -> Result<(), KeyError> {
        let memory = self.plan.memory.as_ref();
        let mut done = 0;
        while done < into.len() {
            let at = raw + done as u64;
            let run = self.run(at, into.len() - done);
            self.load(signed(memory, at), &mut into[done..done + run])?;
            done += run;
        }
        Ok(())
    }

    /// Writes data to memory, and behind each block of it the signature, where those of the wire do not say what that is.
    fn write(&self, raw: u64, data: &[u8]) -> Result<(), KeyError> {
        let memory = self.plan.memory.as_ref();
        let mut done = 0;
        while done < data.len() {
            let at = raw + done as u64;
            let run = self.run(at, data.len() - done);
            self.save(signed(memory, at), &data[done..done + run])?;
            done += run;
            if let Some(memory) = memory
                && !self.plan.same
                && (raw + done as u64).is_multiple_of(memory.block)
            {
                let index = (raw + done as u64) / memory.block - 1;
                self.store(memory, index, self.make(memory, index)?)?;
            }
        }
        Ok(())
    }

    /// How many bytes of data are in a row in memory, up to `most`.
    fn run(&self, raw: u64, most: usize) -> usize {
        let left = self.plan.memory.map_or(u64::MAX, |memory| memory.block - raw % memory.block);
        left.min(most as u64) as usize
    }

    /// The signature that a block's data asks for.
    fn make(&self, domain: &Domain, index: u64) -> Result<Bytes, KeyError> {
        let variable = self.keys.signatures.variables.get(domain.variable).ok_or(KeyError::Signature)?;
        if variable.domain != self.key.domain {
            return Err(KeyError::Signature);
        }
        let mut room = [0; BLOCK_MAX];
        let data = &mut room[..domain.block as usize];
        self.read(index * domain.block, data)?;
        Ok(domain.sign(variable.value, index, data))
    }

    /// The signature that memory has of a block.
    fn stored(&self, memory: &Domain, index: u64) -> Result<Bytes, KeyError> {
        let mut bytes = [0; 8];
        let at = index * memory.stride() + memory.block;
        self.load(at, &mut bytes[..memory.kind.bytes() as usize])?;
        Ok(bytes)
    }

    fn store(&self, memory: &Domain, index: u64, bytes: Bytes) -> Result<(), KeyError> {
        let at = index * memory.stride() + memory.block;
        self.save(at, &bytes[..memory.kind.bytes() as usize])
    }

    /// Compares a block's signature with what its data asks for, and notes the key's first mismatch.
    fn check(&self, domain: &Domain, of: u8, index: u64, found: Bytes) -> Result<(), KeyError> {
        let computed = self.make(domain, index)?;
        let Some(syndrome) = domain.compare(self.plan.check, found, computed) else { return Ok(()) };
        let count = self.signing.count.get();
        if let Some(pair) = self.who.pair
            && count != self.signing.expected
        {
            self.signing.count.set(!count);
            self.keys.signatures.found.borrow_mut().push(Found {
                pair,
                key: self.name,
                syndrome,
                domain: of,
                expected: domain.kind.words(found),
                actual: domain.kind.words(computed),
                offset: index * domain.stride(),
            });
        }
        Ok(())
    }

    /// Bytes of memory as they are, by the right that the access takes: what was written is read again.
    fn load(&self, at: u64, into: &mut [u8]) -> Result<(), KeyError> {
        let access = if self.writes { Access::Write } else { Access::Read };
        self.walk(at, into.len(), access, &mut reader(self.bus, into))
    }

    fn save(&self, at: u64, data: &[u8]) -> Result<(), KeyError> {
        self.walk(at, data.len(), Access::Write, &mut writer(self.bus, data))
    }

    fn walk(
        &self,
        at: u64,
        bytes: usize,
        access: Access,
        each: &mut dyn FnMut(Option<u64>, usize) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        let mut hint = self.hint.get();
        let end = at + bytes as u64;
        let walked = self.keys.walk_inside(self.key, self.who, at, end, access, &mut hint, each);
        self.hint.set(hint);
        walked
    }
}
