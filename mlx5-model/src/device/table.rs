//! Objects by number, with the user context that each belongs to.

use std::collections::VecDeque;

/// Objects of one kind. Numbers begin at `first`; one that was given back comes again as late as possible, so that whoever
/// still uses it is noticed.
#[derive(Debug)]
pub(crate) struct Table<T> {
    first: u32,
    limit: usize,
    slots: Vec<Option<(u16, T)>>,
    free: VecDeque<u32>,
}

impl<T> Table<T> {
    pub(crate) fn new(first: u32, limit: usize) -> Self {
        Self { first, limit, slots: Vec::new(), free: VecDeque::new() }
    }

    /// A number for a new object, or `None` when the device has none left.
    pub(crate) fn insert(&mut self, owner: u16, object: T) -> Option<u32> {
        let index = if self.slots.len() < self.limit {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        } else {
            self.free.pop_front()?
        };
        self.slots[index as usize] = Some((owner, object));
        Some(self.first + index)
    }

    #[inline]
    fn index(&self, number: u32) -> Option<usize> {
        number.checked_sub(self.first).map(|index| index as usize)
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(self.index(number)?)?.as_ref().map(|(_, object)| object)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.index(number)?;
        self.slots.get_mut(index)?.as_mut().map(|(_, object)| object)
    }

    pub(crate) fn owner(&self, number: u32) -> Option<u16> {
        self.slots.get(self.index(number)?)?.as_ref().map(|(owner, _)| *owner)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let index = self.index(number)?;
        let (_, object) = self.slots.get_mut(index)?.take()?;
        self.free.push_back(index as u32);
        Some(object)
    }

    /// All objects with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let numbers = self.first..;
        numbers.zip(&self.slots).filter_map(|(number, slot)| Some((number, &slot.as_ref()?.1)))
    }

    /// Numbers of what belongs to a user context.
    pub(crate) fn owned_by(&self, owner: u16) -> Vec<u32> {
        let numbers = self.first..;
        numbers
            .zip(&self.slots)
            .filter(|(_, slot)| slot.as_ref().is_some_and(|(has, _)| *has == owner))
            .map(|(number, _)| number)
            .collect()
    }

    /// Numbers of all slots that were ever used, to walk while objects change.
    pub(crate) fn numbers(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.slots.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_number_comes_again_as_late_as_possible() {
        let mut table = Table::new(16, 3);
        assert_eq!([table.insert(0, 'a'), table.insert(1, 'b')], [Some(16), Some(17)]);
        assert_eq!(table.remove(16), Some('a'));
        assert_eq!(table.insert(0, 'c'), Some(18));
        assert_eq!(table.insert(0, 'd'), Some(16));
        assert_eq!(table.insert(0, 'e'), None);
        assert_eq!((table.get(15), table.get(16), table.get(19)), (None, Some(&'d'), None));
        assert_eq!((table.owner(17), table.owner(99)), (Some(1), None));
        assert_eq!(table.owned_by(1), [17]);
        assert_eq!(table.remove(17), Some('b'));
        assert_eq!(table.remove(17), None);
        assert_eq!(table.iter().map(|(number, _)| number).collect::<Vec<_>>(), [16, 18]);
    }
}
