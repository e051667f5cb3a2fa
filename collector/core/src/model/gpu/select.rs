//! Which devices are tracked: those that the user named, or that the command may see.

use crate::model::sorting::{InOrder, Sorting};
use std::collections::{BTreeMap, BTreeSet};

use super::config::{GpuConfig, Vendor, Visible};
use super::device::Device;

/// Whether a name means this device: its id, UUID or PCI address, or a beginning of its UUID, as `nvidia-smi -i` and
/// CUDA_VISIBLE_DEVICES take it. A PCI address means a whole device, and not its parts.
fn is_name_of(name: &str, device: &Device) -> bool {
    let name = name.to_ascii_lowercase();
    let begins_uuid = |id: &str| {
        let id = id.to_ascii_lowercase();
        let is_uuid = ["gpu-", "mig-"].iter().any(|kind| id.starts_with(kind) && name.starts_with(kind));
        // `GPU-` alone begins every UUID, so it names none.
        is_uuid && name.len() > "gpu-".len() && id.starts_with(&name)
    };
    let is_address = device.pci_address.as_ref().is_some_and(|address| address.eq_ignore_ascii_case(&name));
    device.id.eq_ignore_ascii_case(&name)
        || (is_address && device.parent.is_none())
        || begins_uuid(&device.id)
        || device.uuid.as_ref().is_some_and(|uuid| begins_uuid(uuid))
}

/// Whether `nvidia-smi -i NAME` means this device: its index, UUID or PCI address, which nvidia-smi writes with a domain of eight
/// digits, and takes without a domain that is 0.
pub fn is_called(name: &str, device: &Device) -> bool {
    let name = name.trim();
    let is_index = name.parse() == Ok(device.index.unwrap_or(u32::MAX)) && device.index.is_some();
    // The domain is of four digits in files of the kernel.
    let is_long_domain = name.find(':') == Some(8);
    let address = name.strip_prefix("0000").filter(|_| is_long_domain).unwrap_or(name);
    let has_domain = address.matches(':').count() != 1;
    is_index || is_name_of(address, device) || (!has_domain && is_name_of(&format!("0000:{address}"), device))
}

/// Finds the first of the `given` names that means none of the devices. `None`: each means one.
pub fn unknown<'a>(given: &'a [String], devices: &[Device]) -> Option<&'a String> {
    given.iter().find(|name| names_none(name, devices))
}

/// Whether a name means none of the devices.
pub fn names_none(name: &str, devices: &[Device]) -> bool {
    !devices.iter().any(|device| is_name_of(name, device))
}

/// Which devices of a machine the command may see, by the variables of its environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visibility {
    /// By id, whether the command may see it. A device that the environment says nothing of is absent.
    by_id: BTreeMap<String, bool>,
    /// The answer depends on the order in which CUDA counts devices, which only CUDA knows.
    pub is_order_unsure: bool,
}

/// The value of a variable that lists devices, and what its numbers mean.
struct List<'a> {
    text: &'a str,
    numbering: Numbering,
    /// CUDA reads it: see [`in_cuda_list`].
    is_cudas: bool,
}

/// What the numbers in a list of devices mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbering {
    /// The rank among the devices that the process can open. CUDA skips the others, but the driver's index counts them.
    Rank,
    /// The driver's index.
    Index,
    /// The number of the device node: `/dev/nvidia2` is 2, even if the job sees only some of the nodes.
    Node,
}

