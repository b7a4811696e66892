//! Reserving huge pages: a pool becomes as large as is asked, or stays as it was.

use std::io;
use std::path::Path;

use pollux_eal::hugepage::Bytes;

use crate::DoctorError;
use crate::root::{Gap, Root};

/// Huge pages that are to be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Bytes in all, rounded up to whole pages; 0 gives all back.
    pub bytes: usize,
    /// Bytes a page; `None`: the machine's usual size.
    pub page_bytes: Option<usize>,
    /// The NUMA node; `None`: the kernel spreads them over all.
    pub node: Option<u16>,
}

impl Reservation {
    /// Makes the pool as large: more pages, or fewer, down to those in use. What that came to, in a line.
    ///
    /// # Errors
    /// [`DoctorError::Show`]: no such size or node, no right, or the kernel has not so many; the pool is as before then.
    pub fn make(self, root: &Path) -> Result<String, DoctorError> {
        let root = Root::new(root);
        let page = match self.page_bytes {
            Some(page) => page,
            None => usual_page(&root).map_err(|gap| refuse(gap.to_string()))?,
        };
        let file = self.pool(&root, page)?;
        let read = || root.number(&file).map_err(|gap| refuse(gap.to_string()));
        let write = |pages: usize| {
            std::fs::write(root.join(&file), format!("{pages}\n"))
                .map_err(|why| refuse(format!("/{file} cannot be written: {why}{}", mend(why.kind()))))
        };
        resize(self.bytes.div_ceil(page), page, read, write)
    }

    /// The file that holds how many pages of that size there are.
    fn pool(self, root: &Root, page: usize) -> Result<String, DoctorError> {
        let place = self.node.map_or_else(
            || "sys/kernel/mm/hugepages".to_owned(),
            |node| format!("sys/devices/system/node/node{node}/hugepages"),
        );
        let sizes = root.names(&place).map_err(|gap| refuse(gap.to_string()))?;
        let name = format!("hugepages-{}kB", page / 1024);
        if sizes.contains(&name) {
            return Ok(format!("{place}/{name}/nr_hugepages"));
        }
        let sizes: Vec<&str> = sizes.iter().filter_map(|size| size.strip_prefix("hugepages-")).collect();
        Err(refuse(format!("--page-size {}: there are pages of {}", Bytes(page), sizes.join(", "))))
    }
}

fn refuse(problem: String) -> DoctorError {
    DoctorError::Show { problem }
}

/// What helps where the pool cannot be written.
fn mend(why: io::ErrorKind) -> &'static str {
    match why {
        io::ErrorKind::PermissionDenied => "; try as root",
        io::ErrorKind::ReadOnlyFilesystem => "; a container mostly may not: reserve them outside of it",
        _ => "",
    }
}

/// Makes a pool as large, or leaves it as it was: a shortfall may be nearly all of the memory that was free.
fn resize(
    wanted: usize,
    page: usize,
    read: impl Fn() -> Result<usize, DoctorError>,
    write: impl Fn(usize) -> Result<(), DoctorError>,
) -> Result<String, DoctorError> {
    let before = read()?;
    write(wanted)?;
    // The kernel takes what it gets.
    let now = read()?;
    if now < wanted {
        let back = match write(before).and_then(|()| read()) {
            Ok(back) => format!("they were given back, and there are {back}, {before} before"),
            Err(why) => format!("they could not be given back: {why}"),
        };
        return Err(refuse(short(wanted, now, page, &back)));
    }
    let more = if now > wanted { "; not fewer, since they are in use" } else { "" };
    let all = Bytes(page.saturating_mul(now));
    Ok(format!("{now} pages of {}, {all} in all, {before} before{more}\n", Bytes(page)))
}

/// What to say of fewer pages than asked for. Source: Linux `Documentation/admin-guide/kernel-parameters.txt`, `hugepagesz`.
fn short(wanted: usize, now: usize, page: usize, back: &str) -> String {
    let unit =
        if page.is_multiple_of(1 << 20) { format!("{}M", page >> 20) } else { format!("{}K", page >> 10) };
    format!(
        "{now} of {wanted} pages of {} were to be had: memory is taken or in pieces; {back}; reserve them when the machine starts \
         (hugepagesz={unit} hugepages={wanted} on the kernel's command line)",
        Bytes(page)
    )
}

/// The size of pages that a mapping has which asks for none. Source: Linux `Documentation/filesystems/proc.rst`, `Hugepagesize`.
fn usual_page(root: &Root) -> Result<usize, Gap> {
    let file = "proc/meminfo";
    let text = root.head(file, 64 << 10)?;
    let kib = text.lines().find_map(|line| line.strip_prefix("Hugepagesize:")?.trim().strip_suffix("kB"));
    let kib: Option<usize> = kib.and_then(|kib| kib.trim().parse().ok());
    kib.and_then(|kib| kib.checked_mul(1024))
        .filter(|bytes| *bytes != 0)
        .ok_or_else(|| crate::root::malformed(file, "the size of huge pages", ""))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What a pool came to that has `before` pages and takes between `least` and `most`, and its pages then.
    fn resized(wanted: usize, before: usize, least: usize, most: usize) -> (String, usize) {
        let pool = Cell::new(before);
        let write = |pages: usize| {
            pool.set(pages.clamp(least, most));
            Ok(())
        };
        let text = resize(wanted, 2 << 20, || Ok(pool.get()), write);
        (text.unwrap_or_else(|why| why.to_string()), pool.get())
    }

    #[test]
    fn a_shortfall_is_given_back() {
        let (text, pages) = resized(1000, 10, 0, 900);
        assert!(text.contains("900 of 1000 pages of 2 MiB were to be had: "), "{text}");
        assert!(text.contains("; they were given back, and there are 10, 10 before; "), "{text}");
        assert_eq!(pages, 10);
        assert_eq!(resized(20, 10, 0, 900), ("20 pages of 2 MiB, 40 MiB in all, 10 before\n".into(), 20));
    }

    #[test]
    fn pages_in_use_stay() {
        let wanted = "8 pages of 2 MiB, 16 MiB in all, 10 before; not fewer, since they are in use\n";
        assert_eq!(resized(3, 10, 8, 900), (wanted.into(), 8));
    }

    #[test]
    fn root_helps_where_rights_lack() {
        assert!(mend(io::ErrorKind::PermissionDenied).contains("root"));
        assert!(mend(io::ErrorKind::ReadOnlyFilesystem).contains("container"));
        assert_eq!(mend(io::ErrorKind::NotFound), "");
    }

    #[test]
    fn a_shortfall_is_told_with_the_pages_size() {
        let text = short(9, 3, 64 << 10, "back");
        assert!(text.starts_with("3 of 9 pages of 64 KiB were to be had: "), "{text}");
        assert!(text.ends_with("; back; reserve them when the machine starts (hugepagesz=64K hugepages=9 on the kernel's command line)"));
        assert!(short(9, 3, 2 << 20, "").contains("hugepagesz=2M"));
    }
}
