//! Whose driver a device has: what a driver adds to calls is understood of mlx5 alone.

use std::path::Path;

use super::Said;
use super::files::Channel;

/// Says so of a channel to a device of another driver than mlx5's.
pub(super) fn other(channel: &Channel) -> Option<Said> {
    (!is_mlx5(Path::new("/sys"), &channel.file)).then(|| Said::Other(channel.name.clone()))
}

fn is_mlx5(root: &Path, file: &str) -> bool {
    let driver = root.join("class/infiniband_verbs").join(file).join("device/driver");
    std::fs::read_link(driver).is_ok_and(|driver| driver.ends_with("mlx5_core"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_that_of_the_device() {
        let root = tempfile::tempdir().expect("a folder");
        for (file, driver) in [("uverbs0", "mlx5_core"), ("uverbs1", "efa")] {
            let device = root.path().join("class/infiniband_verbs").join(file).join("device");
            std::fs::create_dir_all(&device).expect("a folder");
            let link = Path::new("../../../bus/pci/drivers").join(driver);
            std::os::unix::fs::symlink(link, device.join("driver")).expect("a link");
        }
        assert_eq!(
            ["uverbs0", "uverbs1", "uverbs2"].map(|file| is_mlx5(root.path(), file)),
            [true, false, false]
        );
    }
}
