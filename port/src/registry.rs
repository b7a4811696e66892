//! The ports of one program: a value, not a global.
mod find;

use crate::capture::Captures;
use crate::driver::PortDriver;
use crate::view::PortViews;
use crate::{Owner, Port, PortError, PortId};

/// Ports in order of creation, found by ID or by name.
///
/// A part of the program that builds a port out of others (a bond, say) makes itself their [`Owner`]; who goes round all
/// ports with [`Ports::iter`] then passes them over, as DPDK's `RTE_ETH_FOREACH_DEV` does. Nothing else is held back: a
/// port that is asked for by number or name is given whoever owns it.
#[derive(Debug, Default)]
pub struct Ports {
    next: u16,
    next_owner: u64,
    list: Vec<Entry>,
    views: PortViews,
    captures: Captures,
}

#[derive(Debug)]
struct Entry {
    port: Port,
    owner: Option<Owner>,
}

impl Ports {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a port with this driver under the next port ID.
    ///
    /// # Errors
    /// [`PortError::NameTaken`]; [`PortError::Limit`] when all numbers are used up.
    pub fn add(&mut self, name: &str, driver: Box<dyn PortDriver>) -> Result<PortId, PortError> {
        if self.by_name(name).is_some() {
            return Err(PortError::NameTaken { name: name.into() });
        }
        let id = PortId(self.next);
        self.next = self.next.checked_add(1).ok_or_else(|| PortError::Limit {
            port: name.into(),
            what: "number of ports",
            value: u64::from(u16::MAX) + 1,
            min: 0,
            max: u16::MAX.into(),
        })?;
        let port = Port::new(id, name, driver).with_captures(&self.captures);
        self.views.add(port.view());
        self.list.push(Entry { port, owner: None });
        Ok(id)
    }

    /// Adds a port under the ID of one that was [removed](Self::remove): another, or the same after its device was opened again.
    ///
    /// # Errors
    /// [`PortError::NameTaken`]; [`PortError::NumberTaken`]; [`PortError::NoPort`] for a number that no port ever had.
    pub fn put_back(&mut self, id: PortId, name: &str, driver: Box<dyn PortDriver>) -> Result<(), PortError> {
        if self.by_name(name).is_some() {
            return Err(PortError::NameTaken { name: name.into() });
        }
        if let Some(other) = self.get(id) {
            return Err(PortError::NumberTaken { number: id.0, name: other.name().into() });
        }
        if id.0 >= self.next {
            return Err(self.no_port(&id.to_string()));
        }
        let place = self.list.partition_point(|entry| entry.port.id() < id);
        let port = Port::new(id, name, driver).with_captures(&self.captures);
        self.views.add(port.view());
        self.list.insert(place, Entry { port, owner: None });
        Ok(())
    }

    /// Removes a port for good: what captures it captures nothing more, also when another port is [put back](Self::put_back) under its ID, which
    /// is not reused otherwise.
    pub fn remove(&mut self, id: PortId) -> Option<Port> {
        self.captures.forget(id);
        self.take_out(id)
    }

    /// Removes a port whose device is about to be opened again: what captures it goes on when it is [put back](Self::put_back), and ends when it is
    /// [removed](Self::remove) after all.
    pub fn remove_to_reopen(&mut self, id: PortId) -> Option<Port> {
        self.captures.suspend(id);
        self.take_out(id)
    }

    fn take_out(&mut self, id: PortId) -> Option<Port> {
        let place = self.place(id)?;
        self.views.remove(id);
        Some(self.list.remove(place).port.without_captures())
    }

    /// Returns views of the ports for other threads; they follow as ports are added and removed.
    #[must_use]
    pub fn views(&self) -> PortViews {
        self.views.clone()
    }

    /// Returns the captures at the queues of the ports, for a thread that attaches them.
    #[must_use]
    pub fn captures(&self) -> Captures {
        self.captures.clone()
    }