impl Visibility {
    /// Finds which of all devices of the machine the command sees. `has_all`: each whole device of the driver is among them. If one is not,
    /// it is not known which devices CUDA's numbers mean.
    pub fn new(visible: &Visible, all: &[Device], has_all: bool) -> Self {
        let mut visibility = Self::default();
        for vendor in [Vendor::Nvidia, Vendor::Amd] {
            let of_vendor: Vec<&Device> = all.iter().filter(|device| device.vendor == Some(vendor)).collect();
            let own_list = own_list(visible, vendor);
            let hip_list = if vendor == Vendor::Amd { hip_list(visible) } else { None };
            let is_numbered = |list: &List| list.is_cudas && cuda_kind(list.text) == CudaKind::Number;
            let is_unknown = !has_all && own_list.as_ref().is_some_and(is_numbered);
            if (own_list.is_none() && hip_list.is_none()) || is_unknown {
                continue;
            }
            // HIP's list counts the devices that ROCm's list leaves, in the order of that list.
            let mut left = nameable(&of_vendor);
            for list in own_list.iter().chain(&hip_list) {
                left = in_list(list, &left);
            }
            for device in &of_vendor {
                let is_left = |id: &String| left.iter().any(|device| &device.id == id);
                // CUDA takes one part of a device that is named as a whole, and does not say which.
                let is_visible = is_left(&device.id) || device.parent.as_ref().is_some_and(is_left);
                visibility.by_id.insert(device.id.clone(), is_visible);
            }
            // If CUDA's variable is not set, the list is Slurm's: its numbers of device nodes do not depend on an order.
            if let Some(list) = &own_list
                && vendor == Vendor::Nvidia
                && visible.cuda.is_some()
            {
                visibility.is_order_unsure = is_order_unsure(visible, list, &of_vendor, left.len());
            }
        }
        visibility
    }

    /// Whether the command may see a device; `None`: its environment does not say.
    pub fn is_visible(&self, id: &str) -> Option<bool> {
        self.by_id.get(id).copied()
    }
}

/// The list that CUDA or ROCm reads for a maker's devices, or else Slurm's. `None`: neither is set.
fn own_list(visible: &Visible, vendor: Vendor) -> Option<List<'_>> {
    let (own, numbering) = match vendor {
        Vendor::Nvidia => (&visible.cuda, Numbering::Rank),
        Vendor::Amd => (&visible.rocr, Numbering::Index),
        Vendor::Intel => return None,
    };
    let own = own.as_deref().map(|text| List { text, numbering, is_cudas: vendor == Vendor::Nvidia });
    let of_slurm = |text| List { text, numbering: Numbering::Node, is_cudas: false };
    own.or_else(|| visible.slurm.as_deref().map(of_slurm))
}

/// The list that HIP and OpenCL read on top of ROCm's. HIP reads CUDA's if its own is not set, and an empty one counts as not
/// set (ROCm's rocdevice.cpp). `None`: none is set.
fn hip_list(visible: &Visible) -> Option<List<'_>> {
    let variables = [&visible.hip, &visible.cuda, &visible.opencl];
    let text = variables.into_iter().flatten().find(|list| !list.is_empty())?;
    Some(List { text, numbering: Numbering::Rank, is_cudas: false })
}

/// The devices that lists can name, in the order of the driver's numbers. AMD's partitions have numbers, and the device that is
/// divided into them has none. With MIG, the divided device has a number, and its parts have none.
fn nameable<'a>(devices: &[&'a Device]) -> Vec<&'a Device> {
    let has_part = |device: &Device| devices.iter().any(|part| part.parent.as_ref() == Some(&device.id));
    let is_divided = |device: &Device| device.index.is_none() && has_part(device);
    let mut nameable: Vec<&Device> = devices.iter().copied().filter(|device| !is_divided(device)).collect();
    nameable.order_by_key(|device| device.index);
    nameable
}

