//! Which of the devices count: those that the user named, or that the command may see.

use super::config::{GpuConfig, Visible};
use super::{Device, Vendor};

/// Whether the user's word means this device: its id or PCI address, or a beginning of its UUID, as `nvidia-smi -i` and
/// CUDA_VISIBLE_DEVICES take it.
#[must_use]
pub fn names(word: &str, device: &Device) -> bool {
    let (word, id) = (word.to_ascii_lowercase(), device.id.to_ascii_lowercase());
    let is_uuid = ["gpu-", "mig-"].iter().any(|kind| id.starts_with(kind) && word.starts_with(kind));
    let is_address = device.pci_address.as_ref().is_some_and(|address| address.eq_ignore_ascii_case(&word));
    id == word
        || (is_address && device.parent.is_none())
        || (is_uuid && word.len() > 4 && id.starts_with(&word))
}

/// What names no device of these, if there is such a word.
#[must_use]
pub fn unknown<'a>(words: &'a [String], devices: &[Device]) -> Option<&'a String> {
    words.iter().find(|word| !devices.iter().any(|device| names(word, device)))
}

/// Those that the command may see, by what its environment says; `None` where it says nothing.
#[must_use]
pub fn visible(visible: &Visible, device: &Device) -> Option<bool> {
    let list = match device.vendor {
        Some(Vendor::Nvidia) => visible.cuda.as_deref().or(visible.slurm.as_deref()),
        Some(Vendor::Amd) => visible.rocr.as_deref().or(visible.slurm.as_deref()),
        _ => None,
    }?;
    Some(is_listed(list, device))
}

/// CUDA takes a list up to its first wrong entry ("1,-1,0" is GPU 1 alone); a part of a device that is listed counts too.
fn is_listed(list: &str, device: &Device) -> bool {
    let words = list.split(',').map(str::trim);
    words.take_while(|word| !word.is_empty() && *word != "-1" && *word != "NoDevFiles").any(|word| {
        let is_index = word.parse::<u32>().is_ok_and(|index| device.index == Some(index));
        is_index
            || names(word, device)
            || device.parent.as_ref().is_some_and(|parent| parent.eq_ignore_ascii_case(word))
    })
}

/// Those of `devices` that count, and whether each is there for the command alone to use.
#[must_use]
pub fn wanted<'a>(config: &GpuConfig, devices: &'a [Device]) -> Vec<&'a Device> {
    let is_wanted = |device: &&Device| {
        device.vendor.is_none_or(|vendor| config.wants(vendor))
            && config.uuids.as_ref().is_none_or(|words| words.iter().any(|word| names(word, device)))
            && (!config.only_visible || visible(&config.visible, device) != Some(false))
    };
    devices.iter().filter(is_wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(id: &str, index: u32) -> Device {
        Device {
            id: id.into(),
            index: Some(index),
            vendor: Some(Vendor::Nvidia),
            pci_address: Some(format!("0000:0{index}:00.0")),
            ..Device::default()
        }
    }

    fn see(list: &str) -> Vec<u32> {
        let devices = [device("GPU-aa11", 0), device("GPU-aa22", 1), device("GPU-bb33", 2)];
        let by = Visible { cuda: Some(list.into()), ..Visible::default() };
        devices.iter().filter(|d| visible(&by, d) == Some(true)).filter_map(|d| d.index).collect()
    }

    #[test]
    fn visible_lists_are_read_as_cuda_reads_them() {
        assert_eq!(see("0,2"), [0, 2]);
        assert_eq!(see("GPU-aa"), [0, 1]);
        assert_eq!(see("gpu-bb33, 0"), [0, 2]);
        assert_eq!(see("1,-1,0"), [1]);
        assert_eq!(see(""), [0; 0]);
        assert_eq!(see("NoDevFiles"), [0; 0]);
        assert_eq!(visible(&Visible::default(), &device("GPU-aa11", 0)), None);
    }

    #[test]
    fn a_word_is_a_uuid_its_beginning_or_a_pci_address() {
        let gpu = device("GPU-aa11", 1);
        assert!(names("GPU-aa11", &gpu) && names("gpu-a", &gpu) && names("0000:01:00.0", &gpu));
        assert!(!names("GPU-", &gpu) && !names("", &gpu) && !names("1", &gpu) && !names("aa11", &gpu));
        assert_eq!(unknown(&["GPU-aa".into(), "GPU-x".into()], &[gpu]), Some(&"GPU-x".to_owned()));
    }

    #[test]
    fn filters_add_up() {
        let devices = [device("GPU-aa11", 0), device("GPU-aa22", 1)];
        let mut config = GpuConfig { uuids: Some(vec!["GPU-aa".into()]), ..GpuConfig::default() };
        assert_eq!(wanted(&config, &devices).len(), 2);
        config.only_visible = true;
        config.visible.cuda = Some("1".into());
        assert_eq!(wanted(&config, &devices), [&devices[1]]);
        config.vendor = Some(Vendor::Amd);
        assert_eq!(wanted(&config, &devices).len(), 0);
    }
}
