//! The ports of one program: a value, not a global.
use crate::driver::PortDriver;
use crate::{Port, PortError, PortId};

/// Ports in order of creation, found by number or by name.
#[derive(Debug, Default)]
pub struct Ports {
    next: u16,
    list: Vec<Port>,
}

impl Ports {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a port of a driver and gives it the next number.
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
        self.list.push(Port::new(id, name, driver));
        Ok(id)
    }

    /// Takes a port out. Its number is not used again.
    pub fn remove(&mut self, id: PortId) -> Option<Port> {
        let place = self.list.iter().position(|port| port.id() == id)?;
        Some(self.list.remove(place))
    }

    /// The port of that number.
    #[must_use]
    pub fn get(&self, id: PortId) -> Option<&Port> {
        self.list.iter().find(|port| port.id() == id)
    }

    /// The port of that number.
    pub fn get_mut(&mut self, id: PortId) -> Option<&mut Port> {
        self.list.iter_mut().find(|port| port.id() == id)
    }

    /// The port of that name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Port> {
        self.list.iter().find(|port| port.name() == name)
    }

    /// The port of that name.
    pub fn by_name_mut(&mut self, name: &str) -> Option<&mut Port> {
        self.list.iter_mut().find(|port| port.name() == name)
    }

    /// The port that `text` means: a name, or else a number.
    ///
    /// # Errors
    /// [`PortError::NoPort`], with the names there are.
    pub fn find(&self, text: &str) -> Result<PortId, PortError> {
        let by_number = || text.parse().ok().and_then(|number| self.get(PortId(number)));
        self.by_name(text).or_else(by_number).map(Port::id).ok_or_else(|| {
            let names: Vec<&str> = self.list.iter().map(Port::name).collect();
            let present = if names.is_empty() { "none".into() } else { names.join(", ") };
            PortError::NoPort { wanted: text.into(), present }
        })
    }

    /// All, in order of creation.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Port> {
        self.list.iter()
    }

    /// All, in order of creation.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Port> {
        self.list.iter_mut()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