/// Finds those of the `devices` that a list names, up to its first invalid entry.
fn in_list<'a>(list: &List<'_>, devices: &[&'a Device]) -> Vec<&'a Device> {
    if list.is_cudas {
        return in_cuda_list(list.text, devices);
    }
    let mut named: Vec<&Device> = Vec::new();
    for word in list.text.split(',') {
        let Some(device) = device_of(word.trim(), list.numbering, devices) else { break };
        if !named.iter().any(|known| known.id == device.id) {
            named.push(device);
        }
    }
    named
}

/// Finds those of the `devices` that CUDA sees by CUDA_VISIBLE_DEVICES, up to the first invalid entry: "1,-1,0" is GPU 1 alone (CUDA's
/// documentation). The other rules are those that PyTorch has found (torch/cuda/__init__.py, `_parse_visible_devices`): the first
/// entry decides whether the list has numbers, or UUIDs of GPUs or of MIG instances. An entry of another kind is invalid. What
/// follows a number in its entry is skipped. A list that names a device twice before that is empty.
fn in_cuda_list<'a>(text: &str, devices: &[&'a Device]) -> Vec<&'a Device> {
    let kind = cuda_kind(text);
    let mut named = Vec::new();
    let mut names = BTreeSet::new();
    for word in text.split(',').map(str::trim).take_while(|word| cuda_kind(word) == kind) {
        let device = match kind {
            CudaKind::Number => first_number(word).and_then(|number| numbered(devices).nth(number)),
            CudaKind::Gpu | CudaKind::Mig => device_of(word, Numbering::Rank, devices),
        };
        let Some(device) = device else { break };
        // Several names of instances can stand for one GPU: see `device_of`.
        let name = if word.contains('/') { word } else { &device.id };
        if !names.insert(name.to_ascii_lowercase()) {
            return Vec::new();
        }
        named.push(device);
    }
    named
}

/// What CUDA takes an entry of its list for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CudaKind {
    Number,
    /// The UUID of a GPU.
    Gpu,
    /// The UUID of a MIG instance.
    Mig,
}

/// The kind of an entry of CUDA's list, or of the first one of `text`.
fn cuda_kind(text: &str) -> CudaKind {
    let prefix = text.trim_start().get(..4).unwrap_or_default().to_ascii_lowercase();
    match prefix.as_str() {
        "gpu-" => CudaKind::Gpu,
        "mig-" => CudaKind::Mig,
        _ => CudaKind::Number,
    }
}

/// The number that a word begins with, as strtol(3) reads it. `None`: there is none, or no device can have it.
fn first_number(word: &str) -> Option<usize> {
    let digits = word.strip_prefix('+').unwrap_or(word);
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// Those of the `devices` that have a number. MIG parts have none.
fn numbered<'a>(devices: &[&'a Device]) -> impl Iterator<Item = &'a Device> {
    devices.iter().copied().filter(|device| device.parent.is_none() || device.index.is_some())
}

/// Finds the device that an entry of a list (`word`) names. `None`: it names no device, or is the beginning of several UUIDs.
fn device_of<'a>(word: &str, numbering: Numbering, devices: &[&'a Device]) -> Option<&'a Device> {
    if let Ok(number) = word.parse::<u32>() {
        let mut numbered = numbered(devices);
        return match numbering {
            Numbering::Rank => numbered.nth(number as usize),
            Numbering::Index => numbered.find(|device| device.index == Some(number)),
            Numbering::Node => numbered.find(|device| device.minor.or(device.index) == Some(number)),
        };
    }
    if let Some(exact) = devices.iter().find(|device| device.id.eq_ignore_ascii_case(word)) {
        return Some(exact);
    }
    // Drivers of the 450 and 460 series name an instance MIG-GPU-UUID/1/0, and later ones accept that. NVML of the later ones does
    // not say which instance it is, so the name stands for the GPU with all instances.
    let word = word.strip_prefix("MIG-").and_then(|name| name.split_once('/')).map_or(word, |(gpu, _)| gpu);
    let mut matching = devices.iter().copied().filter(|device| is_name_of(word, device));
    matching.next().filter(|_| matching.next().is_none())
}

/// Whether the numbers of CUDA's list may mean other devices to CUDA than to us: CUDA counts the fastest device first unless
/// CUDA_DEVICE_ORDER is PCI_BUS_ID. That matters if devices of different models are selected by number. `devices`: those of the
/// maker. `named_count`: how many of them the list names.
fn is_order_unsure(visible: &Visible, list: &List<'_>, devices: &[&Device], named_count: usize) -> bool {
    let whole = || devices.iter().filter(|device| device.parent.is_none());
    let is_by_number = cuda_kind(list.text) == CudaKind::Number;
    let models = whole().filter_map(|device| device.name.as_ref()).ordered_set();
    // A list that names no device, or all of them, means the same in any order.
    let are_some_named = (1..whole().count()).contains(&named_count);
    is_by_number && visible.cuda_order.as_deref() != Some("PCI_BUS_ID") && models.len() > 1 && are_some_named
}