    /// Returns the port with this ID.
    #[must_use]
    pub fn get(&self, id: PortId) -> Option<&Port> {
        self.iter_all().find(|port| port.id() == id)
    }

    /// Returns the port with this ID.
    pub fn get_mut(&mut self, id: PortId) -> Option<&mut Port> {
        self.iter_all_mut().find(|port| port.id() == id)
    }

    /// Returns the ports without an owner, in order of creation.
    pub fn iter(&self) -> impl Iterator<Item = &Port> {
        self.list.iter().filter(|entry| entry.owner.is_none()).map(|entry| &entry.port)
    }

    /// Returns the ports without an owner, in order of creation.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Port> {
        self.list.iter_mut().filter(|entry| entry.owner.is_none()).map(|entry| &mut entry.port)
    }

    /// Returns the ports of one owner, in order of creation.
    pub fn iter_owned_by(&self, owner: &Owner) -> impl Iterator<Item = &Port> {
        let owned = self.list.iter().filter(|entry| entry.owner.as_ref() == Some(owner));
        owned.map(|entry| &entry.port)
    }

    /// Returns all ports, with any owner, in order of creation.
    pub fn iter_all(&self) -> impl ExactSizeIterator<Item = &Port> {
        self.list.iter().map(|entry| &entry.port)
    }

    /// Returns all ports, with any owner, in order of creation.
    pub fn iter_all_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Port> {
        self.list.iter_mut().map(|entry| &mut entry.port)
    }

    /// Returns the number of ports, with any owner.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there is no port.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Creates an owner with a unique ID. Names need not be unique.
    pub fn new_owner(&mut self, name: &str) -> Owner {
        self.next_owner += 1;
        Owner { id: self.next_owner, name: name.into() }
    }

    /// Returns the owner of a port.
    ///
    /// # Errors
    /// [`PortError::NoPort`].
    pub fn owner(&self, id: PortId) -> Result<Option<&Owner>, PortError> {
        let place = self.place(id).ok_or_else(|| self.no_port(&id.to_string()))?;
        Ok(self.list[place].owner.as_ref())
    }

    /// Sets the owner of a port. Setting the same owner again has no effect.
    ///
    /// # Errors
    /// [`PortError::NoPort`]; [`PortError::Owned`] when it is another's.
    pub fn set_owner(&mut self, id: PortId, owner: &Owner) -> Result<(), PortError> {
        let place = self.place(id).ok_or_else(|| self.no_port(&id.to_string()))?;
        let entry = &mut self.list[place];
        match &entry.owner {
            Some(other) if other != owner => {
                Err(PortError::Owned { port: entry.port.name().into(), owner: other.to_string() })
            }
            _ => {
                entry.owner = Some(owner.clone());
                Ok(())
            }
        }
    }

    /// Removes `owner` from a port. It has no effect on a port without an owner.
    ///
    /// # Errors
    /// As [`Ports::set_owner`].
    pub fn unset_owner(&mut self, id: PortId, owner: &Owner) -> Result<(), PortError> {
        self.set_owner(id, owner)?;
        if let Some(place) = self.place(id) {
            self.list[place].owner = None;
        }
        Ok(())
    }

    /// Deletes an owner, releases its ports and returns their number.
    pub fn delete_owner(&mut self, owner: Owner) -> usize {
        let owned = self.list.iter_mut().filter(|entry| entry.owner.as_ref() == Some(&owner));
        owned.map(|entry| entry.owner = None).count()
    }

    fn place(&self, id: PortId) -> Option<usize> {
        self.list.iter().position(|entry| entry.port.id() == id)
    }

    fn no_port(&self, wanted: &str) -> PortError {
        let names: Vec<&str> = self.iter_all().map(Port::name).collect();
        let present = if names.is_empty() { "none".into() } else { names.join(", ") };
        PortError::NoPort { wanted: wanted.into(), present }
    }
}