/// Finds the devices that are tracked: those that the options of `config` select by maker, by name, and by what the command may see.
/// `has_all` is as in [`Visibility::new`].
pub fn wanted<'a>(config: &GpuConfig, all: &'a [Device], has_all: bool) -> Vec<&'a Device> {
    let visibility = Visibility::new(&config.visible, all, has_all);
    let is_wanted = |device: &&Device| {
        // Processes use only the parts of a divided device (MIG), so the name of the device stands for its parts, too.
        let parent = device.parent.as_ref().and_then(|id| all.iter().find(|other| &other.id == id));
        let is_named =
            |name: &String| is_name_of(name, device) || parent.is_some_and(|parent| is_name_of(name, parent));
        device.vendor.is_none_or(|vendor| config.wants(vendor))
            && config.uuids.as_ref().is_none_or(|given| given.iter().any(is_named))
            && (!config.only_visible || visibility.is_visible(&device.id) != Some(false))
    };
    all.iter().filter(is_wanted).collect()
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

    fn seen(by: &Visible, devices: &[Device]) -> Vec<String> {
        let visibility = Visibility::new(by, devices, true);
        let ids = devices.iter().map(|device| device.id.clone());
        ids.filter(|id| visibility.is_visible(id) == Some(true)).collect()
    }

    fn cuda(list: &str) -> Visible {
        Visible { cuda: Some(list.into()), ..Visible::default() }
    }

    #[test]
    fn cuda_visible_devices_is_read_as_cuda_reads_it() {
        let devices = [device("GPU-aa11", 0), device("GPU-aa22", 1), device("GPU-bb33", 2)];
        let see = |list: &str| seen(&cuda(list), &devices).concat();
        assert_eq!(see("0,2"), "GPU-aa11GPU-bb33");
        assert_eq!(see("gpu-bb33, GPU-aa11"), "GPU-aa11GPU-bb33");
        assert_eq!(see("GPU-aa2"), "GPU-aa22");
        for nothing in ["", "NoDevFiles", "-1", "none", "GPU-aa", "GPU-", "99999999999999999999", "3"] {
            assert_eq!(see(nothing), "", "{nothing}");
        }
        for one in ["1,-1,0", "1,3,0", "1,3,1", "1,GPU-aa,0", "1,,0"] {
            assert_eq!(see(one), "GPU-aa22", "{one}");
        }
        for number in ["1abc", "1;2", "+1", "1 2", " 1,GPU-aa11", "1.5,GPU-bb33,0"] {
            assert_eq!(see(number), "GPU-aa22", "{number}");
        }
        assert_eq!(see("1gpu,2tpu"), "GPU-aa22GPU-bb33");
        for twice in ["0,0", "0,1,0", "0,00", "0,0,9", "GPU-aa11,GPU-aa11", "GPU-aa1,gpu-aa11,GPU-bb"] {
            assert_eq!(see(twice), "", "{twice}");
        }
        for first in ["GPU-bb33,0", "GPU-bb33,MIG-1,0", "GPU-bb33,0,GPU-aa11"] {
            assert_eq!(see(first), "GPU-bb33", "{first}");
        }
        assert_eq!(Visibility::new(&Visible::default(), &devices, true), Visibility::default());
        // Numbers count a device that could not be identified, too.
        let lacking = |list: &str| Visibility::new(&cuda(list), &devices, false).is_visible("GPU-aa22");
        assert_eq!([lacking("1"), lacking("GPU-aa22"), lacking("GPU-bb33")], [None, Some(true), Some(false)]);
    }

    #[test]
    fn mig_parts_are_visible_by_name_or_with_the_whole() {
        let part = |id: &str| Device { parent: Some("GPU-aa11".into()), index: None, ..device(id, 0) };
        let devices = [device("GPU-aa11", 0), part("MIG-1"), part("MIG-2"), device("GPU-aa22", 1)];
        assert_eq!(seen(&cuda("MIG-2"), &devices), ["MIG-2"]);
        assert_eq!(seen(&cuda("0"), &devices), ["GPU-aa11", "MIG-1", "MIG-2"]);
        assert_eq!(seen(&cuda("GPU-aa22"), &devices), ["GPU-aa22"]);
        assert_eq!(seen(&cuda("MIG-GPU-aa11/1/0"), &devices), ["GPU-aa11", "MIG-1", "MIG-2"]);
        let old = [device("GPU-aa11", 0), part("MIG-GPU-aa11/1/0"), part("MIG-GPU-aa11/2/0")];
        assert_eq!(seen(&cuda("MIG-GPU-aa11/2/0"), &old), ["MIG-GPU-aa11/2/0"]);
        let whole = ["GPU-aa11", "MIG-1", "MIG-2"];
        assert_eq!(seen(&cuda("MIG-GPU-aa11/1/0,MIG-GPU-aa11/2/0"), &devices), whole);
        assert_eq!(seen(&cuda("MIG-GPU-aa11/1/0,MIG-GPU-aa11/1/0"), &devices), [""; 0]);
        assert_eq!(seen(&cuda("MIG-2,GPU-aa22"), &devices), ["MIG-2"]);
    }

    #[test]
    fn slurm_counts_device_nodes_and_cuda_open_devices() {
        // A job that was given /dev/nvidia2 and /dev/nvidia3.
        let node = |id: &str, index, minor| Device { minor: Some(minor), ..device(id, index) };
        let devices = [node("GPU-cc", 0, 2), node("GPU-dd", 1, 3)];
        let slurm = Visible { slurm: Some("3".into()), ..Visible::default() };
        assert_eq!(seen(&slurm, &devices), ["GPU-dd"]);
        assert_eq!(seen(&Visible { cuda: Some("0".into()), ..slurm }, &devices), ["GPU-cc"]);
    }

    #[test]
    fn cuda_skips_devices_that_can_not_be_opened() {
        let devices = [device("GPU-bb", 3), device("GPU-aa", 1)];
        assert_eq!(seen(&cuda("0"), &devices), ["GPU-aa"]);
        assert_eq!(seen(&cuda("1"), &devices), ["GPU-bb"]);
    }

    #[test]
    fn rocr_visible_devices_takes_numbers_and_uuids() {
        let amd = |address: &str, index, uuid: &str| Device {
            id: address.into(),
            uuid: Some(uuid.into()),
            vendor: Some(Vendor::Amd),
            ..device("", index)
        };
        let devices = [amd("0000:03:00.0", 0, "GPU-00000000000000aa"), amd("0000:83:00.0", 1, "GPU-00bb")];
        let rocr =
            |list: &str| seen(&Visible { rocr: Some(list.into()), ..Visible::default() }, &devices).concat();
        assert_eq!(rocr("1"), "0000:83:00.0");
        assert_eq!(rocr("GPU-00bb,GPU-00000000000000AA"), "0000:03:00.00000:83:00.0");
        assert_eq!(rocr("GPU-00ff,0"), "");
    }

    #[test]
    fn hip_visible_devices_counts_what_rocm_leaves() {
        let amd = |address: &str, index| Device { vendor: Some(Vendor::Amd), ..device(address, index) };
        let devices = [amd("a", 0), amd("b", 1), amd("c", 2), amd("d", 3)];
        let see = |rocr: Option<&str>, hip: &str| {
            let visible = Visible { rocr: rocr.map(Into::into), hip: Some(hip.into()), ..Visible::default() };
            seen(&visible, &devices).concat()
        };
        assert_eq!(see(None, "1,3"), "bd");
        assert_eq!(see(Some("3,1"), "0"), "d", "in ROCm's order");
        assert_eq!(see(Some("1,2"), "0,2,1"), "b", "up to the first that is not there");
        assert_eq!(see(Some("1,2"), "1,1,0"), "bc");
    }

    #[test]
    fn partitions_of_an_amd_device_are_counted_and_the_device_is_not() {
        let amd = |id: &str, index| Device { index, vendor: Some(Vendor::Amd), ..device(id, 0) };
        let part = |id: &str, index| Device { parent: Some("whole".into()), ..amd(id, Some(index)) };
        let devices = [amd("whole", None), part("whole/0", 0), part("whole/1", 1), amd("other", Some(2))];
        let rocr = |list: &str| seen(&Visible { rocr: Some(list.into()), ..Visible::default() }, &devices);
        assert_eq!(rocr("1,2"), ["whole/1", "other"]);
        assert_eq!(rocr("0"), ["whole/0"]);
    }

    #[test]
    fn order_is_unsure_for_different_models_by_number() {
        let model = |id: &str, index, name: &str| Device { name: Some(name.into()), ..device(id, index) };
        let mixed = [model("GPU-aa11", 0, "T4"), model("GPU-aa22", 1, "H200")];
        let alike = [model("GPU-aa11", 0, "H200"), model("GPU-aa22", 1, "H200")];
        let is_unsure = |by: &Visible, devices: &[Device]| Visibility::new(by, devices, true).is_order_unsure;
        assert!(is_unsure(&cuda("0"), &mixed));
        assert!(!is_unsure(&cuda("0"), &alike) && !is_unsure(&cuda("0,1"), &mixed));
        assert!(!is_unsure(&cuda("GPU-aa11"), &mixed) && !is_unsure(&cuda(""), &mixed));
        assert!(is_unsure(&cuda("0abc"), &mixed) && !is_unsure(&cuda("GPU-aa11,0"), &mixed));
        let by_bus = Visible { cuda_order: Some("PCI_BUS_ID".into()), ..cuda("0") };
        assert!(!is_unsure(&by_bus, &mixed));
    }

    #[test]
    fn device_name_is_uuid_its_beginning_or_pci_address() {
        let gpu = device("GPU-aa11", 1);
        assert!(
            is_name_of("GPU-aa11", &gpu) && is_name_of("gpu-a", &gpu) && is_name_of("0000:01:00.0", &gpu)
        );
        assert!(
            !is_name_of("GPU-", &gpu)
                && !is_name_of("", &gpu)
                && !is_name_of("1", &gpu)
                && !is_name_of("aa11", &gpu)
        );
        assert_eq!(unknown(&["GPU-aa".into(), "GPU-x".into()], &[gpu]), Some(&"GPU-x".to_owned()));
    }

    #[test]
    fn nvidia_smis_address_has_a_longer_domain() {
        let gpu = device("GPU-aa11", 1);
        for name in ["00000000:01:00.0", "0000:01:00.0", "01:00.0", "1", "GPU-aa11"] {
            assert!(is_called(name, &gpu), "{name}");
        }
        for name in ["12340000:01:00.0", "aaaébbb:00.0", "1:00.0", ":", "0", "", "0000"] {
            assert!(!is_called(name, &gpu), "{name}");
        }
    }

    #[test]
    fn name_of_a_divided_device_means_its_parts_too() {
        let part = |id: &str| Device { parent: Some("GPU-aa11".into()), index: None, ..device(id, 0) };
        let devices = [device("GPU-aa11", 0), part("MIG-1"), part("MIG-2"), device("GPU-bb22", 1)];
        let ids = |name: &str| {
            let config = GpuConfig { uuids: Some(vec![name.into()]), ..GpuConfig::default() };
            wanted(&config, &devices, true)
                .iter()
                .map(|device| device.id.clone())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(ids("GPU-aa"), "GPU-aa11 MIG-1 MIG-2");
        assert_eq!(ids("0000:00:00.0"), "GPU-aa11 MIG-1 MIG-2");
        assert_eq!((ids("MIG-2"), ids("GPU-bb")), ("MIG-2".into(), "GPU-bb22".into()));
    }

    #[test]
    fn filters_combine() {
        let devices = [device("GPU-aa11", 0), device("GPU-aa22", 1)];
        let mut config = GpuConfig { uuids: Some(vec!["GPU-aa".into()]), ..GpuConfig::default() };
        assert_eq!(wanted(&config, &devices, true).len(), 2);
        config.only_visible = true;
        config.visible.cuda = Some("1".into());
        assert_eq!(wanted(&config, &devices, true), [&devices[1]]);
        config.vendor = Some(Vendor::Amd);
        assert_eq!(wanted(&config, &devices, true).len(), 0);
    }
}
